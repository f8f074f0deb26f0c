//! Grains that have come from another silo, to which calls of this silo may still be on their way
//! there. Until that silo has sent them after their grain, later calls of this silo wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use emmer_core::{GrainId, SiloAddress};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The grains with calls that may follow them here.
#[derive(Default)]
pub(crate) struct Followers {
    by_grain: Mutex<BTreeMap<GrainId, Entry>>,
    /// Their number, for the many calls that are made while there are none.
    count: AtomicUsize,
}

struct Entry {
    /// The silo that the grain comes from, and its number for the move.
    from: (SiloAddress, u64),
    /// Fires when that silo has sent all calls, or is lost.
    sent: CancellationToken,
    /// Fires when no call follows the grain.
    over: CancellationToken,
}

/// A grain that calls may follow, until this is dropped.
pub(crate) struct Followed {
    all: Arc<Followers>,
    grain: GrainId,
    sent: CancellationToken,
    over: CancellationToken,
}

impl Followers {
    /// The grain comes from this silo, by the move of this number.
    pub(crate) fn expect(self: &Arc<Self>, grain: &GrainId, from: (SiloAddress, u64)) -> Followed {
        let (sent, over) = (CancellationToken::new(), CancellationToken::new());
        let mut by_grain = self.by_grain.lock();
        let entry = Entry { from, sent: sent.clone(), over: over.clone() };
        if let Some(before) = by_grain.insert(grain.clone(), entry) {
            before.sent.cancel();
            before.over.cancel();
        }
        self.count.store(by_grain.len(), Ordering::Release);
        Followed { all: self.clone(), grain: grain.clone(), sent, over }
    }

    /// Returns true if calls may follow this grain.
    #[inline]
    pub(crate) fn has(&self, grain: &GrainId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.by_grain.lock().contains_key(grain)
    }

    /// Waits until no call follows this grain.
    pub(crate) async fn over(&self, grain: &GrainId) {
        let over = self.by_grain.lock().get(grain).map(|entry| entry.over.clone());
        if let Some(over) = over {
            over.cancelled().await;
        }
    }

    /// A silo has sent all calls after a grain.
    pub(super) fn told(&self, grain: &GrainId, from: (SiloAddress, u64)) {
        let by_grain = self.by_grain.lock();
        if let Some(entry) = by_grain.get(grain).filter(|entry| entry.from == from) {
            entry.sent.cancel();
        }
    }

    /// The connection to a silo has ended, and the calls on it are lost.
    pub(super) fn lost(&self, silo: SiloAddress) {
        let by_grain = self.by_grain.lock();
        by_grain
            .values()
            .filter(|entry| entry.from.0 == silo)
            .for_each(|entry| entry.sent.cancel());
    }
}

impl Followed {
    /// Waits until the silo that the grain comes from has sent all calls.
    pub(crate) async fn sent(&self) {
        self.sent.cancelled().await;
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if self.over.is_cancelled() {
            return;
        }
        self.over.cancel();
        let mut by_grain = self.all.by_grain.lock();
        // A later move of the same grain has an entry of its own.
        if by_grain.get(&self.grain).is_some_and(|entry| entry.over.is_cancelled()) {
            by_grain.remove(&self.grain);
        }
        self.all.count.store(by_grain.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    #[test]
    fn a_grain_is_followed_until_its_old_silo_says_so_or_is_lost() {
        let silo = |n: u8| format!("10.0.0.{n}:1:1").parse::<SiloAddress>().unwrap();
        let grain = |n: u64| GrainId::new(GrainTypeId::of("g"), n);
        let followers = Arc::new(Followers::default());
        let first = followers.expect(&grain(1), (silo(1), 7));
        let second = followers.expect(&grain(2), (silo(2), 7));
        followers.told(&grain(2), (silo(2), 6));
        assert!(followers.has(&grain(1)) && followers.has(&grain(2)) && !followers.has(&grain(3)));
        followers.told(&grain(1), (silo(1), 7));
        assert!(
            first.sent.is_cancelled() && followers.has(&grain(1)) && !second.sent.is_cancelled()
        );
        followers.lost(silo(2));
        assert!(second.sent.is_cancelled());
        drop((first, second));
        assert!(!followers.has(&grain(1)) && !followers.has(&grain(2)));
        // It came, went and came again: the earlier arrival ends late.
        let before = followers.expect(&grain(1), (silo(1), 8));
        let again = followers.expect(&grain(1), (silo(3), 1));
        drop(before);
        assert!(followers.has(&grain(1)));
        drop(again);
        assert!(!followers.has(&grain(1)));
        assert_eq!(followers.count.load(Ordering::Acquire), 0);
    }
}
