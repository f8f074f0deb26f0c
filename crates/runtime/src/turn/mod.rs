//! What every room may know of a turn: its code, which may do anything, the caller that may give it
//! up, and the ways in which its call may fail.

mod called;
mod error;
mod failure;

pub(crate) use emmer_net::asker::Asked;
pub use emmer_net::asker::Asker;
pub(crate) use emmer_net::contain::{contain, contained, let_go, let_go_by};

pub(crate) use self::called::Names;
pub use self::called::{Called, Rejection};
pub use self::error::{ActivationError, CallError, DeactivationReason, StateError};
pub(crate) use self::failure::Failure;
