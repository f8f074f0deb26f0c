//! Messages to owners about reminders that changed, repeated until they are heard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{GrainId, Instant};

/// The time between two tries.
const AGAIN: Duration = Duration::from_secs(1);

/// One reminder that changed.
#[derive(Debug)]
pub(crate) struct Tell {
    pub(crate) grain: GrainId,
    pub(crate) grain_type: Arc<str>,
    pub(crate) name: Arc<str>,
    /// By then its owner has read the row by itself.
    until: Instant,
}

/// Messages that no silo has acknowledged yet, by number.
#[derive(Debug)]
pub(crate) struct Tells {
    all: BTreeMap<u64, Tell>,
    /// Times at which each is sent next, in that order. Messages that were acknowledged meanwhile
    /// are in it too.
    queue: VecDeque<(Instant, u64)>,
    last: u64,
    max: usize,
    lasts: Duration,
}

impl Tells {
    /// At most `max` at once, each for `lasts`.
    pub(crate) const fn new(max: usize, lasts: Duration) -> Self {
        Self { all: BTreeMap::new(), queue: VecDeque::new(), last: 0, max, lasts }
    }

    /// One more, to be told now.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        grain: GrainId,
        grain_type: Arc<str>,
        name: Arc<str>,
    ) {
        if self.all.len() >= self.max {
            return;
        }
        self.last += 1;
        let tell = Tell { grain, grain_type, name, until: now + self.lasts };
        self.all.insert(self.last, tell);
        // Told at once, before any of those that wait.
        self.queue.push_front((now, self.last));
    }

    pub(crate) fn heard(&mut self, id: u64) {
        self.all.remove(&id);
        if self.all.is_empty() {
            self.queue.clear();
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.front().map(|(next, _)| *next)
    }

    /// The next told reminder whose time has come, with its number. It is repeated until it is
    /// heard.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(u64, &Tell)> {
        loop {
            let (_, id) = self.queue.pop_front_if(|(next, _)| *next <= now)?;
            if self.all.get(&id).is_some_and(|tell| tell.until <= now) {
                self.all.remove(&id);
            }
            if self.all.contains_key(&id) {
                self.queue.push_back((now + AGAIN, id));
                return self.all.get(&id).map(|tell| (id, tell));
            }
        }
    }
}
