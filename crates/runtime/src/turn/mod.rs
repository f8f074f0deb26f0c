//! What every room may know of a turn: its code, which may do anything, the caller that may give it
//! up, and the ways in which its call may fail.

mod asker;
mod called;
mod contain;
mod error;
mod failure;

pub(crate) use self::asker::Asked;
pub use self::asker::Asker;
pub(crate) use self::called::Names;
pub use self::called::{Called, Rejection};
pub(crate) use self::contain::{contain, contained, let_go, let_go_by};
pub use self::error::{ActivationError, CallError, DeactivationReason, StateError};
pub(crate) use self::failure::Failure;
