//! The ends of streams in one process, each found by the number of its stream.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use emmer_core::{Instant, SiloAddress};
use emmer_net::clock::Clock;
use emmer_net::world::{self, Spawner};
use emmer_streams::{Config, StreamId, ToReader, ToWriter, Window};
use parking_lot::Mutex;

use super::inbox::Inbox;
use super::links::Links;
use super::post::{Outbox, Part, Place, Way};
use super::read_end::ReadEnd;
use super::write_end::WriteEnd;
use crate::wheel::{Due, Place as WheelPlace, Wheel};

/// Maximum ends whose time has come that are looked at before messages go out.
const BATCH: usize = 1_024;

/// The windows of all streams that one process reads have this many bytes together, unless they are
/// many: then each has the least window.
const WINDOWS_BYTES: u32 = 4 << 20;
const WINDOW_BYTES_MIN: u32 = 2 << 10;
const WINDOW_ITEMS_MIN: u32 = 16;

/// A stream of this process. None: this process has chosen its number. Else the other one has.
pub(crate) type Key = (Option<Place>, StreamId);

/// The ends of streams in one process.
pub(crate) struct Hub {
    pub(crate) clock: Clock,
    pub(crate) config: Config,
    /// The most streams of one other process.
    streams_max: usize,
    wheel: Arc<Wheel>,
    me: Weak<Self>,
    way: OnceLock<Weak<dyn Way>>,
    spawner: Spawner,
    readers: Mutex<BTreeMap<Key, Arc<ReadEnd>>>,
    writers: Mutex<BTreeMap<Key, Arc<WriteEnd>>>,
    /// The number of streams of each process that has chosen their numbers.
    of: Mutex<HashMap<Place, usize>>,
    due: Mutex<DueOrder>,
    /// Sinks of streams within this process.
    locals: Mutex<BTreeMap<u64, Weak<dyn Local>>>,
    /// The silo leaves: no stream begins.
    is_leaving: AtomicBool,
    /// The links to processes with observers of this process's grains.
    pub(crate) links: Links,
    /// The observers of this process.
    pub(crate) inbox: Inbox,
    counts: Counts,
}

/// Counts of a silo's streams to and from other processes, since it began.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) values_written: AtomicU64,
    pub(crate) values_read: AtomicU64,
    /// Streams that were read here and ended before their writer had finished.
    pub(crate) broken: AtomicU64,
}

/// The sink of a stream within this process.
pub(crate) trait Local: Send + Sync {
    /// Breaks the stream off.
    fn leave(&self);
}

/// A sink in the list of the hub, until this is dropped.
pub(crate) struct Listed {
    hub: Arc<Hub>,
    number: u64,
}

impl Listed {
    /// The clock of the process.
    pub(crate) fn clock(&self) -> &Clock {
        &self.hub.clock
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.hub.locals.lock().remove(&self.number);
    }
}

/// One end, as the order of due times sees it.
pub(crate) trait End: Send + Sync {
    /// The time has come at which it wanted to be looked at.
    fn fire(self: Arc<Self>, hub: &Hub, now: Instant, out: &mut Outbox);
}

#[derive(Default)]
struct DueOrder {
    ends: BTreeMap<(Instant, u64), Arc<dyn End>>,
    last: u64,
    /// The entry of the hub in the wheel.
    armed: Option<(Instant, WheelPlace)>,
}

/// The place of an end in the order of due times.
pub(crate) type Armed = Option<(Instant, u64)>;

