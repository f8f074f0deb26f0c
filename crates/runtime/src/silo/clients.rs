//! The metrics of clients, which a gateway records on their behalf: a client needs no right to
//! write to the store.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use emmer_net::clock::wall;
use emmer_net::transport::Connection;
use emmer_net::warn_seldom;
use emmer_store::metrics::{ClientMetrics, Shared};
use emmer_wire::{PeerKind, channel};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::core::SiloCore;
use crate::gateways::{ClientFigures, GatewayMessage};

/// The longest name of a client's host that is recorded, in characters.
const HOST_CHARS_MAX: usize = 255;
/// The pause after a write that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// The figures of clients that are not recorded yet. A client reports when it is asked, so there
/// are at most as many as clients.
#[derive(Default)]
pub(super) struct ToldByClients {
    asked: Mutex<HashSet<u64>>,
    waiting: Mutex<HashMap<u64, ClientMetrics>>,
    more: Notify,
}

impl ToldByClients {
    /// These clients, and no others, are asked.
    fn ask(&self, clients: impl Iterator<Item = u64>) {
        *self.asked.lock() = clients.collect();
    }

    /// Takes the figures that a client tells; false if it was not asked, or has told them already.
    fn take(&self, client: u64, told: ClientMetrics) -> bool {
        let was_asked = self.asked.lock().remove(&client);
        if was_asked {
            self.waiting.lock().insert(client, told);
            self.more.notify_one();
        }
        was_asked
    }
}

impl SiloCore {
    /// Asks this gateway's clients for their figures once in the period of the metrics, and records
    /// the answers.
    pub(super) async fn record_clients(&self) {
        if !self.options.records.clients {
            return std::future::pending().await;
        }
        tokio::join!(self.ask_clients(), self.write_told());
    }

    async fn ask_clients(&self) {
        let period = self.options.records.metrics_period;
        // A client of several gateways tells one of them.
        let unless_within = u64::try_from(period.as_millis()).unwrap_or(u64::MAX) / 10 * 9;
        let question = GatewayMessage::MetricsQuery(unless_within);
        loop {
            self.next_of(period).await;
            let clients = self.clients();
            self.told.ask(clients.iter().filter_map(|client| number(client)));
            for client in clients {
                // One whose connection has just ended is asked by another gateway.
                let _ = client.system(channel::GATEWAY, &question);
            }
        }
    }

    /// A client tells its figures.
    pub(super) fn client_told(&self, connection: &Connection, figures: &ClientFigures) {
        let Some(client) = number(connection) else { return };
        let Some(told) = understood(client, figures) else {
            return warn_seldom!(client, "the figures of a client have no address");
        };
        if !self.told.take(client, told) {
            tracing::debug!(client, "a client tells figures that it was not asked for");
        }
    }

    async fn write_told(&self) {
        loop {
            self.told.more.notified().await;
            let waiting = std::mem::take(&mut *self.told.waiting.lock());
            for told in waiting.into_values() {
                if let Err(error) = self.records.metrics.write_client(&told).await {
                    warn_seldom!(%error, "the metrics of clients were not recorded");
                    // The rest is sent again before long.
                    self.host.wheel.sleep(AGAIN).await;
                    break;
                }
            }
        }
    }
}

fn number(connection: &Connection) -> Option<u64> {
    match connection.peer {
        PeerKind::Client(number) => Some(number),
        _ => None,
    }
}

/// The figures of a client as a row; none without an address.
fn understood(client: u64, figures: &ClientFigures) -> Option<ClientMetrics> {
    let address: SocketAddr = figures.address.parse().ok()?;
    let host = figures.host.chars().filter(|c| !c.is_control()).take(HOST_CHARS_MAX);
    Some(ClientMetrics {
        shared: Shared {
            address: address.to_string().into(),
            host: Arc::from(host.collect::<String>()),
            cpu_percent: figures.cpu_percent.filter(|percent| *percent <= 100),
            memory_bytes: figures.memory_bytes,
            send_queue: figures.send_queue,
            receive_queue: 0,
            sent: figures.sent,
            received: figures.received,
            at: wall(),
        },
        client: client.to_string().into(),
        gateways: figures.gateways,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_not_asked_is_not_recorded() {
        let told = ToldByClients::default();
        let take = |client| told.take(client, ClientMetrics::default());
        assert!(!take(1));
        told.ask([1, 2].into_iter());
        assert_eq!([take(1), take(1), take(3), take(2)], [true, false, false, true]);
        told.ask([2].into_iter());
        assert_eq!([take(1), take(2)], [false, true]);
        assert_eq!(told.waiting.lock().len(), 2, "one row for each client, however often it tells");
    }

    #[test]
    fn a_client_cannot_write_what_it_likes() {
        let told = |address: &str, host: &str| ClientFigures {
            address: address.to_owned(),
            host: host.to_owned(),
            cpu_percent: Some(250),
            ..ClientFigures::default()
        };
        assert_eq!(understood(7, &told("nowhere", "h")), None);
        let host = format!("a\n\0{}", "b".repeat(999));
        let row = understood(7, &told("10.0.0.1:70", &host)).unwrap();
        assert_eq!((&*row.client, &*row.shared.address), ("7", "10.0.0.1:70"));
        assert_eq!(&*row.shared.host, format!("a{}", "b".repeat(254)));
        assert_eq!(row.shared.cpu_percent, None);
    }
}
