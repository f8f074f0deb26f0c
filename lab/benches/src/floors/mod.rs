//! The floors: the least that could do the work of a call, without a runtime of actors.
//!
//! | module | floor |
//! |---|---|
//! | [`local`] | `inline`: the turn under an asynchronous mutex on the caller's task; `mpsc`: a task with a channel, a oneshot for each answer |
//! | [`frames`] | the frames that all floors between processes speak |
//! | [`mux`] | `floor-mux`: one connection, a oneshot for each call, a task that reads and one that writes; also the servers |
//! | [`tight`] | `tight`: no channel and no oneshot; callers encode into the shared buffer and wait in a slab |

pub mod frames;
pub mod local;
pub mod mux;
pub mod servers;
pub mod tight;