impl Hub {
    pub(crate) fn new(clock: Clock, wheel: Arc<Wheel>, streams_max: usize) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            clock,
            config: Config::default(),
            streams_max,
            wheel,
            way: OnceLock::new(),
            spawner: Spawner::current(),
            readers: Mutex::default(),
            writers: Mutex::default(),
            of: Mutex::default(),
            due: Mutex::default(),
            locals: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            links: Links::default(),
            inbox: Inbox::default(),
            counts: Counts::default(),
        })
    }

    /// Sets the way to other processes, once.
    pub(crate) fn goes_by(&self, way: Weak<dyn Way>) {
        let _ = self.way.set(way);
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.mono()
    }

    /// Sends messages. Not under a lock of this module.
    pub(crate) fn post(&self, out: Outbox) {
        if out.is_empty() {
            return;
        }
        if let Some(way) = self.way.get().and_then(Weak::upgrade) {
            out.post(&*way);
        }
    }

    /// Returns true if messages have to wait.
    pub(crate) fn is_full(&self, from: Place, to: Place) -> bool {
        self.way.get().and_then(Weak::upgrade).is_some_and(|way| way.is_full(from, to))
    }

    /// The settings of one more stream that is read here. Many streams have smaller windows.
    pub(crate) fn config_of_reader(&self) -> Config {
        let others = self.readers.lock().len();
        let share = |all: u32, least: u32, most: u32| {
            let share = all / u32::try_from(others + 1).unwrap_or(u32::MAX);
            share.clamp(least, most)
        };
        let most = self.config.window;
        let bytes = share(WINDOWS_BYTES, WINDOW_BYTES_MIN, most.bytes);
        let items = share(most.items * (WINDOWS_BYTES / most.bytes), WINDOW_ITEMS_MIN, most.items);
        Config { window: Window { items, bytes }, ..self.config }
    }

    pub(crate) fn add_reader(&self, key: Key, end: Arc<ReadEnd>) {
        let before = self.readers.lock().insert(key, end);
        self.count(key, before.is_none());
    }

    /// Returns true if the reader was there.
    pub(crate) fn remove_reader(&self, key: Key) -> bool {
        let removed = self.readers.lock().remove(&key);
        self.uncount(key, removed.is_some());
        removed.is_some()
    }

    /// Returns true if a process may have one stream more.
    pub(crate) fn has_room_for(&self, place: Place) -> bool {
        self.of.lock().get(&place).is_none_or(|open| *open < self.streams_max)
    }

    pub(crate) fn add_writer(&self, key: Key, end: Arc<WriteEnd>) {
        let before = self.writers.lock().insert(key, end);
        self.count(key, before.is_none());
    }

    pub(crate) fn remove_writer(&self, key: Key) {
        let removed = self.writers.lock().remove(&key);
        self.uncount(key, removed.is_some());
    }

    /// Returns true if a stream that begins breaks off at once: the silo leaves.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::SeqCst)
    }

    fn count(&self, (of, _): Key, is_new: bool) {
        if let Some(place) = of.filter(|_| is_new) {
            *self.of.lock().entry(place).or_default() += 1;
        }
    }

    fn uncount(&self, (of, _): Key, was_there: bool) {
        let Some(place) = of.filter(|_| was_there) else { return };
        let mut open = self.of.lock();
        if let Some(count) = open.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                open.remove(&place);
            }
        }
    }

    /// Starts a task that sends values.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner.spawn(task);
    }

    /// The numbers of ends that are read and written here, whose other end is elsewhere.
    pub(crate) fn open(&self) -> (usize, usize) {
        (self.readers.lock().len(), self.writers.lock().len())
    }

    fn reader(&self, from: Place, stream: StreamId) -> Option<Arc<ReadEnd>> {
        let readers = self.readers.lock();
        readers.get(&(None, stream)).or_else(|| readers.get(&(Some(from), stream))).cloned()
    }

    fn writer(&self, from: Place, stream: StreamId) -> Option<Arc<WriteEnd>> {
        let writers = self.writers.lock();
        writers.get(&(Some(from), stream)).or_else(|| writers.get(&(None, stream))).cloned()
    }

    /// Messages of another process have arrived at `here`.
    pub(crate) fn receive(&self, from: Place, here: Place, parts: Vec<Part>) {
        let now = self.now();
        let mut out = Outbox::default();
        for part in parts {
            match part {
                Part::Link(stream) => Inbox::begin(self, &self.me, from, here, stream),
                Part::Forget(set, id) => Links::forget(self, from, set, id),
                Part::ToReader(message) => match self.reader(from, message.stream()) {
                    Some(end) => end.handle(self, now, from, message, &mut out),
                    // An answer that is left out for a full connection is asked for again.
                    None if matches!(message, ToReader::Values { is_last: false, .. })
                        && !self.is_full(here, from) =>
                    {
                        let stop = ToWriter::Stop { stream: message.stream() };
                        out.put(here, from, Part::ToWriter(stop));
                    }
                    None => {}
                },
                Part::ToWriter(message) => match self.writer(from, message.stream()) {
                    Some(end) => end.handle(self, now, from, message, &mut out),
                    None if matches!(message, ToWriter::Check { .. })
                        && !self.is_full(here, from) =>
                    {
                        let gone = ToReader::Gone { stream: message.stream() };
                        out.put(here, from, Part::ToReader(gone));
                    }
                    None => {}
                },
            }
        }
        self.post(out);
    }

    fn ends(&self) -> (Vec<Arc<ReadEnd>>, Vec<Arc<WriteEnd>>) {
        let readers = self.readers.lock().values().cloned().collect();
        let writers = self.writers.lock().values().cloned().collect();
        (readers, writers)
    }

    /// The processes for which `is_lost` is true have ended, or cannot be reached. The first place
    /// is that of the other end, the second one that of this end.
    pub(crate) fn lost(&self, is_lost: impl Fn(Option<Place>, Place) -> bool) {
        let (readers, writers) = self.ends();
        readers.iter().for_each(|end| end.process_lost(self, &is_lost));
        writers.iter().for_each(|end| end.process_lost(self, &is_lost));
    }

    /// A connection to a silo has ended, perhaps with messages.
    pub(crate) fn connection_lost(&self, silo: SiloAddress) {
        let now = self.now();
        let mut out = Outbox::default();
        for end in self.ends().0 {
            end.connection_lost(self, now, silo, &mut out);
        }
        self.post(out);
    }

    /// The silo leaves: every stream that is written here breaks off.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::SeqCst);
        self.ends().1.iter().for_each(|end| end.close(self, false));
        let locals: Vec<_> = self.locals.lock().values().filter_map(Weak::upgrade).collect();
        locals.iter().for_each(|sink| sink.leave());
    }

    /// Puts the sink of a stream within this process into the list of those that break off when
    /// the silo leaves.
    pub(crate) fn list(self: &Arc<Self>, sink: Weak<dyn Local>) -> Listed {
        let number = world::random_bits();
        let its = sink.clone();
        self.locals.lock().insert(number, sink);
        // After it is in the list: a silo that leaves now finds it there.
        if self.is_leaving.load(Ordering::SeqCst)
            && let Some(sink) = its.upgrade()
        {
            sink.leave();
        }
        Listed { hub: self.clone(), number }
    }

    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Puts an end into the order of due times at `next`, unless it is there for a sooner time.
    pub(crate) fn arm(
        &self,
        armed: &mut Armed,
        next: Option<Instant>,
        end: impl FnOnce() -> Arc<dyn End>,
    ) {
        let Some(next) = next else { return self.disarm(armed) };
        if armed.is_some_and(|(at, _)| at <= next) {
            return;
        }
        let mut due = self.due.lock();
        if let Some(before) = armed.take() {
            due.ends.remove(&before);
        }
        due.last += 1;
        let place = (next, due.last);
        due.ends.insert(place, end());
        *armed = Some(place);
        self.rouse(&mut due, next);
    }

    pub(crate) fn disarm(&self, armed: &mut Armed) {
        if let Some(before) = armed.take() {
            let removed = self.due.lock().ends.remove(&before);
            drop(removed);
        }
    }

    /// Makes the wheel look at the hub at `at`.
    fn rouse(&self, due: &mut DueOrder, at: Instant) {
        if due.armed.as_ref().is_some_and(|(armed, _)| *armed <= at) {
            return;
        }
        if let Some((_, place)) = due.armed.take() {
            self.wheel.take(place);
        }
        let place = self.wheel.put(at, Arc::new(Look(self.me.clone())));
        due.armed = Some((at, place));
    }

    /// Looks at the ends whose time has come.
    fn look(&self) {
        let now = self.now();
        let mut ends = Vec::new();
        let mut due = self.due.lock();
        due.armed = None;
        while ends.len() < BATCH
            && let Some(first) = due.ends.first_entry().filter(|entry| entry.key().0 <= now)
        {
            ends.push(first.remove());
        }
        let mut out = Outbox::default();
        drop(due);
        for end in ends {
            end.fire(self, now, &mut out);
        }
        let mut due = self.due.lock();
        if let Some(next) = due.ends.first_key_value().map(|((at, _), _)| *at) {
            self.rouse(&mut due, next);
        }
        drop(due);
        self.post(out);
    }
}

/// The hub's time has come.
struct Look(Weak<Hub>);

impl Due for Look {
    fn fire(self: Arc<Self>) {
        if let Some(hub) = self.0.upgrade() {
            hub.look();
        }
    }
}
