//! What dead owners knew is told once: every host that sees them die tells one silo, the collector,
//! what it has in all of their ranges, without being asked, and the collector passes to each new
//! owner what is its.

use std::collections::BTreeMap;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::answering::Question;
use crate::api::Registration;
use crate::directory::Directory;
use crate::message::Message;
use crate::pending::Timer;
use crate::ranges::RangeSet;
use crate::silos::Change;
use crate::streams::{Body, Progress};

/// The most views whose losses are being collected. One more ends the oldest: its new owners ask by
/// themselves.
const COLLECTIONS_MAX: usize = 64;

/// The most batches, and registrations in them, that are kept until the view they belong to is
/// installed here. More are dropped: the collector asks who is missing.
const EARLY_MAX: usize = 1_000_000;

/// The ranges that one view takes from silos that are Dead in it. Every silo that has installed
/// this view and the one before finds the same.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) collector: SiloAddress,
    pub(crate) ranges: RangeSet,
}

/// What the hosts of a view have told of its losses so far.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    /// The number of this silo's questions to hosts that have not told by themselves.
    id: u64,
    ranges: RangeSet,
    /// The pieces, sorted, and who gained them.
    pieces: Vec<((u64, u64), SiloAddress)>,
    waiting: BTreeMap<SiloAddress, Progress>,
    /// The newest view at which anybody told, or at which somebody was found dead who had not.
    at: u64,
    /// Hosts that died before they had told everything.
    missing: Vec<SiloAddress>,
    entries: Vec<(GrainId, Registration)>,
    due: Instant,
}

/// One batch of what a host tells.
pub(crate) type Batch = ((u64, u64, u32, bool), Vec<(GrainId, u64)>);

/// Batches about views that are not installed yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early {
    batches: BTreeMap<(u64, SiloAddress), Vec<Batch>>,
    size: usize,
}

impl Directory {
    /// Which owners of the view before own nothing in this one, and what they had. The ring is
    /// still the old one.
    pub(crate) fn owners_that_left(&self, changes: &[Change]) -> Vec<(SiloAddress, RangeSet)> {
        let left = changes.iter().filter(|change| change.left_the_ring()).map(|change| change.silo);
        left.map(|silo| (silo, RangeSet::owned(&self.ring, silo))).collect()
    }

    /// What of it the dead had, and who collects that by the ring of the installed view.
    pub(crate) fn loss(&self, left: &[(SiloAddress, RangeSet)]) -> Option<Loss> {
        let mut dead = left.iter().filter(|(silo, _)| !self.is_host(silo)).peekable();
        let collector = self.ring.owner(dead.peek()?.0.stable_hash(0))?;
        let ranges = dead.fold(RangeSet::default(), |all, (_, ranges)| all.union(ranges));
        Some(Loss { collector, ranges })
    }

    /// Takes part in collecting what the installed view has lost.
    pub(crate) fn collect(&mut self, now: Instant, loss: Loss) {
        let view = self.version;
        if loss.collector == self.me {
            self.start_collection(now, &loss);
        }
        if self.is_host(&self.me) {
            let Loss { collector: to, ranges } = loss;
            self.start_answer(now, Question { to, recovery: Message::UNASKED, view, ranges });
        }
    }

    fn start_collection(&mut self, now: Instant, loss: &Loss) {
        if self.collections.len() >= COLLECTIONS_MAX
            && let Some((view, old)) = self.collections.pop_first()
        {
            self.timers.remove(&(old.due, Timer::Collection(view)));
        }
        let waiting = self.silos.hosts().map(|silo| (silo, Progress::default())).collect();
        let due = now + self.config.collect_patience;
        let collection = Collection {
            id: self.next_number(),
            ranges: loss.ranges.clone(),
            pieces: loss.ranges.split(&self.ring),
            waiting,
            at: self.version,
            missing: Vec::new(),
            entries: Vec::new(),
            due,
        };
        self.timers.insert((due, Timer::Collection(self.version)));
        self.collections.insert(self.version, collection);
    }

    /// Asks who has not told by itself: it has skipped the view, or the message was lost.
    pub(crate) fn collection_due(&mut self, now: Instant, view: u64) {
        let Some(collection) = self.collections.get_mut(&view) else { return };
        collection.due = now + self.config.resend_interval;
        self.timers.insert((collection.due, Timer::Collection(view)));
        let (recovery, ranges) = (collection.id, collection.ranges.clone());
        // Whoever is in the middle of it is not made to begin again.
        let silent =
            collection.waiting.iter_mut().filter_map(|(silo, p)| (!p.has_moved()).then_some(*silo));
        for to in silent.collect::<Vec<_>>() {
            if to == self.me {
                self.start_answer(now, Question { to, recovery, view, ranges: ranges.clone() });
            } else {
                self.send(to, Message::Recover { recovery, view, ranges: ranges.to_ring_ranges() });
            }
        }
    }

