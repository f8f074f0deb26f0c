//! The order of streams: the one whose next departure comes first in the file is fed next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

use emmer::tables::SiloAddress;

use crate::streams::Streams;

/// How far one stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Which of the streams.
    pub(super) stream: usize,
    /// Its next departure.
    pub(super) next: u64,
    /// The silo that answered last.
    pub(super) home: Option<SiloAddress>,
}

/// The streams that no caller has in hand. Holds at most one entry for each stream.
#[derive(Debug)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    /// Position in the file, stream.
    order: BinaryHeap<Reverse<(u32, usize)>>,
    /// By stream.
    cursors: Vec<Option<Cursor>>,
}

impl Queue {
    pub(super) fn new(streams: &Streams) -> Self {
        let first = |(at, stream): (usize, &crate::streams::Stream)| {
            Some(Reverse((stream.position(0)?, at)))
        };
        let order = streams.all().iter().enumerate().filter_map(first).collect();
        let cursor = |stream| Some(Cursor { stream, next: 0, home: None });
        let cursors = (0..streams.all().len()).map(cursor).collect();
        Self(Mutex::new(Waiting { order, cursors }))
    }

    pub(super) fn take(&self) -> Option<Cursor> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Reverse((_, stream)) = waiting.order.pop()?;
        waiting.cursors.get_mut(stream)?.take()
    }

    /// Puts a stream back, unless it is at its end.
    pub(super) fn give_back(&self, cursor: Cursor, streams: &Streams) {
        let position =
            streams.all().get(cursor.stream).and_then(|stream| stream.position(cursor.next));
        let Some(position) = position else { return };
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.order.push(Reverse((position, cursor.stream)));
        let stream = cursor.stream;
        if let Some(slot) = waiting.cursors.get_mut(stream) {
            *slot = Some(cursor);
        }
    }
}
