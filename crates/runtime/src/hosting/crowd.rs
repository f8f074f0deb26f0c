//! The end of idle activations before there are too many: the least recently used first, those
//! without state before others, in small steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::catalog::Catalog;
use super::class::Class;
use super::{Activation, Host};
use crate::turn::DeactivationReason;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The part of a silo's limit of activations, in percent, from which on idle ones end.
const CROWDED_PERCENT: usize = 90;

/// The part to which they end.
const AT_EASE_PERCENT: usize = 85;

/// A silo with a lower limit fills up.
const SMALL: usize = 1_000;

/// The part of all activations that end in one look because memory runs out.
const MEMORY_STEP: usize = 50;

/// Fewest activations that such a look ends.
const MEMORY_STEP_MIN: usize = 64;

/// Most activations of a class or silo that end in one look.
const STEP_MAX: usize = 20_000;

/// A grain that was called within this time stays, however short memory is.
const MEMORY_IDLE_MIN: Duration = Duration::from_secs(60);

/// Place of an activation in the order in which they end, the last first: true for one without
/// state, the time for which it is idle, its number.
type Place = (bool, Duration, u64);

/// The activations that shall end, at most `most` of them.
struct Wanted {
    most: usize,
    idle_min: Duration,
    found: BTreeMap<Place, Arc<Activation>>,
}

impl Wanted {
    fn new(most: usize, idle_min: Duration) -> Self {
        Self { most: most.min(STEP_MAX), idle_min, found: BTreeMap::new() }
    }

    fn offer(&mut self, activation: &Arc<Activation>, idle: Duration) {
        if self.most == 0 || idle < self.idle_min {
            return;
        }
        let place = (!activation.class.info.has_state, idle, activation.number);
        self.found.insert(place, activation.clone());
        if self.found.len() > self.most {
            self.found.pop_first();
        }
    }

    /// Ends them. Returns their number.
    fn end(self) -> usize {
        self.found.values().for_each(|found| found.deactivate(DeactivationReason::TooMany));
        self.found.len()
    }
}

impl Host {
    /// Ends idle activations where there are too many; never ends. `memory` is the share of memory
    /// in use, in percent, where it is measured.
    pub(crate) async fn relieve(&self, memory: impl Fn() -> Option<u8>) {
        loop {
            self.wheel.sleep(LOOK_EVERY).await;
            self.departures.tick(self.clock.now());
            self.look_at_crowd(memory()).await;
        }
    }

    async fn look_at_crowd(&self, memory: Option<u8>) {
        let (all, max) = (self.catalog.len(), self.limits.activations_max);
        let crowded = all >= max / 100 * CROWDED_PERCENT && max >= SMALL;
        let over = if crowded { all.saturating_sub(max / 100 * AT_EASE_PERCENT) } else { 0 };
        let is_short = self.memory_max > 0 && memory.is_some_and(|used| used >= self.memory_max);
        let step = if is_short { (all / MEMORY_STEP).max(MEMORY_STEP_MIN) } else { 0 };
        let mut silo = Wanted::new(over, Duration::ZERO);
        let mut short = Wanted::new(step, MEMORY_IDLE_MIN);
        let mut classes: Vec<(&Arc<Class>, Wanted)> = self
            .classes
            .values()
            .filter_map(|class| {
                let live = usize::try_from(class.lives().live()).unwrap_or(usize::MAX);
                let over = live.saturating_sub(class.info.active_max?);
                (over > 0).then(|| (class, Wanted::new(over, Duration::ZERO)))
            })
            .collect();
        if over == 0 && step == 0 && classes.is_empty() {
            self.shortage.set_hard(false);
            return;
        }
        for shard in 0..Catalog::shard_count() {
            let now = self.clock.now();
            for activation in self.catalog.shard_activations(shard) {
                if !activation.is_registered() || !activation.may_end(now) {
                    continue;
                }
                let idle = activation.idle_for(now);
                silo.offer(&activation, idle);
                short.offer(&activation, idle);
                let own =
                    classes.iter_mut().find(|(class, _)| Arc::ptr_eq(class, &activation.class));
                if let Some((_, wanted)) = own {
                    wanted.offer(&activation, idle);
                }
            }
            // A million of them are never looked at in one go.
            tokio::task::yield_now().await;
        }
        let ended: usize = classes.into_iter().map(|(_, wanted)| wanted.end()).sum();
        let relieved = short.end();
        let ended = ended + silo.end() + relieved;
        self.shortage.set_hard(is_short && relieved == 0);
        if ended > 0 {
            tracing::info!(me = %self.address, ended, activations = all, "idle grains end: there \
                are too many");
        }
    }
}
