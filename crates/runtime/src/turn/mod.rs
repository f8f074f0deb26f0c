//! What every room may know of a turn: its code, which may do anything, and the caller that may
//! give it up.

mod asker;
mod contain;

pub(crate) use self::asker::Asked;
pub use self::asker::Asker;
pub(crate) use self::contain::{contain, contained, let_go, let_go_by};
