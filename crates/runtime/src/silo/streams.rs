//! Messages of streams between this silo, other silos, and the clients of this gateway.

use bytes::Bytes;
use emmer_net::transport::Connection;
use emmer_net::warn_seldom;
use emmer_wire::{PeerKind, channel, codec};

use super::core::SiloCore;
use crate::streams::{Parcel, Place, StreamMessage, Way};

impl SiloCore {
    /// The process at `sender` has sent a message of streams.
    pub(super) fn streams_of(&self, sender: Place, payload: &Bytes) {
        let message = match codec::decode(payload) {
            Ok(message) => message,
            Err(e) => return warn_seldom!(error = %e, "an unreadable message of a stream"),
        };
        match message {
            // A client speaks for itself, a silo for its clients as well.
            StreamMessage::Parcel(parcel)
                if parcel.from == sender
                    || (sender.client.is_none() && parcel.from.silo == sender.silo) =>
            {
                // Clients have streams with silos alone.
                if sender.client.is_none() || parcel.to.client.is_none() {
                    self.post(parcel);
                }
            }
            StreamMessage::NoClient(client)
                if sender.client.is_none() && client.silo == sender.silo =>
            {
                self.calls.streams.lost(|other, _| other == Some(client));
            }
            StreamMessage::Parcel(_) | StreamMessage::NoClient(_) => {
                tracing::debug!(?sender, "a message of a stream in the name of another process");
            }
        }
    }

    /// The connection of a client has ended.
    pub(super) fn client_lost(&self, connection: &Connection) {
        if let PeerKind::Client(number) = connection.peer
            && self.pool.client(number).is_none()
        {
            let gone = Place { silo: self.address, client: Some(number) };
            self.calls.streams.lost(|other, _| other == Some(gone));
        }
    }
}

impl Way for SiloCore {
    fn post(&self, parcel: Parcel) {
        let to = parcel.to;
        match to.client {
            None if to.silo == self.address => {
                self.calls.streams.receive(parcel.from, to, parcel.parts);
            }
            Some(number) if to.silo == self.address => match self.pool.client(number) {
                Some(client) => {
                    let message = StreamMessage::Parcel(parcel);
                    if let Err(error) = client.system(channel::STREAMS, &message) {
                        tracing::debug!(?error, "messages of streams were not sent to a client");
                    }
                }
                None if parcel.from.silo == self.address => {
                    self.calls.streams.lost(|other, _| other == Some(to));
                }
                None if self.cluster.knows(parcel.from.silo) => {
                    let message = StreamMessage::NoClient(to);
                    self.cluster.peers.post(parcel.from.silo, channel::STREAMS, &message);
                }
                None => {}
            },
            // A place is data, and may name any address: only members are dialled.
            _ if self.cluster.knows(to.silo) => {
                let message = StreamMessage::Parcel(parcel);
                self.cluster.peers.post(to.silo, channel::STREAMS, &message);
            }
            _ => tracing::debug!(?to, "messages of streams for a silo that the view does not name"),
        }
    }

    fn is_full(&self, _from: Place, to: Place) -> bool {
        let connection = match to.client {
            Some(number) if to.silo == self.address => self.pool.client(number),
            _ => self.pool.get_for_runtime(to.silo),
        };
        connection.is_some_and(|connection| !connection.has_room(0))
    }
}
