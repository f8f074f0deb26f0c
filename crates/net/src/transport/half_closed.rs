//! A client that has ended its half of a connection, and waits for its answers.
//!
//! A client that was killed looks the same: its host ends the stream in good order. But it answers
//! further bytes with a reset. So while its calls run, a word is sent now and then, and one of the
//! next writes fails.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use emmer_wire::PeerKind;
use tokio::time::{Instant, Sleep};

use super::connection::Connection;

/// A word is sent this often. The first is sent at once, and the second finds the reset.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The peer sends nothing more, and reads.
pub(super) struct HalfClosed(Pin<Box<Sleep>>);

impl HalfClosed {
    /// The peer has ended its half. None if there is nothing left to send.
    pub(super) fn begin(connection: &Connection) -> Option<Self> {
        let waits = matches!(connection.peer, PeerKind::Client(_)) && connection.serving() > 0;
        waits.then(|| Self(Box::pin(tokio::time::sleep(Duration::ZERO))))
    }

    /// Asks the peer for a word when it is time.
    pub(super) fn poll(&mut self, connection: &Connection, cx: &mut Context<'_>) {
        while self.0.as_mut().poll(cx).is_ready() {
            connection.shared.lock().ask();
            self.0.as_mut().reset(Instant::now() + ASK_EVERY);
        }
    }

    /// Returns true if every call is answered, and the answers are written; `writing` are the bytes
    /// that the socket takes next.
    pub(super) fn is_over(connection: &Connection, writing: &[u8]) -> bool {
        // An answer is queued before its call is over.
        connection.serving() == 0 && writing.is_empty() && connection.shared.lock().out.is_empty()
    }
}
