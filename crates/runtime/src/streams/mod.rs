//! The ends of streams whose other end is in another process, and the way of their messages. Each
//! end is a machine of [`emmer_streams`]. What callers and grains see of it is in `answers/`.

mod encoding;
mod hub;
mod inbox;
mod links;
mod post;
mod read_end;
mod write_end;

pub(crate) use self::encoding::{at_encoding, encoding};
pub(crate) use self::hub::{Hub, Listed, Local};
pub(crate) use self::inbox::Mailbox;
pub(crate) use self::links::Set;
pub(crate) use self::post::{Parcel, Place, StreamMessage, Way};
pub(crate) use self::read_end::{Next, ReadEnd};
pub(crate) use self::write_end::{NotPut, WriteEnd, split_value};
