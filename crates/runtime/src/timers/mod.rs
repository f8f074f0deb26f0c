//! Timers of activations, and the wheel of the silo that they are in.

mod method;
mod timer;
mod wheel;

pub use self::method::{Alone, Beside, TimerMethod};
pub use self::timer::{StartTimer, Timer};
pub(crate) use self::wheel::Wheel;
