//! Messages over the connections to gateways, and the ends of these connections.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use emmer_net::transport::{Connection, Handler, Lost};
use emmer_net::warn_seldom;
use emmer_wire::{FailureCode, RequestHeader, channel, codec, encode_failure};

use super::core::ClientCore;
use super::message::GatewayMessage;

impl Handler for ClientCore {
    fn request(
        self: &Arc<Self>,
        _connection: &Arc<Connection>,
        header: RequestHeader,
        _body: &[u8],
        cost: u64,
        replies: &mut BytesMut,
        _cx: &mut Context<'_>,
    ) -> u64 {
        if header.correlation != 0 {
            encode_failure(
                replies,
                header.correlation,
                FailureCode::Rejected,
                false,
                "a client hosts no grains",
            );
        }
        cost
    }

    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes) {
        if channel == channel::STREAMS {
            return self.streams_arrived(&payload);
        }
        if channel == channel::ADMIN {
            return self.admin_answered(&payload);
        }
        if channel != channel::GATEWAY {
            return;
        }
        match codec::decode(&payload) {
            Ok(GatewayMessage::Stopping) => {
                let mut gateways = self.gateways.write();
                let said = gateways.iter_mut().filter(|g| Arc::ptr_eq(&g.connection, connection));
                said.for_each(|g| g.stopping = true);
                drop(gateways);
                self.note_change();
                self.wake.notify_one();
            }
            Ok(GatewayMessage::Statistics(statistics)) => {
                if let Some(silo) = connection.silo() {
                    self.statistics.lock().insert(silo, statistics);
                    self.statistics_changed.notify_waiters();
                }
            }
            Ok(GatewayMessage::Dead(silo)) => self.is_dead(silo),
            Ok(GatewayMessage::MetricsQuery(unless_within)) => {
                let within = Duration::from_millis(unless_within);
                if let Some(figures) = self.figures_to_tell(within) {
                    let _ = connection.system(channel::GATEWAY, &GatewayMessage::Metrics(figures));
                }
            }
            Ok(GatewayMessage::Gateways(named)) => {
                if self.listing.learn(&named) {
                    self.wake.notify_one();
                }
            }
            Ok(
                GatewayMessage::StatisticsQuery
                | GatewayMessage::Metrics(_)
                | GatewayMessage::GatewaysQuery
                | GatewayMessage::TableChanged,
            ) => {}
            Err(e) => warn_seldom!(error = %e, "an unreadable gateway message"),
        }
    }

    fn drained(self: &Arc<Self>, _connection: &Arc<Connection>) {
        // Another gateway is available.
        self.note_change();
        self.wake.notify_one();
    }

    fn heard(self: &Arc<Self>, _connection: &Arc<Connection>) {}

    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost) {
        tracing::debug!(peer = ?connection.peer, %why, "a gateway's connection ended");
        self.gateways.write().retain(|g| !Arc::ptr_eq(&g.connection, connection));
        self.admin_way_lost(connection);
        self.note_change();
        self.wake.notify_one();
        if let Some(silo) = connection.silo()
            && self.gateway(silo).is_none()
        {
            self.streams.lost(|_, here| here.silo == silo);
        }
    }
}
