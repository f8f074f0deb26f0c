//! The view in the browser.

use axum::Router;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use emmer::prelude::*;
use emmer_axum::{Drain, events};

use crate::view;

/// A page with all games, and the events that keep it up to date.
pub fn routes(client: Client, drain: Drain) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/games", get(games))
        .with_state((client, drain))
}

async fn games(State((client, drain)): State<(Client, Drain)>) -> impl IntoResponse {
    events(view::news(&client), &drain, |news| Event::default().json_data(news).unwrap_or_default())
}
