//! Frames that wait to be sent: those that keep silos alive first, the others in order.

use bytes::{Buf, BytesMut};
use emmer_wire::extend_cancel;

use crate::pending::Correlation;

/// Number of bytes that the writer of the socket takes at once. A later urgent frame waits for at
/// most these bytes.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// Two queues of whole frames. Urgent frames go before all others, but never into a frame that has
/// been sent in part.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    urgent: BytesMut,
    rest: BytesMut,
    /// Number of bytes at the start of `rest` whose frame has been sent in part.
    half: usize,
    /// The last Cancel frame in `rest`: its length and its end. Both 0 when it may have been sent.
    last_cancel: (usize, usize),
}

/// Length of the frame at the start of `bytes`, at most all of them.
pub(crate) fn frame_bytes(bytes: &[u8]) -> usize {
    let announced = bytes.first_chunk::<4>().map(|prefix| u32::from_le_bytes(*prefix) as usize);
    announced.map_or(bytes.len(), |bytes| bytes.saturating_add(4)).min(bytes.len())
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.urgent.len() + self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.rest.is_empty()
    }

    /// The end of the queue. Whole frames are appended.
    pub(crate) const fn end(&mut self) -> &mut BytesMut {
        &mut self.rest
    }

    /// The end of the urgent frames. Whole frames are appended.
    pub(crate) const fn urgent(&mut self) -> &mut BytesMut {
        &mut self.urgent
    }

    /// Appends `frames`, and leaves an empty buffer.
    pub(crate) fn append(&mut self, frames: &mut BytesMut) {
        if self.rest.is_empty() {
            std::mem::swap(&mut self.rest, frames);
        } else {
            self.rest.extend_from_slice(frames);
        }
        frames.clear();
    }

    /// Tells the peer that a call was given up. Calls that are given up one after the other share a
    /// frame.
    pub(crate) fn cancel(&mut self, call: Correlation) {
        let (bytes, end) = self.last_cancel;
        let open = if end == self.rest.len() { bytes } else { 0 };
        let bytes = extend_cancel(&mut self.rest, open, call.as_u64());
        self.last_cancel = (bytes, self.rest.len());
    }

    /// The bytes to be sent next.
    pub(crate) fn poll(&mut self) -> Option<&[u8]> {
        if !self.urgent.is_empty() {
            if self.half > 0 {
                return self.rest.get(..self.half);
            }
            self.urgent.extend_from_slice(&self.rest);
            self.rest.clear();
            std::mem::swap(&mut self.urgent, &mut self.rest);
            self.last_cancel = (0, 0);
        }
        (!self.rest.is_empty()).then_some(&*self.rest)
    }

    /// The socket has taken `bytes` of them.
    pub(crate) fn transmitted(&mut self, bytes: usize) {
        let mut end = self.half;
        while end < bytes {
            end += frame_bytes(self.rest.get(end..).unwrap_or_default()).max(1);
        }
        self.half = end - bytes;
        self.rest.advance(bytes);
        self.last_cancel = (0, 0);
    }

    /// Swaps the next bytes for the empty buffer `into`; false if there are none. All of them if
    /// `whole`.
    pub(crate) fn take(&mut self, into: &mut BytesMut, whole: bool) -> bool {
        into.clear();
        if self.is_empty() {
            return false;
        }
        let max = if whole { usize::MAX } else { TAKEN_BYTES_MAX };
        if self.urgent.is_empty() && self.rest.len() <= max {
            std::mem::swap(&mut self.rest, into);
        } else {
            let (half, rest) = self.rest.split_at(self.half);
            into.extend_from_slice(half);
            into.extend_from_slice(&self.urgent);
            let mut end = 0;
            while end < rest.len() && end < max {
                end += frame_bytes(rest.get(end..).unwrap_or_default()).max(1);
            }
            into.extend_from_slice(rest.get(..end).unwrap_or_default());
            self.rest.advance(self.half + end);
            self.urgent.clear();
        }
        self.half = 0;
        self.last_cancel = (0, 0);
        true
    }

    /// Gives the memory back.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(of: u8, bytes: usize) -> Vec<u8> {
        let mut frame = u32::try_from(bytes).unwrap().to_le_bytes().to_vec();
        frame.resize(4 + bytes, of);
        frame
    }

    /// The frames that arrive, by their contents.
    fn kinds(mut bytes: &[u8]) -> Vec<u8> {
        let mut kinds = Vec::new();
        while !bytes.is_empty() {
            let (frame, rest) = bytes.split_at(frame_bytes(bytes));
            assert!(frame[4..].iter().all(|byte| *byte == frame[4]), "frames are whole");
            kinds.push(frame[4]);
            bytes = rest;
        }
        kinds
    }

    #[test]
    fn urgent_frames_go_first_and_never_into_another_frame() {
        for cut in 0..60 {
            let (mut out, mut sent) = (Outbox::default(), Vec::new());
            for of in [1, 2, 3] {
                out.end().extend_from_slice(&frame(of, 16));
            }
            sent.extend_from_slice(&out.poll().unwrap()[..cut]);
            out.transmitted(cut);
            out.urgent().extend_from_slice(&frame(9, 5));
            while let Some(bytes) = out.poll().map(<[u8]>::to_vec) {
                sent.extend_from_slice(&bytes);
                out.transmitted(bytes.len());
            }
            let before = cut.div_ceil(20);
            let mut expected = vec![1, 2, 3];
            expected.insert(before, 9);
            assert_eq!(kinds(&sent), expected, "after {cut} bytes");
        }
    }

    #[test]
    fn a_writer_takes_urgent_frames_before_a_large_queue_and_not_all_of_it() {
        let (mut out, mut taken) = (Outbox::default(), BytesMut::new());
        for _ in 0..20 {
            out.end().extend_from_slice(&frame(1, 60_000));
        }
        assert!(out.take(&mut taken, false));
        assert_eq!(kinds(&taken), [1; 5]);
        out.urgent().extend_from_slice(&frame(9, 5));
        assert!(out.take(&mut taken, false));
        assert_eq!(kinds(&taken), [9, 1, 1, 1, 1, 1]);
        assert!(out.take(&mut taken, true) && out.is_empty());
        assert_eq!(kinds(&taken), [1; 10]);
        assert!(!out.take(&mut taken, false) && taken.is_empty());
    }
}
