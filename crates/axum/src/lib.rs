//! Grains and web pages: what an axum server needs to show what grains stream and tell.
//!
//! * [`events`] makes server-sent events of any stream: a streamed answer, a watch, a topic. A
//!   browser that reconnects says what it has seen, and [`LastEventId`] reads it.
//! * [`Socket`] binds a WebSocket to a grain: values go out at the browser's pace, messages come in
//!   one after the other, silent peers are noticed.
//! * [`Drain`] ends both well before the process stops, so that browsers reconnect elsewhere.
//!
//! All other types are axum's own.
//!
//! ```no_run
//! use std::convert::Infallible;
//!
//! use axum::Router;
//! use axum::extract::State;
//! use axum::response::IntoResponse;
//! use axum::response::sse::Event;
//! use axum::routing::get;
//! use emmer::prelude::*;
//! use emmer_axum::{Drain, LastEventId, events};
//!
//! #[grain_interface(key = String)]
//! trait Log {
//!     /// Every line from number `from` on, and then those that come.
//!     async fn tail(&mut self, from: u64, lines: Sink<(u64, String)>);
//! }
//!
//! async fn tail(
//!     State((client, drain)): State<(Client, Drain)>,
//!     LastEventId(seen): LastEventId<u64>,
//! ) -> impl IntoResponse {
//!     let lines = client.grain::<dyn Log>("today").tail(seen.map_or(0, |seen| seen + 1));
//!     events(lines, &drain, |(number, line)| Event::default().id(number.to_string()).data(line))
//! }
//!
//! async fn serve(client: Client, listener: tokio::net::TcpListener) -> emmer::Result<()> {
//!     let drain = Drain::new();
//!     let routes = Router::new().route("/tail", get(tail)).with_state((client, drain.clone()));
//!     let stop = async move {
//!         let _ = tokio::signal::ctrl_c().await;
//!         drain.begin();
//!     };
//!     axum::serve(listener, routes).with_graceful_shutdown(stop).await?;
//!     Ok(())
//! }
//! ```

mod drain;
mod events;
mod socket;

pub use self::drain::Drain;
pub use self::events::{BadEventId, LastEventId, events};
pub use self::socket::{Closed, Socket};
