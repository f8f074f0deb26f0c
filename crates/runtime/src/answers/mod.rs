//! Streamed answers, as grains and callers see them. Within a process a stream is a channel of
//! values; to another process its values go by `streams/`.
//!
//! | module | subject |
//! |---|---|
//! | `sink` | where a turn puts the values of its answer |
//! | `source` | a stream as an argument |
//! | `stream` | the values as the caller takes them, and the call that they answer |
//! | `channel` | the values between the two |
//! | `travelling` | a sink as an argument of a call to another process |

mod channel;
mod sink;
mod source;
mod stream;
mod travelling;

pub use self::sink::{Sink, SinkError};
pub use self::source::{Source, SourceError};
pub use self::stream::{Answers, answers};
