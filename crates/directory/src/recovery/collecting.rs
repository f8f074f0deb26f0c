//! The knowledge of dead owners, told once: every host that sees them die sends its activations in
//! all of their ranges to one silo, the collector. The collector passes to each new owner its part.

use std::collections::BTreeMap;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::facts::Facts;
use crate::inner::{Batch, Inner, Question};
use crate::list::{Body, Progress};
use crate::message::Message;
use crate::out::{Out, Timer};
use crate::ranges::RangeSet;
use crate::registration::Registration;
use crate::silos::Change;

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
    collector: SiloAddress,
    ranges: RangeSet,
}

/// As a collector: what hosts tell.
#[derive(Debug, Default)]
pub(crate) struct Collecting {
    /// Words of hosts about the losses of a view, by its version.
    collections: BTreeMap<u64, Collection>,
    /// Words of hosts about losses of views that are not installed yet.
    early: Early,
}

/// Words of the hosts of a view about its losses so far.
#[derive(Clone, Debug)]
struct Collection {
    /// The number of this silo's questions to hosts that have not told by themselves.
    id: u64,
    ranges: RangeSet,
    /// The pieces, sorted, and who gained them.
    pieces: Vec<((u64, u64), SiloAddress)>,
    waiting: BTreeMap<SiloAddress, Progress>,
    /// The newest view at which a host told, or at which a host was found dead untold.
    at: u64,
    /// Hosts that died before they had told everything.
    missing: Vec<SiloAddress>,
    entries: Vec<(GrainId, Registration)>,
    due: Instant,
}

/// Batches about views that are not installed yet.
#[derive(Clone, Debug, Default)]
struct Early {
    batches: BTreeMap<(u64, SiloAddress), Vec<Batch>>,
    size: usize,
}

/// Owners of the view before that own nothing in this one, with their ranges. The ring is still the
/// old one.
pub(crate) fn owners_that_left(facts: &Facts, changes: &[Change]) -> Vec<(SiloAddress, RangeSet)> {
    let left = changes.iter().filter(|change| change.left_the_ring()).map(Change::silo);
    left.map(|silo| (silo, RangeSet::owned(facts.ring(), silo))).collect()
}

impl Loss {
    /// Ranges that the dead of the silos that `left` had, and their collector by the ring of the
    /// installed view.
    pub(crate) fn of(facts: &Facts, left: &[(SiloAddress, RangeSet)]) -> Option<Self> {
        let mut dead = left.iter().filter(|(silo, _)| !facts.is_host(silo)).peekable();
        let collector = facts.ring().owner(dead.peek()?.0.stable_hash(0))?;
        let ranges = dead.fold(RangeSet::default(), |all, (_, ranges)| all.union(ranges));
        Some(Self { collector, ranges })
    }

    /// The silo that collects these entries.
    pub(crate) const fn collector(&self) -> SiloAddress {
        self.collector
    }

    /// Ranges that were lost.
    pub(crate) const fn ranges(&self) -> &RangeSet {
        &self.ranges
    }
}

impl Collecting {
    /// Returns true if no loss is being collected.
    pub(crate) fn is_empty(&self) -> bool {
        self.collections.is_empty()
    }

    /// Returns true if nothing that was told waits for its view.
    pub(crate) fn has_nothing_early(&self) -> bool {
        self.early.batches.is_empty()
    }

    /// Returns true if what `view` lost is being collected here.
    pub(crate) fn collects(&self, view: u64) -> bool {
        self.collections.contains_key(&view)
    }

    /// The view whose collection asked under the number `id`.
    pub(crate) fn asked_as(&self, id: u64) -> Option<u64> {
        self.collections.iter().find(|(_, collection)| collection.id == id).map(|(view, _)| *view)
    }

    /// Takes part in collecting what the installed view has lost.
    pub(crate) fn take_part(&mut self, facts: &Facts, out: &mut Out, loss: Loss) {
        if loss.collector == facts.me() {
            self.start(facts, out, &loss);
        }
        if facts.is_host(&facts.me()) {
            let Loss { collector, ranges } = loss;
            let question = Question::new(collector, Message::UNASKED, facts.version(), ranges);
            out.tell(Inner::Answer(question));
        }
    }

