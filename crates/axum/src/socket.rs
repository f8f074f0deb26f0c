//! A WebSocket that is bound to a grain.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::{SinkExt, Stream, StreamExt};
use tokio::time::Instant;

use crate::drain::Drain;

/// Time between two pings, by default.
const PING_EVERY: Duration = Duration::from_secs(20);

/// The other side has this long to read the close frame, and to answer it.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// The most bytes of the reason in a close frame, of the 125 that a control frame may have.
const REASON_BYTES_MAX: usize = 123;

/// A WebSocket that is bound to a grain: [`serve`](Self::serve) runs it to its end.
///
/// ```no_run
/// use axum::extract::State;
/// use axum::extract::ws::{Message, WebSocketUpgrade};
/// use axum::response::Response;
/// use emmer::prelude::*;
/// use emmer::topics::Topic;
/// use emmer_axum::{Drain, Socket};
/// use futures_util::StreamExt;
///
/// async fn room(
///     upgrade: WebSocketUpgrade,
///     State((room, drain)): State<(Topic<String>, Drain)>,
/// ) -> Response {
///     upgrade.on_upgrade(async move |socket| {
///         let lines = room.subscribe().last(20).map(|news| news.map(|news| {
///             Message::text(format!("{news:?}"))
///         }));
///         let heard = |message: Message| {
///             let room = room.clone();
///             async move { room.publish(&message.to_text().unwrap_or("?").to_owned()).await.map(drop) }
///         };
///         Socket::new(socket, &drain).serve(lines, heard).await;
///     })
/// }
/// ```
#[derive(Debug)]
pub struct Socket {
    socket: WebSocket,
    drain: Drain,
    ping_every: Duration,
}

/// The reason why a socket ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The other side has closed it, or is gone.
    Peer,
    /// The other side has said nothing, not even to a ping, or has not read.
    Silent,
    /// The stream of values has ended. The close frame has code 1000.
    Finished,
    /// The process stops. The close frame has code 1001.
    Drained,
    /// The stream, or a message's handler, has failed with these words. The close frame has code
    /// 1011 and the words.
    Failed(String),
}

impl Socket {
    /// A socket that ends when `drain` begins.
    pub fn new(socket: WebSocket, drain: &Drain) -> Self {
        Self { socket, drain: drain.clone(), ping_every: PING_EVERY }
    }

    /// The time between two pings. Default 20 seconds. Twice as long without a word, or with a
    /// message that is not read, ends the socket.
    pub const fn ping_every(mut self, time: Duration) -> Self {
        self.ping_every = time;
        self
    }

    /// Sends what `values` has, and gives each message to `on_message`, one after the other, until
    /// either ends. The next value is asked for when the one before was sent: a browser that reads
    /// slowly slows the stream down. The next message is read when the one before was handled.
    pub async fn serve<S, E, F, D>(
        self,
        values: S,
        mut on_message: impl FnMut(Message) -> F,
    ) -> Closed
    where
        S: Stream<Item = Result<Message, E>>,
        E: Display,
        F: Future<Output = Result<(), D>>,
        D: Display,
    {
        let Self { socket, drain, ping_every } = self;
        let _open = drain.opens();
        let (mut outward, mut inward) = socket.split();
        let heard = Mutex::new(Instant::now());
        let closed = {
            let writing = async {
                let mut values = pin!(values);
                let mut ping = tokio::time::interval_at(Instant::now() + ping_every, ping_every);
                loop {
                    let message = tokio::select! {
                        biased;
                        _ = ping.tick() => {
                            if at(&heard).elapsed() > 2 * ping_every {
                                return Closed::Silent;
                            }
                            Message::Ping(Vec::new().into())
                        }
                        value = values.next() => match value {
                            Some(Ok(message)) => message,
                            Some(Err(error)) => return Closed::Failed(error.to_string()),
                            None => return Closed::Finished,
                        }
                    };
                    match tokio::time::timeout(2 * ping_every, outward.send(message)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return Closed::Peer,
                        Err(_) => return Closed::Silent,
                    }
                }
            };
            let reading = async {
                while let Some(Ok(message)) = inward.next().await {
                    *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                    match message {
                        Message::Ping(_) | Message::Pong(_) => {}
                        Message::Close(_) => return Closed::Peer,
                        message => {
                            if let Err(error) = on_message(message).await {
                                return Closed::Failed(error.to_string());
                            }
                        }
                    }
                }
                Closed::Peer
            };
            tokio::select! {
                biased;
                () = drain.begins() => Closed::Drained,
                closed = reading => closed,
                closed = writing => closed,
            }
        };
        let (code, reason) = match &closed {
            Closed::Peer | Closed::Silent => return closed,
            Closed::Finished => (close_code::NORMAL, ""),
            Closed::Drained => (close_code::AWAY, "the server stops"),
            Closed::Failed(why) => (close_code::ERROR, cut(why)),
        };
        let frame = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        let goodbye = async {
            if outward.send(frame).await.is_ok() {
                while let Some(Ok(_)) = inward.next().await {}
            }
        };
        let _ = tokio::time::timeout(CLOSE_WITHIN, goodbye).await;
        closed
    }
}

fn at(heard: &Mutex<Instant>) -> Instant {
    *heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As much of a text as a close frame holds.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}