    /// The collection that asked under the number `id`.
    pub(crate) fn collection_of(&self, id: u64) -> Option<u64> {
        self.collections.iter().find(|(_, collection)| collection.id == id).map(|(view, _)| *view)
    }

    /// A host tells what it has in the ranges that `view` lost. It may have installed that view
    /// first.
    pub(crate) fn handle_told(&mut self, now: Instant, from: SiloAddress, view: u64, batch: Batch) {
        if view > self.version {
            self.early.keep(view, from, batch);
            return;
        }
        let ((at, series, number, last), entries) = batch;
        let Some(collection) = self.collections.get_mut(&view) else { return };
        let Some(progress) = collection.waiting.get_mut(&from) else { return };
        if !progress.takes(series, number) {
            return;
        }
        collection.at = collection.at.max(at);
        let entry = |(grain, activation)| (grain, Registration { silo: from, activation });
        collection.entries.extend(entries.into_iter().map(entry));
        if last {
            collection.waiting.remove(&from);
        } else {
            self.send(from, Message::Credit { series, batches: number + 1 });
        }
        self.finish_collections(now);
    }

    /// The installed view is there: what came early is of use, or of none.
    pub(crate) fn take_early(&mut self, now: Instant) {
        for ((view, from), batch) in self.early.up_to(self.version) {
            self.handle_told(now, from, view, batch);
        }
    }

    /// A view was installed: who died without telling is not waited for, and named to the new
    /// owners. A collector that is not Active any more collects nothing: the new owners see that
    /// too.
    pub(crate) fn keep_collections(&mut self, ended: &[SiloAddress]) {
        let version = self.version;
        let collects = self.silos.is_active(&self.me);
        let timers = &mut self.timers;
        self.collections.retain(|view, collection| {
            for silo in ended.iter().filter(|silo| collection.waiting.remove(silo).is_some()) {
                collection.missing.push(*silo);
                collection.at = version;
            }
            if !collects {
                timers.remove(&(collection.due, Timer::Collection(*view)));
            }
            collects
        });
    }

    /// Passes on what is complete.
    pub(crate) fn finish_collections(&mut self, now: Instant) {
        let done = |(view, collection): (&u64, &Collection)| {
            collection.waiting.is_empty().then_some(*view)
        };
        while let Some(view) = self.collections.iter().find_map(done) {
            let Some(collection) = self.collections.remove(&view) else { return };
            self.timers.remove(&(collection.due, Timer::Collection(view)));
            self.pass_on(now, view, collection);
        }
    }

    fn pass_on(&mut self, now: Instant, view: u64, collection: Collection) {
        let Collection { pieces, at, missing, entries, .. } = collection;
        let mut parts: BTreeMap<SiloAddress, Vec<_>> = BTreeMap::new();
        for (_, gainer) in &pieces {
            parts.entry(*gainer).or_default();
        }
        for (grain, held) in entries {
            let hash = grain.stable_hash();
            let piece = pieces.get(pieces.partition_point(|((_, hi), _)| *hi < hash));
            let part = piece
                .filter(|((lo, _), _)| *lo <= hash)
                .and_then(|(_, gainer)| parts.get_mut(gainer));
            if let Some(part) = part {
                part.push((grain, held));
            }
        }
        for (gainer, entries) in parts {
            if gainer == self.me {
                self.take_collected(now, gainer, (view, at, true), &missing, entries);
            } else if self.silos.is_active(&gainer) {
                let missing = missing.clone();
                self.open_stream(now, gainer, Body::Collected { view, at, missing, entries });
            }
        }
    }

    /// A new owner waits for longer than it thinks it should.
    pub(crate) fn handle_await(&mut self, now: Instant, from: SiloAddress, view: u64) {
        if self.repeat(now, from, view, false) {
            return;
        }
        // A view that is not installed here yet may still begin a collection.
        let known = self.collections.contains_key(&view) || view > self.version;
        self.send(from, Message::Awaited { view, known });
    }
}

impl Early {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    fn keep(&mut self, view: u64, from: SiloAddress, batch: Batch) {
        let size = 1 + batch.1.len();
        if self.size + size <= EARLY_MAX {
            self.size += size;
            self.batches.entry((view, from)).or_default().push(batch);
        }
    }

    fn up_to(&mut self, version: u64) -> Vec<((u64, SiloAddress), Batch)> {
        let mut taken = Vec::new();
        while let Some(entry) = self.batches.first_entry().filter(|entry| entry.key().0 <= version)
        {
            let (key, batches) = entry.remove_entry();
            for batch in batches {
                self.size -= 1 + batch.1.len();
                taken.push((key, batch));
            }
        }
        taken
    }
}
