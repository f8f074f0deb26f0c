//! Calls on their way: made in this process, or come over a connection; where to, what becomes of them, who waits.

pub(crate) mod arriving;
mod finding;
mod future;
pub(crate) mod invoke;
pub(crate) mod lanes;
pub(crate) mod one_way;
pub(crate) mod path;
pub(crate) mod remote;
pub(crate) mod travel;
pub(crate) mod waits;

pub(crate) use self::finding::Place;
pub use self::future::CallFuture;
