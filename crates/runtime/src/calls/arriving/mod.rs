//! Calls that arrive over connections.

mod arrived;
mod inline;
mod onward;
mod outside;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Context;

use bytes::{Bytes, BytesMut};
use emmer_net::transport::{Connection, weight};
use emmer_net::world;
use emmer_wire::{PeerKind, RequestHeader};

use self::arrived::{Arrived, Serving};
use self::inline::Inline;
pub(crate) use self::inline::put_failure;
use crate::calls::Calls;
use crate::calls::outset::InlineDepth;
use crate::calls::path::Met;
use crate::hosting::Progress;
use crate::trace;
use crate::turn::Failure;

impl Calls {
    /// A call comes over a connection. See
    /// [`Handler::request`](emmer_net::transport::Handler::request).
    pub(crate) fn arrived(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        mut header: RequestHeader,
        body: &[u8],
        cost: u64,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> u64 {
        self.host.metrics.call_received();
        let span = header.trace.as_ref().and_then(|parent| {
            trace::arrived(parent, || match connection.peer {
                PeerKind::Client(_) => trace::gateway(self.address),
                _ => trace::serve(self.address),
            })
        });
        let _in_span = span.as_ref().map(trace::enter);
        if let (PeerKind::Client(_), Some(why)) =
            (connection.peer, self.shedding.refuses(self.serving()))
        {
            let text = format!("silo {} refuses calls of clients: {why}", self.address);
            put_failure(replies, header.correlation, &Failure::overloaded(text));
            return cost;
        }
        if let Err(refused) = self.admit(connection, &mut header) {
            put_failure(replies, header.correlation, &refused);
            return cost;
        }
        if !connection.has_argument_room(body.len()) {
            put_failure(replies, header.correlation, &self.too_many_bytes());
            return cost;
        }
        self.note_talk_from(connection.peer, &header);
        let found = self
            .door_for(connection, &header)
            .or_else(|| self.host.catalog.get(&header.target))
            .or_else(|| self.create_arrived(connection, &header));
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
        // A turn that has begun runs to its end, whatever the limits.
        let running =
            matches!(&inline, Inline::Suspended(turn) if turn.progress() == Progress::Running);
        let Some(room) = Serving::begin(self, running) else {
            let max = self.limits.silo_calls_in_flight_max;
            self.host.metrics.refused();
            let text =
                format!("{max} calls of others wait on this silo (silo_calls_in_flight_max)");
            put_failure(replies, header.correlation, &Failure::overloaded(text));
            return cost;
        };
        let held = weight(cost);
        if !connection.take_arguments(held, running) {
            put_failure(replies, header.correlation, &self.too_many_bytes());
            return cost;
        }
        // From here on the call lives longer than the buffer it came in.
        let deadline = self.due_of(&header).settle(self.clock.now());
        let body = Bytes::copy_from_slice(body);
        let connection = connection.clone();
        let asker = connection.begin_serving(header.correlation, cost);
        let told = AtomicBool::new(false);
        let arrived =
            Arrived { connection, header, body, cost, held, deadline, asker, told, _room: room };
        match inline {
            Inline::Suspended(turn) => {
                world::spawn(trace::along(self.clone().finish(arrived, turn)))
            }
            Inline::Closed(elsewhere) => {
                let served = self.clone().serve(arrived, Met::Closed(elsewhere));
                world::spawn(trace::along(served))
            }
            Inline::Over => return cost,
        };
        0
    }

    /// Clients hold too much.
    #[cold]
    fn too_many_bytes(&self) -> Failure {
        self.host.metrics.refused();
        let max = self.limits.client_bytes_max / 2;
        let silo = self.address;
        Failure::overloaded(format!(
            "calls of clients that are not over hold {max} bytes on silo {silo} (half of \
             client_bytes_max)"
        ))
    }
}
