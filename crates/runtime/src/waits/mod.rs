//! The graph of waiting calls, and the search for circles in it.
//!
//! A turn that has made a call and suspends is listed here. A call that waits for its grain has the
//! number of the turn that made it, in the grain's queue or where it waits for another silo's
//! answer. Together they are this silo's part of the graph of waits. The graph is not read while no
//! call waits for long.
//!
//! A search begins for each call that has waited for [`PATIENCE`]. It leads from the turns inside
//! its grain to the calls that they wait for, and so on ([`graph`]), with a probe to each silo that
//! such a call was sent to ([`look`]). It is repeated often while the call is new, and four times a
//! second later. A search that comes back to the turn that made the call has found a circle. The
//! circle counts when the next search finds it again, edge for edge: no edge is ever made twice, so
//! all of them stood at the moment between the two ([`searches`]).

mod graph;
mod look;
mod message;
mod searches;
mod turns;
mod wait;

pub(crate) use self::graph::REACHED_MAX;
pub(crate) use self::look::{Chase, Gate, Waits};
pub(crate) use self::turns::{Listed, Listing, next_turn};
pub(crate) use self::wait::Wait;
