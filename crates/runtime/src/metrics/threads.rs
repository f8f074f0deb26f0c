//! Counters that are nearly free: each thread adds to its own cells, and a reader adds them up.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Number of threads with cells of their own. All others share one more set.
pub(super) const OWNERS: usize = 64;
/// The cells of threads that have none of their own.
pub(super) const SHARED: usize = OWNERS;

/// Names of the owners.
static TAKEN: Mutex<[Option<Box<str>>; OWNERS]> = Mutex::new([const { None }; OWNERS]);

/// A thread's number, given back when the thread ends. The lock around `TAKEN` orders the writes of
/// a number's former owner before those of the next.
struct Number(usize);

impl Number {
    fn take() -> Self {
        let name = own_name();
        let mut taken = TAKEN.lock();
        let free = taken.iter().position(|taken| taken.is_none()).unwrap_or(SHARED);
        if let Some(slot) = taken.get_mut(free) {
            *slot = Some(name);
        }
        Self(free)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // Code that still runs while the thread ends counts with threads that have no number.
        KNOWN.set(SHARED);
        if let Some(slot) = TAKEN.lock().get_mut(self.0) {
            *slot = None;
        }
    }
}

/// The name of this thread, and its number in the operating system, as debuggers show them.
fn own_name() -> Box<str> {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a thread");
    let task = std::fs::read_link("/proc/thread-self").ok();
    let task = task.as_deref().and_then(|path| path.file_name()).and_then(|id| id.to_str());
    task.map_or_else(|| name.into(), |task| format!("{name} ({task})").into())
}

/// The name of the thread of this number.
pub(crate) fn name_of(thread: usize) -> String {
    let taken = TAKEN.lock();
    taken.get(thread).and_then(Option::as_deref).unwrap_or("a thread").to_owned()
}

/// The number is not known yet.
const UNKNOWN: usize = usize::MAX;

thread_local! {
    static NUMBER: Number = Number::take();
    // Without drop code, which would make every access look whether it still may.
    static KNOWN: Cell<usize> = const { Cell::new(UNKNOWN) };
}

/// Cells that this thread adds to.
#[inline]
pub(crate) fn current() -> usize {
    match KNOWN.get() {
        UNKNOWN => learn(),
        known => known,
    }
}

#[cold]
fn learn() -> usize {
    let number = NUMBER.try_with(|number| number.0).unwrap_or(SHARED);
    KNOWN.set(number);
    number
}

/// Adds `n` to a cell of the thread `thread` and returns the earlier value. Only its owner writes
/// an owned cell: a load and a store, without a locked instruction.
#[inline]
pub(super) fn add(cell: &AtomicU64, thread: usize, n: u64) -> u64 {
    if thread < OWNERS {
        let held = cell.load(Ordering::Relaxed);
        cell.store(held.wrapping_add(n), Ordering::Relaxed);
        held
    } else {
        cell.fetch_add(n, Ordering::Relaxed)
    }
}

/// A line of memory of its own, so that two threads' cells never meet in a cache.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// One counter with a cell for each thread.
#[derive(Debug)]
pub(crate) struct Counter(Box<[Padded]>);

impl Default for Counter {
    fn default() -> Self {
        Self((0..=SHARED).map(|_| Padded::default()).collect())
    }
}

impl Counter {
    /// Adds `n`.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        let thread = current();
        if let Some(cell) = self.0.get(thread) {
            add(&cell.0, thread, n);
        }
    }

    /// The sum of all cells.
    pub(crate) fn get(&self) -> u64 {
        self.0.iter().map(|cell| cell.0.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_whichever_cells_the_threads_get() {
        let counter = Counter::default();
        // More threads than there are numbers, and numbers that go from one thread to the next.
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for _ in 0..OWNERS + 8 {
                    scope.spawn(|| (0..1000).for_each(|_| counter.add(1)));
                }
            });
        }
        assert_eq!(counter.get(), 2 * (OWNERS as u64 + 8) * 1000);
    }

    #[test]
    fn living_threads_have_different_numbers() {
        let mine = current();
        let other = std::thread::spawn(current).join().unwrap();
        assert!(mine == SHARED || mine != other);
    }
}
