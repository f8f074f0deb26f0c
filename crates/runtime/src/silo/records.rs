//! The records of a silo in the store: its metrics, its statistics, the history of the membership.
//! Nothing waits for the store, and what waits for it is bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{ClusterId, Instant, SiloAddress, Timestamp};
use emmer_net::clock::wall;
use emmer_net::warn_seldom;
use emmer_store::history::HistoryTable;
use emmer_store::metrics::{MetricsTable, Shared, SiloMetrics};
use emmer_store::statistics::{Kind, Source, StatisticsTable};
use emmer_store::{StoreError, SystemStore};

use super::core::SiloCore;
use crate::metrics::statistics::statistics_of;
use crate::options::RecordOptions;

/// Changes of the membership are written together when this time has passed since the first.
const HISTORY_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a write that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// Number of tries of a report before the next one takes its place.
const TRIES: u32 = 3;
/// The time between two clean-ups, each by one silo of the cluster.
const CLEAN_EVERY: Duration = Duration::from_secs(3_600);
/// The metrics of silos and clients that did not write for this long are deleted.
const METRICS_KEPT: Duration = Duration::from_secs(86_400);
/// An ending silo tries for this long to record the changes that it made last.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The tables that a silo writes to.
pub(super) struct Records {
    pub(super) metrics: MetricsTable,
    statistics: StatisticsTable,
    client_statistics: StatisticsTable,
    pub(super) history: HistoryTable,
}

impl Records {
    pub(super) fn new(store: &Arc<dyn SystemStore>, cluster: &ClusterId) -> Self {
        let statistics = |kind| StatisticsTable::new(store.clone(), cluster.clone(), kind);
        Self {
            metrics: MetricsTable::new(store.clone(), cluster.clone()),
            statistics: statistics(Kind::Silos),
            client_statistics: statistics(Kind::Clients),
            history: HistoryTable::new(store.clone(), cluster.clone()),
        }
    }

    /// Makes the tables that the options ask for.
    pub(super) async fn ensure(&self, options: &RecordOptions) -> Result<(), StoreError> {
        if !options.metrics_period.is_zero() {
            self.metrics.ensure().await?;
        }
        if !options.statistics_period.is_zero() {
            self.statistics.ensure().await?;
            self.client_statistics.ensure().await?;
        }
        if !options.history_retention.is_zero() {
            self.history.ensure().await?;
        }
        Ok(())
    }
}

impl SiloCore {
    /// Records until it is dropped.
    pub(super) async fn record(&self) {
        tokio::join!(
            self.record_metrics(),
            self.record_statistics(),
            self.record_history(),
            self.record_clients(),
            self.clean_records()
        );
    }

    /// Waits for the silo's next moment of those that are `period` apart. Silos have theirs at
    /// different times, spread by their addresses; 0 is never. Moments that have passed meanwhile
    /// are left out.
    pub(super) async fn next_of(&self, period: Duration) {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        if nanos == 0 {
            return std::future::pending().await;
        }
        let now = self.host.clock.mono().as_nanos();
        let next = next_moment(now, offset(self.address, nanos), nanos);
        self.host.wheel.sleep_until(Some(Instant::from_nanos(next))).await;
    }

    async fn record_metrics(&self) {
        let period = self.options.records.metrics_period;
        loop {
            self.next_of(period).await;
            if let Err(error) = self.records.metrics.write_silo(&self.key_figures()).await {
                warn_seldom!(%error, "the silo's metrics were not recorded");
            }
        }
    }

    fn host_name(&self) -> Arc<str> {
        let view = self.cluster.view();
        view.get(&self.address).map_or_else(|| "".into(), |entry| entry.host_name.clone())
    }

    /// The silo's row of metrics as it is now.
    fn key_figures(&self) -> SiloMetrics {
        let (told, traffic) = (self.statistics(), self.pool.traffic());
        let entry = self.cluster.view().get(&self.address).cloned();
        let gateway = entry.filter(|entry| entry.proxy_port > 0);
        let gateway = gateway.map(|entry| format!("{}:{}", self.address.ip(), entry.proxy_port));
        SiloMetrics {
            shared: Shared {
                address: self.address.to_string().into(),
                host: self.host_name(),
                cpu_percent: told.cpu_percent,
                memory_bytes: self.memory_bytes(),
                send_queue: traffic.messages_waiting,
                receive_queue: told.turns_waiting,
                sent: traffic.messages_sent,
                received: traffic.messages_received,
                at: wall(),
            },
            name: self.name.clone(),
            gateway: gateway.map(Into::into),
            activations: told.activations,
            recently_used: told.activations_busy,
            request_queue: told.calls_serving,
            load_shedding: self.calls.shedding.sheds(),
            clients: traffic.clients,
        }
    }

