//! Timers of activations.

mod method;
mod owners;
mod timer;

pub use self::method::{Alone, Beside, TimerMethod};
pub(crate) use self::owners::Timers;
pub use self::timer::{StartTimer, Timer};
