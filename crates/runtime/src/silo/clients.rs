//! The metrics of clients, which a gateway records on their behalf: a client needs no right to
//! write to the store.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use emmer_store::metrics::{ClientMetrics, Shared};
use emmer_wire::{PeerKind, channel};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::SiloCore;
use crate::client::{ClientFigures, GatewayMessage};
use crate::clock::wall;
use crate::log::warn_seldom;
use crate::net::Connection;

/// The longest name of a client's host that is recorded, in characters.
const HOST_CHARS_MAX: usize = 255;
/// The pause after a write that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// The figures that clients have told and that are not recorded yet. A client tells them when it is
/// asked: so there are never more than clients.
#[derive(Default)]
pub(super) struct ToldByClients {
    asked: Mutex<HashSet<u64>>,
    waiting: Mutex<HashMap<u64, ClientMetrics>>,
    more: Notify,
}

impl SiloCore {
    /// Asks this gateway's clients for their figures once in the period of the metrics, and records
    /// what they say.
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
            *self.told.asked.lock() = clients.iter().filter_map(|client| number(client)).collect();
            for client in clients {
                // One whose connection has just ended is asked by another gateway.
                let _ = client.system(channel::GATEWAY, &question);
            }
        }
    }

    /// A client tells its figures.
    pub(super) fn client_told(&self, connection: &Connection, figures: &ClientFigures) {
        let Some(client) = number(connection).filter(|own| self.told.asked.lock().remove(own))
        else {
            return tracing::debug!("a client tells figures that it was not asked for");
        };
        let Some(told) = understood(client, figures) else {
            return warn_seldom!(client, "the figures of a client have no address");
        };
        self.told.waiting.lock().insert(client, told);
        self.told.more.notify_one();
    }

    async fn write_told(&self) {
        loop {
            self.told.more.notified().await;
            let waiting = std::mem::take(&mut *self.told.waiting.lock());
            for told in waiting.into_values() {
                if let Err(error) = self.records.metrics.write_client(&told).await {
                    warn_seldom!(%error, "the metrics of clients were not recorded");
                    // The rest is told again before long.
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

/// What a client says of itself, as a row; none without an address.
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
