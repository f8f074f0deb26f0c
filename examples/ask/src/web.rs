//! Sessions in the browser.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::Event;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use emmer::prelude::*;
use emmer_axum::{Drain, LastEventId, events};
use serde::Deserialize;

use crate::session::{AskError, Session};

type Shared = (GrainFactory, Drain);

/// The pause before a browser reads on.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(300);

/// A page, and a session's parts as its events.
pub fn routes(grains: GrainFactory, drain: Drain) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/sessions/{name}", get(read).post(ask).delete(stop))
        .with_state((grains, drain))
}

/// The id of an event is its part's number: a browser that reconnects gets what follows.
async fn read(
    State((grains, drain)): State<Shared>,
    Path(name): Path<String>,
    LastEventId(seen): LastEventId<u64>,
) -> impl IntoResponse {
    let first = seen.map_or(0, |seen| seen.saturating_add(1));
    events(grains.grain::<dyn Session>(name).read(first), &drain, |(number, part)| {
        let event = Event::default().retry(AGAIN).id(number.to_string());
        event.json_data(part).unwrap_or_default()
    })
}

#[derive(Deserialize)]
struct Question {
    text: String,
    token: String,
}

async fn ask(
    State((grains, _)): State<Shared>,
    Path(name): Path<String>,
    Json(Question { text, token }): Json<Question>,
) -> Response {
    answer(grains.grain::<dyn Session>(name).ask(text, token).timeout(secs(5)).await)
}

async fn stop(State((grains, _)): State<Shared>, Path(name): Path<String>) -> Response {
    answer(grains.grain::<dyn Session>(name).stop().timeout(secs(5)).await)
}

fn answer(done: Result<(), CallError<AskError>>) -> Response {
    let Err(error) = done else { return StatusCode::NO_CONTENT.into_response() };
    let status = match error {
        CallError::App(AskError::Length(_) | AskError::Full) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, error.to_string()).into_response()
}
