//! Messages of streams between a client and its gateways.

use std::sync::Arc;

use bytes::Bytes;
use emmer_core::SiloAddress;
use emmer_net::transport::Connection;
use emmer_net::warn_seldom;
use emmer_wire::{PeerKind, channel, codec};

use super::core::ClientCore;
use crate::streams::{Parcel, Place, StreamMessage, Way};

impl ClientCore {
    /// The number of this client, which it has drawn.
    pub(crate) const fn number(&self) -> Option<u64> {
        match self.greeting.me {
            PeerKind::Client(number) => Some(number),
            _ => None,
        }
    }

    /// The gateway behind which the observers of this client are.
    pub(crate) fn home(&self) -> Option<SiloAddress> {
        let gateways = self.gateways.read();
        let usable = || gateways.iter().filter(|g| g.speaks()).map(|g| g.silo);
        let number = usize::try_from(self.number()? >> 16).unwrap_or(0);
        usable().nth(number.checked_rem(usable().count())?)
    }

    /// Asks a gateway for a word: its connection may have ended there alone.
    pub(crate) fn doubt_gateway(&self, silo: SiloAddress) {
        if let Some(gateway) = self.gateway(silo) {
            gateway.doubt();
        }
    }

    /// The connection to this gateway.
    pub(super) fn gateway(&self, silo: SiloAddress) -> Option<Arc<Connection>> {
        let gateways = self.gateways.read();
        gateways.iter().find(|g| g.silo == silo && !g.dead).map(|g| g.connection.clone())
    }

    /// Fires what is due; never ends.
    pub(crate) async fn turn_wheel(self: Arc<Self>) {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => {}
            () = self.wheel.drive() => {}
        }
    }

    /// Lets streams send by the gateways of this client.
    pub(crate) fn send_streams(self: &Arc<Self>) {
        let way: Arc<dyn Way> = self.clone();
        self.streams.goes_by(Arc::downgrade(&way));
    }

    /// A gateway has sent messages of streams.
    pub(super) fn streams_arrived(&self, payload: &Bytes) {
        match codec::decode(payload) {
            Ok(StreamMessage::Parcel(Parcel { to, from, parts })) if to.client == self.number() => {
                self.streams.receive(from, to, parts);
            }
            Ok(_) => tracing::debug!("a message of a stream that is not for this client"),
            Err(e) => warn_seldom!(error = %e, "an unreadable message of a stream"),
        }
    }
}

impl Way for ClientCore {
    fn post(&self, parcel: Parcel) {
        let Some(gateway) = self.gateway(parcel.from.silo) else { return };
        let message = StreamMessage::Parcel(parcel);
        if let Err(error) = gateway.system(channel::STREAMS, &message) {
            tracing::debug!(?error, "messages of streams were not sent");
        }
    }

    fn is_full(&self, from: Place, _to: Place) -> bool {
        self.gateway(from.silo).is_some_and(|gateway| !gateway.has_room(0))
    }
}
