//! Streams as server-sent events.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, KeepAliveStream, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};

use crate::drain::Drain;

/// The name of the event that tells of a failure.
const ERROR: &str = "error";

/// A stream as server-sent events. `event` makes an event of each value; it should have an id, so
/// that a browser that reconnects can say what it has seen ([`LastEventId`]).
///
/// A failure of the stream becomes an event `error` with its words as data, and is the last one.
/// The response also ends when `drain` begins. A comment every 15 seconds keeps it alive. A browser
/// that reads slowly slows the stream down, and one that leaves drops it.
pub fn events<S, T, E, F>(
    values: S,
    drain: &Drain,
    mut event: F,
) -> Sse<KeepAliveStream<impl Stream<Item = Result<Event, Infallible>> + use<S, T, E, F>>>
where
    F: FnMut(T) -> Event + Send + 'static,
    S: Stream<Item = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Display + Send + 'static,
{
    let open = drain.opens();
    let (mut failed, begins) = (false, drain.begins_owned());
    let events = values.map(move |value| match value {
        Ok(value) => Ok(event(value)),
        Err(error) => Err(Event::default().event(ERROR).data(one_line(&error))),
    });
    let until_failed = events.take_while(move |event| {
        let is_over = std::mem::replace(&mut failed, event.is_err());
        std::future::ready(!is_over)
    });
    let events = until_failed.take_until(begins).map(move |event| {
        let _ = &open;
        Ok(event.unwrap_or_else(|error| error))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

/// Words without line breaks: axum refuses them in an event's data that comes from elsewhere.
fn one_line(error: &impl Display) -> String {
    error.to_string().replace(['\r', '\n'], " ")
}

/// The id of the last event that the browser has seen, of a request that reconnects: the header
/// `Last-Event-ID`. None in the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastEventId<T>(pub Option<T>);

/// The header `Last-Event-ID` is no id of this stream. As a response it is 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEventId(String);

impl Display for BadEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the header Last-Event-ID is {:?}, which is no id of this stream", self.0)
    }
}

impl std::error::Error for BadEventId {}

impl IntoResponse for BadEventId {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, self.to_string()).into_response()
    }
}

/// A text that is no id is shown up to this many characters.
const SHOWN_MAX: usize = 100;

impl<S: Sync, T: FromStr> FromRequestParts<S> for LastEventId<T> {
    type Rejection = BadEventId;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, BadEventId> {
        let Some(header) = parts.headers.get("last-event-id") else { return Ok(Self(None)) };
        let text = String::from_utf8_lossy(header.as_bytes());
        if text.is_empty() {
            return Ok(Self(None));
        }
        let id = text.parse().map_err(|_| BadEventId(text.chars().take(SHOWN_MAX).collect()))?;
        Ok(Self(Some(id)))
    }
}
