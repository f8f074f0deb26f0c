//! Calls on their way, made in this process or come over a connection: their targets, their ends,
//! their waiting callers.

pub(crate) mod arriving;
mod asking;
mod fated;
mod filtered;
mod finding;
mod head;
pub(crate) mod invoke;
pub(crate) mod lanes;
mod learning;
mod looking;
mod node;
pub(crate) mod one_way;
pub(crate) mod outset;
pub(crate) mod path;
pub(crate) mod remote;
mod rules;
pub(crate) mod shedding;
mod silo;
mod target;
pub(crate) mod travel;
mod way;

pub(crate) use self::asking::Open;
pub(crate) use self::finding::Place;
pub(crate) use self::head::{AnyCall, CallHead};
pub(crate) use self::node::Node;
pub(crate) use self::rules::Rules;
pub(crate) use self::silo::Calls;
pub(crate) use self::target::{Aim, Found, Lane, Route, Target};
pub(crate) use self::way::Way;