    fn start(&mut self, facts: &Facts, out: &mut Out, loss: &Loss) {
        if self.collections.len() >= COLLECTIONS_MAX
            && let Some((view, old)) = self.collections.pop_first()
        {
            out.clear(old.due, Timer::Collection(view));
        }
        let waiting = facts.silos().hosts().map(|silo| (silo, Progress::default())).collect();
        let due = facts.now() + facts.config().collect_patience;
        let collection = Collection {
            id: out.next_number(),
            ranges: loss.ranges.clone(),
            pieces: loss.ranges.split(facts.ring()),
            waiting,
            at: facts.version(),
            missing: Vec::new(),
            entries: Vec::new(),
            due,
        };
        out.set(due, Timer::Collection(facts.version()));
        self.collections.insert(facts.version(), collection);
    }

    /// Asks who has not told by itself: it has skipped the view, or the message was lost.
    pub(crate) fn on_due(&mut self, facts: &Facts, out: &mut Out, view: u64) {
        let Some(collection) = self.collections.get_mut(&view) else { return };
        collection.due = facts.now() + facts.config().resend_interval;
        out.set(collection.due, Timer::Collection(view));
        let recovery = collection.id;
        // A host that is in the middle of it is not made to begin again.
        let silent =
            collection.waiting.iter_mut().filter_map(|(silo, p)| (!p.has_moved()).then_some(*silo));
        for to in silent.collect::<Vec<_>>() {
            if to == facts.me() {
                let question = Question::new(to, recovery, view, collection.ranges.clone());
                out.tell(Inner::Answer(question));
            } else {
                let ranges = collection.ranges.to_ring_ranges();
                out.send(to, Message::Recover { recovery, view, ranges });
            }
        }
    }

    /// A host tells its activations in the ranges that `view` lost. It may have installed that view
    /// first.
    pub(crate) fn on_told(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        view: u64,
        batch: Batch,
    ) {
        if view > facts.version() {
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
            out.send(from, Message::Credit { series, batches: number + 1 });
        }
        self.finish(facts, out);
    }

    /// The installed view is there: takes early messages, useful or not.
    pub(crate) fn take_early(&mut self, facts: &Facts, out: &mut Out) {
        for ((view, from), batch) in self.early.up_to(facts.version()) {
            self.on_told(facts, out, from, view, batch);
        }
    }

    /// A view was installed: a silo that died without telling is not waited for, and named to the
    /// new owners. A collector that is no longer Active collects nothing: the new owners see that
    /// too.
    pub(crate) fn view_changed(&mut self, facts: &Facts, out: &mut Out, ended: &[SiloAddress]) {
        let collects = facts.silos().is_active(&facts.me());
        self.collections.retain(|view, collection| {
            for silo in ended.iter().filter(|silo| collection.waiting.remove(silo).is_some()) {
                collection.missing.push(*silo);
                collection.at = facts.version();
            }
            if !collects {
                out.clear(collection.due, Timer::Collection(*view));
            }
            collects
        });
    }

    /// Passes on complete parts.
    pub(crate) fn finish(&mut self, facts: &Facts, out: &mut Out) {
        let done = |(view, collection): (&u64, &Collection)| {
            collection.waiting.is_empty().then_some(*view)
        };
        while let Some(view) = self.collections.iter().find_map(done) {
            let Some(collection) = self.collections.remove(&view) else { return };
            out.clear(collection.due, Timer::Collection(view));
            pass_on(facts, out, view, collection);
        }
    }

    /// This silo is out.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn pass_on(facts: &Facts, out: &mut Out, view: u64, collection: Collection) {
    let Collection { pieces, at, missing, entries, .. } = collection;
    let mut parts: BTreeMap<SiloAddress, Vec<_>> = BTreeMap::new();
    for (_, gainer) in &pieces {
        parts.entry(*gainer).or_default();
    }
    for (grain, held) in entries {
        let hash = grain.stable_hash();
        let piece = pieces.get(pieces.partition_point(|((_, hi), _)| *hi < hash));
        let part =
            piece.filter(|((lo, _), _)| *lo <= hash).and_then(|(_, gainer)| parts.get_mut(gainer));
        if let Some(part) = part {
            part.push((grain, held));
        }
    }
    for (gainer, entries) in parts {
        let missing = missing.clone();
        if gainer == facts.me() {
            out.tell(Inner::Collected { view, at, missing, entries });
        } else if facts.silos().is_active(&gainer) {
            out.tell(Inner::Open(gainer, Body::Collected { view, at, missing, entries }));
        }
    }
}

impl Early {
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
