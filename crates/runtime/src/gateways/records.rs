//! The records of a client in the store, if it is allowed to write: its metrics and its statistics.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use emmer_core::Instant;
use emmer_net::clock::wall;
use emmer_net::{warn_seldom, world};
use emmer_store::metrics::{ClientMetrics, MetricsTable, Shared};
use emmer_store::statistics::{Kind, Source, StatisticsTable};
use emmer_wire::PeerKind;
use parking_lot::Mutex;

use super::core::ClientCore;
use super::message::ClientFigures;
use crate::metrics::list as m;
use crate::metrics::resources::Resources;
use crate::metrics::sample::Samples;
use crate::metrics::statistics::statistics_of;

/// Figures are told to gateways at most once in this time.
const LEAST_APART: Duration = Duration::from_secs(1);

/// The parts of a client's figures that its connections do not tell.
#[derive(Default)]
pub(super) struct Figures {
    /// Its row keeps its name when connections change.
    address: OnceLock<Arc<str>>,
    /// None before the first use, and where the system reports nothing.
    resources: OnceLock<Option<Mutex<Resources>>>,
    /// The moment in which they were told to a gateway.
    told: Mutex<Option<Instant>>,
}

impl ClientCore {
    /// Its figures, unless a gateway was told within this time.
    pub(super) fn figures_to_tell(&self, within: Duration) -> Option<ClientFigures> {
        // A gateway may ask as often as it likes.
        let within = within.max(LEAST_APART);
        let now = self.clock.mono();
        let mut told = self.figures.told.lock();
        if told.is_some_and(|at| now.saturating_since(at) < within) {
            return None;
        }
        *told = Some(now);
        let ClientMetrics { shared, gateways, .. } = self.key_figures();
        Some(ClientFigures {
            address: shared.address.to_string(),
            host: shared.host.to_string(),
            cpu_percent: shared.cpu_percent,
            memory_bytes: shared.memory_bytes,
            send_queue: shared.send_queue,
            sent: shared.sent,
            received: shared.received,
            gateways,
        })
    }

    /// Records as the options say, until the client is closed.
    pub(crate) async fn record(self: Arc<Self>) {
        let options = self.options.records.clone();
        let Some(table) = self.listing.table() else { return };
        let (store, cluster) = (table.store().clone(), self.options.cluster_id.clone());
        let metrics = async {
            let table = MetricsTable::new(store.clone(), cluster.clone());
            let mut is_made = false;
            loop {
                wait(options.metrics_period).await;
                let told = self.key_figures();
                let written = async {
                    if !is_made {
                        table.ensure().await?;
                    }
                    table.write_client(&told).await
                };
                match written.await {
                    Ok(()) => is_made = true,
                    Err(error) => warn_seldom!(%error, "the client's metrics were not recorded"),
                }
            }
        };
        let statistics = async {
            let table = StatisticsTable::new(store.clone(), cluster.clone(), Kind::Clients);
            let (mut is_made, mut before) = (false, HashMap::new());
            loop {
                wait(options.statistics_period).await;
                let told = self.key_figures();
                let source = Source {
                    at: told.shared.at,
                    address: told.shared.address.clone(),
                    name: told.client.clone(),
                    host: told.shared.host.clone(),
                };
                let (statistics, counts) = statistics_of(&self.samples().0, &before);
                let written = async {
                    if !is_made {
                        table.ensure().await?;
                    }
                    table.append(&source, &statistics).await
                };
                match written.await {
                    Ok(()) => (is_made, before) = (true, counts),
                    Err(error) => warn_seldom!(%error, "the client's statistics were not recorded"),
                }
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => {}
            () = metrics => {}
            () = statistics => {}
        }
    }

    fn key_figures(&self) -> ClientMetrics {
        let (connections, traffic) = self.traffic();
        let Figures { address, resources, .. } = &self.figures;
        let found = || if self.clock.is_virtual() { None } else { Resources::new() };
        let resources = resources.get_or_init(|| found().map(Mutex::new));
        let in_use = resources.as_ref().map(|resources| {
            let mut resources = resources.lock();
            (resources.read(self.clock.mono()), resources.memory_bytes())
        });
        let client = match self.greeting.me {
            PeerKind::Client(number) => number.to_string(),
            _ => String::new(),
        };
        if let Some(local) = connections.iter().find_map(|connection| connection.local) {
            address.get_or_init(|| local.to_string().into());
        }
        ClientMetrics {
            shared: Shared {
                // The client was never connected to a gateway that still exists.
                address: address.get().map_or_else(|| client.as_str().into(), Arc::clone),
                host: world::host_name().into(),
                cpu_percent: in_use.and_then(|(in_use, _)| in_use.cpu),
                memory_bytes: in_use.and_then(|(_, bytes)| bytes),
                send_queue: traffic.messages_waiting,
                receive_queue: 0,
                sent: traffic.messages_sent,
                received: traffic.messages_received,
                at: wall(),
            },
            client: client.into(),
            gateways: connections.len() as u64,
        }
    }

    fn samples(&self) -> Samples {
        let (connections, traffic) = self.traffic();
        let mut samples = Samples::default();
        samples.put_of(&m::CONNECTIONS, &["silo"], traffic.silos);
        samples.put_of(&m::MESSAGES, &["sent"], traffic.messages_sent);
        samples.put_of(&m::MESSAGES, &["received"], traffic.messages_received);
        samples.put_of(&m::BYTES, &["sent"], traffic.bytes_sent);
        samples.put_of(&m::BYTES, &["received"], traffic.bytes_received);
        samples.put(&m::SEND_QUEUE, traffic.bytes_waiting);
        let waiting: u64 = connections.iter().map(|c| u64::from(c.waiting())).sum();
        samples.put(&m::CALLS_IN_FLIGHT, waiting);
        samples
    }
}

/// Waits for as long; a period of zero never ends.
async fn wait(period: Duration) {
    if period.is_zero() {
        return std::future::pending().await;
    }
    tokio::time::sleep(period).await;
}
