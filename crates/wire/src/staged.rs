//! Small writes put together on the stack before they go into a buffer.
//!
//! A value is written in pieces of a few bytes, and each piece that goes into a [`BytesMut`] by itself costs a look at its
//! room and a copy by a call: a third of what encoding a call took.

use std::io::{Result, Write};

use bytes::{BufMut, BytesMut};

/// How much is put together.
const STAGE_BYTES: usize = 64;

/// Writes into `out` through a small stage. [`finish`](Self::finish) it.
pub(crate) struct Staged<'a> {
    out: &'a mut BytesMut,
    stage: [u8; STAGE_BYTES],
    used: usize,
}

impl<'a> Staged<'a> {
    #[inline]
    pub(crate) const fn new(out: &'a mut BytesMut) -> Self {
        Self { out, stage: [0; STAGE_BYTES], used: 0 }
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

    fn put_past_stage(&mut self, bytes: &[u8]) {
        self.flush_stage();
        if let Some(room) = self.stage.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.used = bytes.len();
        } else {
            self.out.put_slice(bytes);
        }
    }

    fn flush_stage(&mut self) {
        self.out.put_slice(self.stage.get(..self.used).unwrap_or_default());
        self.used = 0;
    }

    /// Whatever is left on the stage goes into the buffer.
    #[inline]
    pub(crate) fn finish(mut self) {
        self.flush_stage();
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
        self.put_slice(bytes);
        Ok(())
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
