//! The silence fence (idea 9): no turn starts without a recent confirmation that this silo is alive.
//!
//! A confirmation is the proof that at a past moment of this silo's own clock it was not dead: its stamp came back from a
//! majority of its monitors, or the table showed its view to be the latest. The fence closes `fence_timeout` after the
//! latest such moment. A silo that was frozen, or cut off, therefore cannot run turns for longer than that after its death,
//! whatever its sockets still hold: old messages carry old stamps.

use std::collections::BTreeMap;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus};

use crate::api::Effect;
use crate::membership::Membership;
use crate::monitor::ring_monitors;
use crate::timers::Timer;

/// The state of the fence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fence {
    /// The monitors of this silo, and the latest moment at which each is known to have heard it.
    heard: BTreeMap<SiloAddress, Instant>,
    /// The latest moment at which this silo is known to have been alive to the cluster.
    confirmed: Instant,
    armed: bool,
    pub(crate) closed: bool,
}

impl Membership {
    /// Whether the fence works at all: it is configured, this silo is a full member, and somebody could declare it dead.
    fn fence_applies(&self) -> bool {
        !self.config.fence_timeout.is_zero()
            && self.inserted
            && matches!(self.status, SiloStatus::Active | SiloStatus::ShuttingDown | SiloStatus::Stopping)
            && !self.fence.heard.is_empty()
    }

    pub(crate) fn fence_view_changed(&mut self, now: Now) {
        if self.config.fence_timeout.is_zero() {
            return;
        }
        let config = &self.config;
        let monitors =
            ring_monitors(&self.view, &self.me.address, config.num_probe_rings, config.num_probed_silos);
        // A new monitor has not had the time to probe: it starts as if it had heard this silo when it last was known alive.
        let start = if self.fence.armed { self.fence.confirmed } else { now.mono };
        let old = std::mem::take(&mut self.fence.heard);
        self.fence.heard = monitors.into_iter().map(|m| (m, old.get(&m).copied().unwrap_or(start))).collect();
        let applies = self.fence_applies();
        if applies && !self.fence.armed {
            self.fence.confirmed = self.fence.confirmed.max(now.mono);
        }
        self.fence.armed = applies;
        self.check_fence(now);
    }

    /// A probe arrived. It confirms if it gives back a stamp of ours and its sender has missed nothing since.
    pub(crate) fn fence_heard(&mut self, now: Now, from: &SiloAddress, misses: u32, echo: u64) {
        let echo = Instant::from_nanos(echo);
        if misses > 0 || echo > now.mono {
            return;
        }
        let Some(heard) = self.fence.heard.get_mut(from) else { return };
        *heard = (*heard).max(echo);
        let mut times: Vec<Instant> = self.fence.heard.values().copied().collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        // The moment by which a majority of the monitors had heard this silo.
        let confirmed = times[times.len() / 2];
        self.confirm(now, confirmed);
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`.
    pub(crate) fn confirm_by_table(&mut self, now: Now, sent: Instant) {
        self.confirm(now, sent);
    }

    fn confirm(&mut self, now: Now, at: Instant) {
        if at > self.fence.confirmed {
            self.fence.confirmed = at;
            self.check_fence(now);
        }
    }

    /// When the fence closes without a further confirmation; none when it does not apply.
    pub(crate) fn fence_closes_at(&self) -> Option<Instant> {
        self.fence.armed.then(|| self.fence.confirmed + self.config.fence_timeout)
    }

    /// Opens or closes the fence, and asks the table when confirmations are getting late.
    pub(crate) fn check_fence(&mut self, now: Now) {
        let Some(closes_at) = self.fence_closes_at() else {
            self.timers.clear(Timer::Fence);
            self.set_fence(false);
            return;
        };
        let timeout = self.config.fence_timeout;
        let ask_at = self.fence.confirmed + timeout * 2 / 3;
        self.set_fence(now.mono >= closes_at);
        if now.mono < ask_at {
            self.timers.set(Timer::Fence, ask_at);
            return;
        }
        self.table.want_version = true;
        let next = if now.mono < closes_at { closes_at } else { now.mono + timeout / 3 };
        self.timers.set(Timer::Fence, next);
    }

    fn set_fence(&mut self, closed: bool) {
        if self.fence.closed != closed {
            self.fence.closed = closed;
            self.counters.fences += u64::from(closed);
            self.effects.push_back(Effect::Fence(closed));
        }
    }
}
