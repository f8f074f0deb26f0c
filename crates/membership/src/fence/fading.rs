//! Silos that are Dead and may still run turns for a moment, because they do not know it yet
//! (invariant I8).
//!
//! A silo that takes over their grains waits for them: for the longest time that such a silo can
//! still hold a confirmation of its fence, by the evidence of its death in the row:
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
//! A silo that did not see the death, because its first view showed it, does not know what the dead
//! silo held. It takes the longest time, unless the sender of the view says how much is left.
//!
//! Each is lengthened ([`lapse`]): for clocks of different rates, and for a turn between its look
//! at the fence and its next wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloEntry, SiloStatus};

use super::risen::{Risen, Who};
use crate::bits::Bits;
use crate::delta::Delta;
use crate::facts::Facts;
use crate::lapse::lapse;
use crate::rules::alone_span;
use crate::view::View;

/// The dead who may still run turns, and who became Active lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fading {
    until: BTreeMap<SiloAddress, Instant>,
    risen: Risen,
}

impl Fading {
    /// Silos that are Dead in the view in force and may still run turns, with the times until which
    /// they may.
    pub(crate) fn all(&self) -> Vec<(SiloAddress, Instant)> {
        self.until.iter().map(|(silo, until)| (*silo, *until)).collect()
    }

    /// As [`all`](Self::all), for a silo that did not see them die, in milliseconds from now on.
    /// None where there is no fence.
    pub(crate) fn to_tell(&self, facts: &Facts) -> Option<Vec<(SiloAddress, u64)>> {
        let now = facts.now().mono;
        let left = |until: &Instant| {
            u64::try_from(until.saturating_since(now).as_nanos().div_ceil(1_000_000))
        };
        let until = self.until.iter().filter(|(_, until)| **until > now);
        let told = until.map(|(silo, until)| (*silo, left(until).unwrap_or(u64::MAX)));
        facts.has_fence().then(|| told.collect())
    }

    /// The view in force came whole, with its sender's times for the Dead in it. A silo that did
    /// not see them die assumes the worst for each; the smaller of the two times is enough. The
    /// sender's clock may run faster.
    pub(crate) fn told(&mut self, facts: &Facts, told: &[(SiloAddress, u64)]) {
        let now = facts.now().mono;
        let told: BTreeMap<SiloAddress, u64> = told.iter().copied().collect();
        self.until.retain(|silo, until| {
            let left = told.get(silo).map(|millis| lapse(Duration::from_millis(*millis)));
            *until = left.map_or(now, |left| (now + left).min(*until));
            *until > now
        });
    }

    /// The view in force followed `before`, by `delta` if one step led there.
    pub(crate) fn view_changed(
        &mut self,
        facts: &Facts,
        before: &Arc<View>,
        delta: Option<&Arc<Delta>>,
    ) {
        if !facts.has_fence() {
            return;
        }
        let (now, view) = (facts.now().mono, facts.view());
        self.until.retain(|_, until| *until > now);
        self.risen.forget(now, lapse(facts.config().fence_timeout));
        let rows = delta.map_or_else(|| view.members(), |delta| delta.rows());
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
            let until = self.fades_until(facts, row, before, delta.is_some());
            if until > now {
                self.until.insert(row.address, until);
            }
        }
        if !risen.is_empty() {
            let who = match delta {
                Some(delta) => Who::Step(delta.clone(), risen),
                None => Who::Jump(before.clone(), view.clone()),
            };
            self.risen.note(now, who);
        }
    }

    /// Time until which `row`, which the view in force shows Dead and `before` did not, may run
    /// turns. `next`: no view lies between the two.
    fn fades_until(&self, facts: &Facts, row: &SiloEntry, before: &View, next: bool) -> Instant {
        let (now, silo) = (facts.now().mono, row.address);
        let known_over = row.votes.iter().any(|vote| vote.gone || vote.voter == silo);
        let old = before.status_of_row(&silo);
        if known_over || (next && matches!(old, None | Some(SiloStatus::Joining))) {
            return now;
        }
        let config = facts.config();
        let (fence, table) = (config.fence_timeout, config.fence_table_timeout);
        let is_succeeded = row.votes.iter().any(|vote| silo.is_succeeded_by(&vote.voter));
        if is_succeeded || row.votes.is_empty() {
            // The silo may not know yet that it is no longer alone, or no silo has looked at all.
            return now + lapse(fence.max(alone_span(config)));
        }
        let was_active = next && matches!(old, Some(status) if status >= SiloStatus::Active);
        let since = self.risen.since(&silo);
        let confirmed = if was_active { since } else { Some(now) };
        let by_monitors = confirmed.map_or(now, |at| at + lapse(fence));
        by_monitors.max(now + lapse(table))
    }
}
