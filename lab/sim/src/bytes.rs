//! Size of a message on the wire, in bytes.

use std::io;

use emmer_membership::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The bytes of `message` in the wire's encoding (MessagePack with named fields), frame header
/// included.
pub fn estimate(message: &Message) -> u64 {
    let mut counter = Counter(FRAME_HEADER_BYTES);
    let mut serializer = rmp_serde::Serializer::new(&mut counter).with_struct_map();
    // Counting cannot fail; a value that MessagePack cannot hold would be counted short.
    let _ = message.serialize(&mut serializer);
    counter.0
}

/// `message` as it comes out at the other end of a connection.
///
/// # Errors
/// When its bytes do not decode, in words.
pub fn through<T: Serialize + DeserializeOwned>(message: &T) -> Result<T, String> {
    let bytes = rmp_serde::to_vec_named(message).map_err(|e| e.to_string())?;
    rmp_serde::from_slice(&bytes).map_err(|e| e.to_string())
}

/// A frame's header, about.
const FRAME_HEADER_BYTES: u64 = 16;

/// Counts written bytes.
struct Counter(u64);

impl io::Write for Counter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0 += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
