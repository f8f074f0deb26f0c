//! Frames of the floors: a length, a number, a body.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The bytes of the number that says which call a frame belongs to.
const NUMBER_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;

/// Initial size of buffers, in bytes.
pub(crate) const BUFFER: usize = 64 * 1024;
/// Least room for each read, in bytes.
pub(crate) const READ_ROOM: usize = 16 * 1024;

/// Appends a frame.
pub fn put(out: &mut BytesMut, number: u64, body: &[u8]) {
    let length = u32::try_from(NUMBER_BYTES + body.len()).unwrap_or(u32::MAX);
    out.put_u32(length);
    out.put_u64(number);
    out.put_slice(body);
}

/// Takes the first frame out, when all of it is there.
pub fn take(from: &mut BytesMut) -> Option<(u64, Bytes)> {
    let mut head = from.get(..LENGTH_BYTES)?;
    let length = usize::try_from(head.get_u32()).ok()?;
    if from.len() < LENGTH_BYTES + length || length < NUMBER_BYTES {
        return None;
    }
    from.advance(LENGTH_BYTES);
    let mut frame = from.split_to(length).freeze();
    Some((frame.get_u64(), frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_and_in_order() {
        let mut buffer = BytesMut::new();
        put(&mut buffer, 1, b"one");
        put(&mut buffer, 2, b"");
        let rest = buffer.split_off(buffer.len() - 1);
        assert_eq!(take(&mut buffer), Some((1, Bytes::from_static(b"one"))));
        assert_eq!(take(&mut buffer), None);
        buffer.unsplit(rest);
        assert_eq!(take(&mut buffer), Some((2, Bytes::new())));
    }
}
