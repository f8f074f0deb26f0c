//! Messages between a gateway and its clients, apart from calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use emmer_core::SiloAddress;
use emmer_net::transport::Connection;
use emmer_net::warn_seldom;
use emmer_wire::{PeerKind, channel, codec};

use super::core::SiloCore;
use crate::gateways::GatewayMessage;

/// Time between two counts of the calls that still run for others while stopping.
const DRAIN_CHECK: Duration = Duration::from_millis(1);

/// Peers have this long to read that no further calls of theirs are served. One that does not
/// answer is frozen or gone.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// A client hears of at most this many gateways.
const GATEWAYS_MAX: usize = 1_024;

impl SiloCore {
    /// A message from a client.
    pub(super) fn gateway_message(&self, connection: &Connection, payload: &Bytes) {
        match codec::decode(payload) {
            Ok(GatewayMessage::StatisticsQuery) => {
                let answer = GatewayMessage::Statistics(self.statistics());
                if let Err(e) = connection.system(channel::GATEWAY, &answer) {
                    tracing::debug!(error = ?e, "statistics were not sent");
                }
            }
            Ok(GatewayMessage::GatewaysQuery) => {
                let answer = GatewayMessage::Gateways(self.gateways());
                if let Err(e) = connection.system(channel::GATEWAY, &answer) {
                    tracing::debug!(error = ?e, "the gateways were not sent");
                }
            }
            Ok(GatewayMessage::TableChanged) => self.cluster.membership.news(),
            Ok(GatewayMessage::Metrics(figures)) => self.client_told(connection, &figures),
            Ok(other) => tracing::debug!(?other, "a client sent what only gateways send"),
            Err(e) => warn_seldom!(error = %e, "an unreadable gateway message"),
        }
    }

    /// The gateways of the cluster, each with its port for clients.
    fn gateways(&self) -> Vec<(SiloAddress, u16)> {
        let view = self.cluster.view();
        let gateways = view.active().filter(|silo| silo.proxy_port != 0);
        gateways.map(|silo| (silo.address, silo.proxy_port)).take(GATEWAYS_MAX).collect()
    }

    pub(super) fn clients(&self) -> Vec<Arc<Connection>> {
        let open = self.pool.open();
        open.into_iter().filter(|c| matches!(c.peer, PeerKind::Client(_))).collect()
    }

    /// Tells clients which silos are newly dead: a frozen silo keeps its connections open.
    pub(super) fn announce_dead(&self, dead: &[SiloAddress]) {
        if dead.is_empty() {
            return;
        }
        for client in self.clients() {
            for silo in dead {
                let _ = client.system(channel::GATEWAY, &GatewayMessage::Dead(*silo));
            }
        }
    }

    /// Tells clients to send new calls elsewhere.
    pub(super) fn announce_stop(&self) {
        for client in self.clients() {
            let _ = client.system(channel::GATEWAY, &GatewayMessage::Stopping);
        }
    }

    /// Stops serving calls of clients and other silos: waits until those under way are answered,
    /// and every peer knows that no other call has run. Each ends by its deadline. The silo's own
    /// calls are left to their callers.
    pub(super) async fn drain_calls(&self) {
        self.pool.stop_serving();
        while !self.pool.has_stopped_serving() {
            tokio::time::sleep(DRAIN_CHECK).await;
        }
        // A call that arrived at a closed connection would be answered with a reset, and that can
        // overtake what its caller has to know.
        let known = async {
            while !self.pool.all_know_of_the_end() {
                tokio::time::sleep(DRAIN_CHECK).await;
            }
        };
        let _ = tokio::time::timeout(KNOWN_WITHIN, known).await;
    }
}