    async fn record_statistics(&self) {
        let period = self.options.records.statistics_period;
        let mut told = HashMap::new();
        loop {
            self.next_of(period).await;
            let now = wall();
            let (statistics, counts) = statistics_of(&self.metrics(), &told);
            let source = Source {
                at: now,
                address: self.address.to_string().into(),
                name: self.name.clone(),
                host: self.host_name(),
            };
            for attempt in 1..=TRIES {
                match self.records.statistics.append(&source, &statistics).await {
                    Ok(()) => {
                        told = counts;
                        break;
                    }
                    Err(error) => warn_seldom!(%error, "the silo's statistics were not recorded"),
                }
                if attempt < TRIES {
                    self.host.wheel.sleep(AGAIN).await;
                }
            }
        }
    }

    async fn record_history(&self) {
        if self.options.records.history_retention.is_zero() {
            return std::future::pending().await;
        }
        let mut is_listed = false;
        loop {
            self.cluster.history.more().await;
            self.host.wheel.sleep(HISTORY_PAUSE).await;
            while !is_listed {
                is_listed = self.enlist().await;
                if !is_listed {
                    self.host.wheel.sleep(AGAIN).await;
                }
            }
            while !self.write_history().await {
                self.host.wheel.sleep(AGAIN).await;
            }
        }
    }

    /// Adds the cluster to the list of those in the store; false if the store did not take it.
    async fn enlist(&self) -> bool {
        let listed = self.records.history.enlist(wall()).await;
        listed.inspect_err(|error| warn_seldom!(%error, "the cluster was not listed")).is_ok()
    }

    /// Records the waiting changes; false if the store did not take them.
    async fn write_history(&self) -> bool {
        let waiting = self.cluster.history.waiting();
        match self.records.history.append(&waiting).await {
            Ok(()) => {
                self.cluster.history.recorded(&waiting);
                true
            }
            Err(error) => {
                warn_seldom!(%error, "changes of the membership were not recorded");
                false
            }
        }
    }

    /// Records the changes that an ending silo made last, its own end among them.
    pub(super) async fn record_the_end(&self) {
        if !self.options.records.history_retention.is_zero() {
            let _ = tokio::time::timeout(LAST_WRITE, self.write_history()).await;
        }
    }

    /// Deletes old records. The first of the Active silos does it.
    async fn clean_records(&self) {
        loop {
            self.next_of(CLEAN_EVERY).await;
            if self.cluster.view().active().next().map(|silo| silo.address) != Some(self.address) {
                continue;
            }
            if let Err(error) = self.clean_now(wall()).await {
                warn_seldom!(%error, "old records were not deleted");
            }
        }
    }

    async fn clean_now(&self, now: Timestamp) -> Result<(), StoreError> {
        let (options, records) = (&self.options.records, &self.records);
        if !options.metrics_period.is_zero() {
            records.metrics.clean(now - METRICS_KEPT).await?;
        }
        if !options.statistics_period.is_zero() && !options.statistics_retention.is_zero() {
            let cutoff = now - options.statistics_retention;
            records.statistics.clean(cutoff).await?;
            records.client_statistics.clean(cutoff).await?;
        }
        if !options.history_retention.is_zero() {
            records.history.clean(now - options.history_retention).await?;
        }
        Ok(())
    }
}

/// The moment of a silo in its period.
fn offset(silo: SiloAddress, period: u64) -> u64 {
    silo.stable_hash(period) % period
}

/// The first moment after `now` that is `offset` and a whole number of periods after the start.
const fn next_moment(now: u64, offset: u64, period: u64) -> u64 {
    let passed = (now + period - offset) / period;
    offset.saturating_add(passed.saturating_mul(period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_silos_write_in_different_seconds() {
        const SECOND: u64 = 1_000_000_000;
        for period in [30, 300] {
            let mut by_second = vec![0; period];
            for silo in 0..1_000u64 {
                let host = silo % 250;
                let text = format!("10.0.{host}.1:{}:{}", 11_111 + silo / 250, 7_000 + silo);
                let at = offset(text.parse().unwrap(), period as u64 * SECOND) / SECOND;
                by_second[at as usize] += 1;
            }
            let (mean, most) = (1_000 / period, by_second.iter().max().unwrap());
            assert!(*most <= 2 * mean + 10, "{most} in one second, {mean} on average");
        }
    }

    #[test]
    fn moments_that_have_passed_are_left_out() {
        let next = |now| next_moment(now, 3, 10);
        assert_eq!([0, 2, 3, 4, 12, 13].map(next), [3, 3, 13, 13, 13, 23]);
        assert_eq!(next(1_000), 1_003);
    }
}
