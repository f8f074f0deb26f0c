//! The graph of waiting calls, and the search for circles in it.
//!
//! A turn that has made a call and suspends is listed here; a call that waits for its grain stands
//! in the grain's queue with the number of the turn that made it; a call to another silo has that
//! number where it waits for its answer. Together they are this silo's part of the graph of waits.
//! It is not read while no call waits for long.
//!
//! A call that has waited for [`PATIENCE`] is looked at: from the turns inside its grain to the
//! calls that they wait for, and so on ([`graph`]), with a probe to each silo that such a call was
//! sent to ([`look`]); often while the call is a new one, and four times a second from then on. If
//! the search comes back to the turn that made the call, that is a circle. It is believed when the
//! next search finds the same one, edge for edge: no edge is ever made again, so all of them stood
//! at the moment between the two ([`searches`]).

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
