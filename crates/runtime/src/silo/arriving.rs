//! Messages over the silo's connections, and the parts that they go to.

use std::sync::Arc;
use std::task::Context;

use bytes::{Bytes, BytesMut};
use emmer_core::SiloAddress;
use emmer_membership::ConnectionEvent;
use emmer_net::transport::{Connection, Handler, Lost};
use emmer_net::warn_seldom;
use emmer_wire::{PeerKind, RequestHeader, channel, codec};

use super::core::SiloCore;
use crate::calls::arriving::put_failure;
use crate::cluster::membership::Input as MembershipInput;
use crate::cluster::moves::MoveMessage;
use crate::streams::Place;
use crate::turn::{Failure, contain};

impl Handler for SiloCore {
    fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: RequestHeader,
        body: &[u8],
        cost: u64,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> u64 {
        let (correlation, answered) = (header.correlation, replies.len());
        let run = || self.calls.arrived(connection, header, body, cost, &mut *replies, cx);
        contain(run).unwrap_or_else(|panic| {
            // Every turn contains its own panics. A panic that gets here is this call's: the other
            // calls of the connection continue.
            tracing::error!(panic, "a panic outside of a turn");
            replies.truncate(answered);
            put_failure(replies, correlation, &Failure::panicked(panic));
            cost
        })
    }

    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes) {
        match (channel, connection.peer) {
            (channel::MEMBERSHIP, PeerKind::Silo(from)) => self.cluster.hear(from, &payload),
            // No silo asks a dead silo's directory, and none answers it.
            (channel::DIRECTORY, PeerKind::Silo(_)) if connection.is_parting() => {}
            (channel::DIRECTORY, PeerKind::Silo(from)) if !self.knows(from) => {
                tracing::debug!(%from, "a directory message of a silo that the view does not name");
            }
            (channel::DIRECTORY, PeerKind::Silo(from)) => match codec::decode(&payload) {
                Ok(message) => self.cluster.directory.receive(from, message),
                Err(e) => warn_seldom!(%from, error = %e, "an unreadable directory message"),
            },
            (channel::WAITS, PeerKind::Silo(from)) if self.knows(from) => {
                match codec::decode(&payload) {
                    Ok(message) => {
                        self.calls.waits.receive(message);
                        // The next round looks at it.
                        self.pool.greeting().ticking.begin();
                    }
                    Err(e) => {
                        warn_seldom!(%from, error = %e, "an unreadable message about waiting \
                            calls");
                    }
                }
            }
            (channel::LOAD, PeerKind::Silo(from)) if self.knows(from) => {
                match codec::decode(&payload) {
                    Ok(message) => self.cluster.placing.load.receive(from, message),
                    Err(e) => warn_seldom!(%from, error = %e, "an unreadable message about load"),
                }
            }
            (channel::REMINDERS, PeerKind::Silo(from)) if self.knows(from) => {
                match codec::decode(&payload) {
                    Ok(message) => self.reminders.receive(from, message),
                    Err(e) => {
                        warn_seldom!(%from, error = %e, "an unreadable message about reminders");
                    }
                }
            }
            (channel::MOVES, PeerKind::Silo(from)) if self.knows(from) => {
                match codec::decode(&payload) {
                    Ok(MoveMessage::Arrive(arrival)) => self.host.arrive(from, arrival),
                    Ok(MoveMessage::Word { id, word }) => self.host.moves.heard(id, word),
                    Ok(MoveMessage::Followed { id, grain }) => {
                        self.host.moves.followed(from, id, &grain);
                    }
                    Ok(MoveMessage::Moved { grain, to }) => self.calls.told_moved(from, &grain, to),
                    Ok(MoveMessage::Flush(flush)) => self.host.flush(from, flush),
                    Ok(MoveMessage::Flushed { id, here }) => {
                        self.host.moves.flushed(id, here.then_some(from));
                    }
                    Ok(MoveMessage::Exchange(message)) => {
                        if let Some(talks) = &self.calls.talks {
                            talks.receive(from, message);
                        }
                    }
                    Err(e) => {
                        warn_seldom!(%from, error = %e, "an unreadable message about a grain that \
                            moves");
                    }
                }
            }
            (channel::STREAMS, PeerKind::Silo(from)) if self.knows(from) => {
                self.streams_of(Place::silo(from), &payload);
            }
            (channel::STREAMS, PeerKind::Client(number)) => {
                let client = Place { silo: self.address, client: Some(number) };
                self.streams_of(client, &payload);
            }
            (channel::ADMIN, PeerKind::Silo(from)) if self.knows(from) => {
                self.admin_message(connection, &payload);
            }
            (channel::ADMIN, PeerKind::Client(_)) => self.admin_message(connection, &payload),
            (channel::GATEWAY, PeerKind::Client(_)) => self.gateway_message(connection, &payload),
            (channel, peer) => {
                tracing::debug!(channel, ?peer, "a message on a channel that is not read here");
            }
        }
    }

    fn prefer(self: &Arc<Self>, connection: &Arc<Connection>) {
        if let Some(silo) = self.pool.proposed(connection) {
            self.cluster.directory.way_broke(silo);
        }
    }

    fn heard(self: &Arc<Self>, connection: &Arc<Connection>) {
        if let PeerKind::Silo(silo) = connection.peer {
            self.cluster.heard(connection, silo);
        }
    }

    fn knows(&self, silo: SiloAddress) -> bool {
        self.cluster.knows(silo)
    }

    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost) {
        tracing::debug!(peer = ?connection.peer, %why, "a connection ended");
        // First: a command that is sent again takes another connection.
        self.pool.forget(connection);
        let PeerKind::Silo(silo) = connection.peer else {
            return self.client_lost(connection);
        };
        self.cluster.directory.way_broke(silo);
        self.admin_way_lost(silo);
        self.host.moves.connection_lost(silo);
        self.calls.streams.connection_lost(silo);
        let event = match why {
            Lost::Ended => ConnectionEvent::Closed,
            Lost::Broken(_) => ConnectionEvent::Broken,
            Lost::Goodbye(_) => ConnectionEvent::Goodbye,
            Lost::Silent => ConnectionEvent::Broken,
            Lost::PeerDead | Lost::Drained | Lost::Replaced | Lost::Protocol(_) | Lost::Closed => {
                return;
            }
        };
        self.cluster.membership.send(MembershipInput::Connection(silo, event));
    }
}
