//! Timers of activations.

mod method;
mod timer;

pub use self::method::{Alone, Beside, TimerMethod};
pub use self::timer::{Timer, TimerBuilder};
