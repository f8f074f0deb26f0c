//! Frames that are no answers: calls, words between runtimes, credit, cancellations.

use std::sync::Arc;
use std::task::Context;

use bytes::{Bytes, BytesMut};
use emmer_wire::{
    FrameKind, FrameRef, Goodbye, HeaderError, channel, codec, decode_cancel, decode_credit,
    decode_system_channel, read_request,
};

use super::connection::Connection;
use super::driver::Handler;
use super::ending::handle_word;
use super::lost::Lost;

/// Handles a frame that is no answer; how many bytes of calls have been processed.
pub(super) fn handle_frame<H: Handler>(
    connection: &Arc<Connection>,
    handler: &Arc<H>,
    frame: &FrameRef<'_>,
    replies: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Result<u64, Lost> {
    let broken = |e: HeaderError| Lost::Protocol(e.to_string());
    match frame.kind {
        FrameKind::Request => {
            let (header, body) = read_request(frame.payload).map_err(broken)?;
            // The whole frame: the sender counts all of its bytes.
            let cost = frame.bytes as u64;
            if header.correlation == 0 && connection.is_retired() {
                // Later words may have come over its successor, and no caller waits for this one.
                return Ok(cost);
            }
            return Ok(handler.request(connection, header, body, cost, replies, cx));
        }
        FrameKind::System => {
            let payload = Bytes::copy_from_slice(frame.payload);
            let (on, payload) = decode_system_channel(&payload).map_err(broken)?;
            if on == channel::CALLS {
                match codec::decode(&payload) {
                    Ok(word) => handle_word(connection, handler, word),
                    Err(e) => {
                        tracing::debug!(peer = ?connection.peer, error = %e, "an unknown word \
                            about calls");
                    }
                }
            } else if on == channel::WAITS || !connection.is_retired() {
                // A question about a call comes where the call came, also on a connection that
                // another one has replaced since.
                handler.system(connection, on, payload);
            }
        }
        FrameKind::Credit => {
            let total = decode_credit(frame.payload).map_err(broken)?;
            let mut shared = connection.shared.lock();
            if total > shared.sent {
                return Err(Lost::Protocol("a credit for more than was sent".to_owned()));
            }
            shared.acknowledged = shared.acknowledged.max(total);
        }
        FrameKind::Cancel => {
            decode_cancel(frame.payload)
                .map_err(broken)?
                .into_iter()
                .for_each(|call| connection.given_up(call));
        }
        FrameKind::Goodbye => {
            let goodbye = Goodbye::decode(frame.payload).map_err(broken)?;
            return Err(Lost::Goodbye(goodbye.code));
        }
        FrameKind::Hello | FrameKind::Welcome | FrameKind::Refuse | FrameKind::Response => {
            return Err(Lost::Protocol(format!("{:?} after the handshake", frame.kind)));
        }
    }
    Ok(0)
}
