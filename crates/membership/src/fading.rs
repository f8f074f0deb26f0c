//! Silos that are Dead and may still run turns for a moment, because they do not know it yet
//! (invariant I8).
//!
//! Whoever takes over their grains waits for them. How long is the longest time for which such a
//! silo can still hold a confirmation of its fence, by the evidence of its death that the row
//! bears:
//!
//! | the row says | how long |
//! |---|---|
//! | it left by itself | not at all: a silo closes its fence before it asks for its own death |
//! | its process is gone (a vote marked `gone`) | not at all |
//! | it was Joining | not at all: it hosted nothing |
//! | it was voted dead | `fence_table_timeout`; if it had just become Active, `fence_timeout` from then on |
//! | a successor took its `ip:port` | as long as the fence of a silo that is alone may stay open |
//! | nothing: an operator declared it dead | the same |
//!
//! A silo that did not see the death, because it got a view that shows it already, does not know
//! what the dead one held. It takes the longest time, unless the view came from a silo that tells
//! it how much is left.
//!
//! Each of them is lengthened by [`CLOCK_RATE_PERCENT`](crate::CLOCK_RATE_PERCENT), for clocks that run at different rates,
//! and by [`POLL_GRACE`](crate::POLL_GRACE), for a turn that is between its look at the fence and its next wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus};

use crate::bits::Bits;
use crate::delta::Delta;
use crate::lapse::lapse;
use crate::membership::Membership;
use crate::risen::{Risen, Who};
use crate::view::View;

/// The dead who may still run turns, and who became Active lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fading {
    until: BTreeMap<SiloAddress, Instant>,
    risen: Risen,
}

impl Membership {
    /// Which silos are Dead in the view in force and may still run turns, and until when by this
    /// silo's clock. Nobody may be granted one of their grains before. None where there is no
    /// fence.
    pub fn fading(&self) -> Vec<(SiloAddress, Instant)> {
        self.fading.until.iter().map(|(silo, until)| (*silo, *until)).collect()
    }

    /// The same for a silo that did not see them die, in milliseconds from now on. None where there
    /// is no fence.
    pub(crate) fn fading_to_tell(&self, now: Now) -> Option<Vec<(SiloAddress, u64)>> {
        let left = |until: &Instant| {
            u64::try_from(until.saturating_since(now.mono).as_nanos().div_ceil(1_000_000))
        };
        let until = self.fading.until.iter().filter(|(_, until)| **until > now.mono);
        let told = until.map(|(silo, until)| (*silo, left(until).unwrap_or(u64::MAX)));
        (!self.facts.config().fence_timeout.is_zero()).then(|| told.collect())
    }

    /// The view in force came whole, from a silo that says so much of those that are Dead in it. A
    /// silo that was not there when they died supposes the worst of each; the smaller of the two
    /// times is enough. The sender's clock may run faster.
    pub(crate) fn fading_told(&mut self, now: Now, told: &[(SiloAddress, u64)]) {
        let told: BTreeMap<SiloAddress, u64> = told.iter().copied().collect();
        self.fading.until.retain(|silo, until| {
            let left = told.get(silo).map(|millis| lapse(Duration::from_millis(*millis)));
            *until = left.map_or(now.mono, |left| (now.mono + left).min(*until));
            *until > now.mono
        });
    }

    /// The view in force followed `before`, by `delta` if one step led there.
    pub(crate) fn fading_view_changed(
        &mut self,
        now: Now,
        before: &Arc<View>,
        delta: Option<&Arc<Delta>>,
    ) {
        if self.facts.config().fence_timeout.is_zero() {
            return;
        }
        let view = self.facts.view().clone();
        self.fading.until.retain(|_, until| *until > now.mono);
        let recent = lapse(self.facts.config().fence_timeout);
        self.fading.risen.forget(now.mono, recent);
        let rows = delta.map_or_else(|| view.members(), |delta| &delta.rows);
        let mut risen = Bits::new(rows.len());
        for (at, row) in rows.iter().enumerate() {
            let status = row.status;
            if !matches!(status, SiloStatus::Active | SiloStatus::Dead)
                || before.status_of_row(&row.address) == Some(status)
            {
                continue;
            }
            if status == SiloStatus::Active {
                risen.insert(at);
                continue;
            }
            let until = self.fades_until(now, row, before, delta.is_some());
            if until > now.mono {
                self.fading.until.insert(row.address, until);
            }
        }
        if !risen.is_empty() {
            let who = match delta {
                Some(delta) => Who::Step(delta.clone(), risen),
                None => Who::Jump(before.clone(), view),
            };
            self.fading.risen.note(now.mono, who);
        }
    }

    /// Until when `row`, which the view in force shows Dead and `before` did not, may run turns.
    /// `next`: no view lies between the two.
    fn fades_until(&self, now: Now, row: &SiloEntry, before: &View, next: bool) -> Instant {
        let silo = row.address;
        let known_over = row.votes.iter().any(|vote| vote.gone || vote.voter == silo);
        let old = before.status_of_row(&silo);
        if known_over || (next && matches!(old, None | Some(SiloStatus::Joining))) {
            return now.mono;
        }
        let (fence, table) =
            (self.facts.config().fence_timeout, self.facts.config().fence_table_timeout);
        let is_succeeded = row.votes.iter().any(|vote| silo.is_succeeded_by(&vote.voter));
        if is_succeeded || row.votes.is_empty() {
            // It may not know yet that it is alone no longer, or no silo has looked at all.
            return now.mono + lapse(fence.max(self.alone_span()));
        }
        let was_active = next && matches!(old, Some(status) if status >= SiloStatus::Active);
        let since = self.fading.risen.since(&silo);
        let confirmed = if was_active { since } else { Some(now.mono) };
        let by_monitors = confirmed.map_or(now.mono, |at| at + lapse(fence));
        by_monitors.max(now.mono + lapse(table))
    }
}
