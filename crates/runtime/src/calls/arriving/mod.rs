//! What a silo does with calls that arrive over connections.

mod arrived;
mod inline;
mod onward;

use std::sync::Arc;
use std::task::Context;

use bytes::{Bytes, BytesMut};
use emmer_core::SiloAddress;
use emmer_membership::ConnectionEvent;
use emmer_wire::{PeerKind, RequestHeader, channel, codec};

use self::arrived::{Arrived, Serving};
use self::inline::{Inline, put_failure};
use crate::calls::invoke::InlineDepth;
use crate::calls::path::Met;
use crate::cluster::membership::Input as MembershipInput;
use crate::grain::CallError;
use crate::hosting::Progress;
use crate::net::{Connection, Handler, Lost};
use crate::silo::SiloCore;
use crate::world;

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
        self.metrics.call_received();
        let found = self.catalog.get(&header.target).or_else(|| self.create_arrived(connection, &header));
        // Of a peer that does not read its answers no call is begun that has one.
        let room = header.correlation == 0 || connection.has_room(replies.len());
        let inline = match (found, InlineDepth::enter()) {
            (Some(activation), Some(_depth)) if room => {
                self.run_here(connection, &header, body, activation, replies, cx)
            }
            _ => Inline::Closed(None),
        };
        if let Inline::Over = inline {
            return cost;
        }
        // What has begun runs to its end, whatever the limits.
        let running = matches!(&inline, Inline::Suspended(turn) if turn.progress() == Progress::Running);
        let Some(room) = Serving::begin(self, running) else {
            let max = self.options.limits.silo_calls_in_flight_max;
            self.metrics.refused();
            let text = format!("{max} calls of others wait on this silo (silo_calls_in_flight_max)");
            put_failure(replies, header.correlation, &CallError::Overloaded(text));
            return cost;
        };
        // From here on the call lives longer than the buffer it came in.
        let deadline = self.due_of(&header).settle(self.clock.now());
        let body = Bytes::copy_from_slice(body);
        let connection = connection.clone();
        let asker = connection.begin_serving(header.correlation);
        let arrived = Arrived { connection, header, body, cost, deadline, asker, _room: room };
        match inline {
            Inline::Suspended(turn) => world::spawn(self.clone().finish(arrived, turn)),
            Inline::Closed(elsewhere) => world::spawn(self.clone().serve(arrived, Met::Closed(elsewhere))),
            Inline::Over => return cost,
        };
        0
    }

    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes) {
        match (channel, connection.peer) {
            (channel::MEMBERSHIP, PeerKind::Silo(from)) => match codec::decode(&payload) {
                Ok(message) if self.knows(from) => {
                    self.membership.send(MembershipInput::Message(from, message));
                }
                // The machine takes from it what a join needs.
                Ok(message) => self.membership.send_of_stranger(MembershipInput::Message(from, message)),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable membership message"),
            },
            // Nobody asks a dead silo's directory any more, and nobody answers it.
            (channel::DIRECTORY, PeerKind::Silo(_)) if connection.is_parting() => {}
            (channel::DIRECTORY, PeerKind::Silo(from)) if !self.knows(from) => {
                tracing::debug!(%from, "a directory message of a silo that the view does not name");
            }
            (channel::DIRECTORY, PeerKind::Silo(from)) => match codec::decode(&payload) {
                Ok(message) => self.directory.receive(self, from, message),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable directory message"),
            },
            (channel::WAITS, PeerKind::Silo(from)) if self.knows(from) => match codec::decode(&payload) {
                Ok(message) => self.waits.receive(message),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable message about waiting calls"),
            },
            // The connection has taken it up.
            (channel::CALLS, _) => {}
            (channel::GATEWAY, PeerKind::Client(_)) => self.gateway_message(connection, &payload),
            (channel, peer) => tracing::debug!(channel, ?peer, "a message on a channel nobody reads here"),
        }
    }

    fn heard(self: &Arc<Self>, connection: &Arc<Connection>) {
        if let PeerKind::Silo(silo) = connection.peer {
            let now = self.clock.now();
            if connection.note_heard(now) && self.knows(silo) {
                self.membership.heard(silo, now);
            }
        }
    }

    fn knows(&self, silo: SiloAddress) -> bool {
        self.views.borrow().status_of(&silo).is_some()
    }

    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost) {
        tracing::debug!(peer = ?connection.peer, %why, "a connection ended");
        let PeerKind::Silo(silo) = connection.peer else { return };
        let event = match why {
            Lost::Ended => ConnectionEvent::Closed,
            Lost::Broken(_) => ConnectionEvent::Broken,
            Lost::Goodbye(_) => ConnectionEvent::Goodbye,
            Lost::PeerDead | Lost::Drained | Lost::Protocol(_) | Lost::Closed => return,
        };
        self.membership.send(MembershipInput::Connection(silo, event));
    }
}
