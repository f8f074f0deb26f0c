//! Lifelines: connections that carry nothing, and end when the process at the other end does.

use std::time::Duration;

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_membership::ConnectionEvent;
use emmer_wire::{FrameKind, HANDSHAKE_BYTES_MAX, decode_frame};
use tokio::io::AsyncReadExt;

use super::handshake::{Greeting, greet};
use crate::world::TcpStream;

/// The pause before a lifeline that ended, or was not taken, is made again; doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest of them. A lifeline that lasted for longer begins with the shortest one.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Keeps a lifeline to `silo` until it is dropped, and reports each time that one ends. One that is
/// not taken is no news.
pub(crate) async fn keep_lifeline(
    silo: SiloAddress,
    greeting: &Greeting,
    report: impl Fn(ConnectionEvent),
) {
    let mut pause = PAUSE_MIN;
    loop {
        if let Ok((stream, _, input)) = greet(silo.endpoint(), Some(silo), greeting).await {
            let since = tokio::time::Instant::now();
            if let Some(event) = ended(stream, input).await {
                report(event);
            }
            if since.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// How the stream ends. None: the acceptor sent what no acceptor sends.
async fn ended(mut stream: TcpStream, mut input: BytesMut) -> Option<ConnectionEvent> {
    loop {
        match decode_frame(&mut input, HANDSHAKE_BYTES_MAX) {
            Ok(Some(frame)) if frame.kind == FrameKind::Goodbye => {
                return Some(ConnectionEvent::Goodbye);
            }
            // It tells everybody that it serves no more calls.
            Ok(Some(frame)) if frame.kind == FrameKind::System => continue,
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return None,
        }
        match stream.read_buf(&mut input).await {
            // Half a goodbye is none.
            Ok(0) => return Some(ConnectionEvent::Closed),
            Ok(_) => {}
            Err(_) => return Some(ConnectionEvent::Broken),
        }
    }
}
