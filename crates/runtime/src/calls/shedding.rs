//! Load shedding: an overloaded silo refuses new calls of clients at once, with that reason. Calls
//! between silos, answers, and connecting clients are never refused: begun work is to end.
//!
//! Three things count. A full queue or full memory refuses every call. Busy processors refuse a
//! part of the calls. The part grows while they stay busy, and shrinks afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use emmer_net::warn_seldom;

use crate::metrics::threads::Counter;
use crate::options::SheddingOptions;

/// All calls, as a share.
const ALL: u64 = 1_000;
/// By how much the share grows while the processors are busy, and how fast it shrinks.
const UP: u64 = 100;
const DOWN: u64 = 50;

/// The load shedding of one silo.
#[derive(Debug)]
pub(crate) struct Shedding {
    options: SheddingOptions,
    /// The number of calls of a thousand that are refused because of the processors.
    share: AtomicU64,
    /// The memory is full.
    is_full: AtomicBool,
    /// Calls that came while a part was refused, to refuse one in several.
    came: AtomicU64,
    refused: Counter,
    /// `refused` at the last look.
    seen: AtomicU64,
    /// Calls were refused lately.
    sheds: AtomicBool,
}

impl Shedding {
    pub(crate) fn new(options: SheddingOptions) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            options,
            share: zero(),
            is_full: AtomicBool::new(false),
            came: zero(),
            refused: Counter::default(),
            seen: zero(),
            sheds: AtomicBool::new(false),
        }
    }

    /// Returns the reason to refuse a new call of a client, or None to serve it. `under_way` calls
    /// of others are under way.
    #[inline]
    pub(crate) fn refuses(&self, under_way: u64) -> Option<&'static str> {
        if self.options.enabled { self.refuses_now(under_way) } else { None }
    }

    fn refuses_now(&self, under_way: u64) -> Option<&'static str> {
        let why = if self.is_full.load(Ordering::Relaxed) {
            "its memory is nearly full (load_shedding.memory_percent)"
        } else if under_way >= self.options.queue as u64 {
            "too many calls are under way (load_shedding.queue)"
        } else if self.is_drawn() {
            "its processors are busy (load_shedding.cpu_percent)"
        } else {
            return None;
        };
        self.refused.add(1);
        Some(why)
    }

    /// Takes the share of calls that is refused, evenly.
    fn is_drawn(&self) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        if share == 0 {
            return false;
        }
        let came = self.came.fetch_add(1, Ordering::Relaxed);
        // One more is drawn whenever the share of all that came reaches the next whole one.
        (came + 1) * share / ALL > came * share / ALL
    }

    /// Looks at the use of the processors and the memory, in percent; once in a second.
    pub(crate) fn look(&self, cpu: Option<u8>, memory: Option<u8>) {
        let SheddingOptions { enabled, cpu_percent, memory_percent, .. } = self.options;
        if !enabled {
            return;
        }
        let again = |least: u8| least.saturating_sub(self.options.hysteresis_percent);
        let share = self.share.load(Ordering::Relaxed);
        let share = match cpu {
            Some(cpu) if cpu >= cpu_percent => (share + UP).min(ALL),
            Some(cpu) if cpu >= again(cpu_percent) => share,
            _ => share.saturating_sub(DOWN),
        };
        self.share.store(share, Ordering::Relaxed);
        let full = match memory {
            Some(memory) if memory >= memory_percent => true,
            Some(memory) if memory >= again(memory_percent) => self.is_full.load(Ordering::Relaxed),
            _ => false,
        };
        self.is_full.store(full, Ordering::Relaxed);
        let refused = self.refused.get();
        let new = refused - self.seen.swap(refused, Ordering::Relaxed);
        let sheds = share > 0 || full || new > 0;
        let before = self.sheds.swap(sheds, Ordering::Relaxed);
        if sheds && !before {
            let (cpu, memory) = (cpu.unwrap_or(0), memory.unwrap_or(0));
            warn_seldom!(refused = new, cpu, memory, "the silo refuses calls of clients");
        } else if before && !sheds {
            tracing::info!(refused, "the silo no longer refuses calls of clients");
        }
    }

    /// Returns true if calls are refused, or were within the last second.
    pub(crate) fn sheds(&self) -> bool {
        self.sheds.load(Ordering::Relaxed)
    }

    /// The number of calls that were refused since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shedding() -> Shedding {
        Shedding::new(SheddingOptions { enabled: true, queue: 10, ..SheddingOptions::default() })
    }

    fn refused_of_a_thousand(shedding: &Shedding) -> usize {
        (0..1_000).filter(|_| shedding.refuses(0).is_some()).count()
    }

    #[test]
    fn busy_processors_refuse_a_part_that_grows_and_shrinks() {
        let shedding = shedding();
        shedding.look(Some(94), Some(10));
        assert!(refused_of_a_thousand(&shedding) == 0 && !shedding.sheds());
        for share in [100, 200, 300] {
            shedding.look(Some(97), Some(10));
            assert_eq!(refused_of_a_thousand(&shedding), share);
        }
        // Between the two thresholds it stays.
        shedding.look(Some(92), Some(10));
        assert_eq!(refused_of_a_thousand(&shedding), 300);
        for _ in 0..5 {
            shedding.look(Some(80), Some(10));
        }
        assert_eq!(refused_of_a_thousand(&shedding), 50);
        shedding.look(Some(80), Some(10));
        shedding.look(Some(80), Some(10));
        assert!(refused_of_a_thousand(&shedding) == 0 && !shedding.sheds());
        assert_eq!(shedding.refused(), 950);
    }

    #[test]
    fn full_memory_and_a_full_queue_refuse_all_until_there_is_room() {
        let shedding = shedding();
        assert!(shedding.refuses(9).is_none() && shedding.refuses(10).unwrap().contains("queue"));
        shedding.look(None, Some(90));
        assert!(shedding.refuses(0).unwrap().contains("memory") && shedding.sheds());
        shedding.look(None, Some(86));
        assert!(shedding.refuses(0).is_some(), "not far enough below");
        shedding.look(None, Some(85));
        assert!(shedding.refuses(0).is_some());
        shedding.look(None, Some(84));
        assert!(shedding.refuses(0).is_none());
        let off = Shedding::new(SheddingOptions::default());
        off.look(Some(100), Some(100));
        assert!(off.refuses(u64::MAX).is_none() && !off.sheds());
    }
}
