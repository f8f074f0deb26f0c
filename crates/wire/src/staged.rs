//! Small writes put together on the stack before they go into a buffer.
//!
//! A value is written in pieces of a few bytes. Each piece that goes into a [`BytesMut`] by itself
//! costs a check of its room and a call that copies: a third of the cost of encoding a call.

use std::io::{Error, Result, Write};

use bytes::{BufMut, BytesMut};

/// Number of bytes that are put together.
const STAGE_BYTES: usize = 64;

/// Distance below the stage that the stack may reach while a value is written: a value that nests
/// without end would overflow it. More than the deepest value that may be written takes, also where
/// nothing is optimised.
const STACK_BYTES_MAX: usize = 512 << 10;

/// Writes into `out` through a small stage. [`finish`](Self::finish) it.
pub(crate) struct Staged<'a> {
    out: &'a mut BytesMut,
    stage: [u8; STAGE_BYTES],
    used: usize,
    /// Distance that the stack was seen to reach, in bytes.
    stack_bytes: usize,
}

impl<'a> Staged<'a> {
    #[inline]
    pub(crate) const fn new(out: &'a mut BytesMut) -> Self {
        Self { out, stage: [0; STAGE_BYTES], used: 0, stack_bytes: 0 }
    }

    /// Appends `bytes`.
    #[inline]
    pub(crate) fn put_slice(&mut self, bytes: &[u8]) {
        if let Some(room) = self.stage.get_mut(self.used..self.used + bytes.len()) {
            room.copy_from_slice(bytes);
            self.used += bytes.len();
        } else {
            self.put_past_stage(bytes);
        }
    }

    #[inline]
    pub(crate) fn put_u8(&mut self, byte: u8) {
        self.put_slice(&[byte]);
    }

    #[inline]
    pub(crate) fn put_u16_le(&mut self, number: u16) {
        self.put_slice(&number.to_le_bytes());
    }

    #[inline]
    pub(crate) fn put_u32_le(&mut self, number: u32) {
        self.put_slice(&number.to_le_bytes());
    }

    #[inline]
    pub(crate) fn put_u64_le(&mut self, number: u64) {
        self.put_slice(&number.to_le_bytes());
    }

    #[inline(never)]
    fn put_past_stage(&mut self, bytes: &[u8]) {
        self.flush_stage();
        if let Some(room) = self.stage.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.used = bytes.len();
        } else {
            self.out.put_slice(bytes);
        }
    }

    /// As `put_past_stage`, for a piece of a value. Each level of a value writes a byte at least:
    /// how far the stack reaches is seen once for every stage full of levels.
    #[inline(never)]
    fn write_past_stage(&mut self, bytes: &[u8]) -> Result<()> {
        let reach =
            std::ptr::from_ref(&self.stage).addr().abs_diff(std::ptr::from_ref(&bytes).addr());
        self.stack_bytes = self.stack_bytes.max(reach);
        if reach > STACK_BYTES_MAX {
            return Err(Error::other("nested too deep"));
        }
        self.put_past_stage(bytes);
        Ok(())
    }

    fn flush_stage(&mut self) {
        self.out.put_slice(self.stage.get(..self.used).unwrap_or_default());
        self.used = 0;
    }

    /// Moves the rest of the stage into the buffer; returns how many bytes below it the stack was
    /// seen to reach.
    #[inline]
    pub(crate) fn finish(mut self) -> usize {
        self.flush_stage();
        self.stack_bytes
    }
}

impl Write for Staged<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.put_slice(bytes);
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(room) = self.stage.get_mut(self.used..self.used + bytes.len()) {
            room.copy_from_slice(bytes);
            self.used += bytes.len();
            Ok(())
        } else {
            self.write_past_stage(bytes)
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.flush_stage();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_size_arrive_in_their_order() {
        let all: Vec<u8> = (0..=u8::MAX).cycle().take(3_000).collect();
        for step in [1, 2, 7, 31, 63, 64, 65, 200] {
            let mut out = BytesMut::new();
            out.put_slice(b"before");
            let mut staged = Staged::new(&mut out);
            for (n, piece) in all.chunks(step).enumerate() {
                if n % 5 == 4 {
                    piece.iter().for_each(|byte| staged.put_u8(*byte));
                } else {
                    staged.put_slice(piece);
                }
            }
            staged.finish();
            assert_eq!(&out[..], [b"before", &all[..]].concat(), "{step}");
        }
    }
}
