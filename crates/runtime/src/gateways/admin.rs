//! Questions of operators, by way of a gateway.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use emmer_core::SiloAddress;
use emmer_net::transport::Connection;
use emmer_net::warn_seldom;
use emmer_store::BoxFuture;
use emmer_wire::{channel, codec};

use super::core::ClientCore;
use crate::admin::{AdminError, AdminMessage, Way};

impl ClientCore {
    /// The connection to a gateway is lost.
    pub(super) fn admin_way_lost(&self, connection: &Arc<Connection>) {
        self.asked.way_lost(way_of(connection));
    }

    /// A gateway answers.
    pub(super) fn admin_answered(&self, payload: &Bytes) {
        match codec::decode(payload) {
            Ok(AdminMessage::Answer { id, reply }) => self.asked.answered(id, reply.into()),
            Ok(AdminMessage::Ask { .. }) => tracing::debug!("a gateway asks its client"),
            Err(error) => warn_seldom!(%error, "an unreadable answer of a gateway"),
        }
    }
}

/// The number of a connection that lives.
fn way_of(connection: &Arc<Connection>) -> u64 {
    Arc::as_ptr(connection).addr() as u64
}

impl Way for ClientCore {
    /// Asks the silo itself where it is a connected gateway, else the first gateway that speaks.
    fn ask(
        &self,
        to: Option<SiloAddress>,
        question: Bytes,
        patience: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AdminError>> {
        Box::pin(async move {
            // A gateway refuses more of one client.
            let turn = tokio::time::timeout(patience, self.questions.acquire()).await;
            let _turn = turn.map_err(|_| AdminError::TimedOut)?;
            let gateway = {
                let gateways = self.gateways.read();
                let own = gateways.iter().find(|gateway| Some(gateway.silo) == to);
                let own = own.filter(|gateway| gateway.speaks());
                let some = || gateways.iter().find(|gateway| gateway.speaks());
                own.or_else(some).map(|gateway| gateway.connection.clone())
            };
            let gateway = gateway.ok_or(AdminError::NoGateway)?;
            let asked = self.asked.ask(way_of(&gateway), patience, |id| {
                let message = AdminMessage::Ask { id, to, who: None, question };
                gateway.system(channel::ADMIN, &message).is_ok()
            });
            asked.await
        })
    }
}
