//! Streams: the values that one process writes and another one reads.
//!
//! A stream has two ends. Its [`Writer`] lives where the values are made, its [`Reader`] where the
//! application takes them. Both are machines without IO: messages and times go in, messages and
//! events come out. The shell finds the end that a message is for, and carries messages.
//!
//! * **Order.** The reader gives out each value once, in the order of the writer. Messages may
//!   overtake each other on the way, may come twice, and may be lost. A reader never passes over a
//!   lost value: the stream ends there.
//! * **A certain end.** The reader says [`End::Complete`] only after the last value that the writer
//!   has written. Every other end says why.
//! * **Credit.** The writer sends at most the [`Window`] beyond what the application has taken, and
//!   one value more. A writer without credit holds at most one batch.
//! * **Silence.** Each end of an idle stream hears from the other one every
//!   [`check_every`](Config::check_every). An end that hears nothing for [`Config::silence`] ends.
//!
//! | module | subject |
//! |---|---|
//! | `api` | settings, ends, credit, as plain data |
//! | `message` | messages between the two ends |
//! | `writer` | the end that values are written to: batches, credit |
//! | `reader` | the end that values are taken from: order, credit, the end |
//! | `arrivals` | values that have arrived, in order or early |

mod api;
mod arrivals;
mod message;
mod reader;
#[cfg(test)]
mod world_tests;
mod writer;

pub use api::{Config, Credit, End, Lost, StreamId, Unwritable, Window};
pub use message::{Block, ToReader, ToWriter};
pub use reader::Reader;
pub use writer::Writer;
