//! Text of traces about packets and the store's answers.

use emmer_membership::TableOutcome;

use crate::grains::Packet;

/// A packet as traces show it.
pub(super) struct Shown<'a>(pub(super) &'a Packet);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Packet::Membership(message) => write!(f, "{message:?}"),
            Packet::Directory(message) => write!(f, "directory {message:?}"),
            Packet::Call(call) => write!(f, "{call:?}"),
            Packet::Found { grain, at } => write!(f, "grain {grain} is on {at}"),
            Packet::Arrive { grain, memory, instead: (from, _) } => {
                write!(f, "grain {grain} moves from {from} with {memory:?}")
            }
            Packet::MoveWord { grain, word, .. } => write!(f, "grain {grain} has moved: {word:?}"),
        }
    }
}

/// An outcome without its rows, for the trace.
pub(super) struct Brief<'a>(pub(super) &'a TableOutcome);

impl std::fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            TableOutcome::Snapshot(s) => {
                write!(f, "snapshot {} of {} rows", s.version.number, s.rows.len())
            }
            TableOutcome::Sample(rows) => write!(f, "sample of {} rows", rows.len()),
            TableOutcome::Version(v) => write!(f, "version {}", v.number),
            TableOutcome::Committed(v) => write!(f, "committed {}", v.number),
            other => write!(f, "{other:?}"),
        }
    }
}
