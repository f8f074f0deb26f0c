//! The chat over HTTP. Any number of these servers may run: each is a client of the cluster.

mod live;

use axum::Json;
use axum::Router;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header, request};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use emmer::prelude::*;
use emmer_axum::{Drain, LastEventId, events};
use serde::Deserialize;

use crate::room::{Room, RoomRef, SayError};

/// The longest name of a person or a room, in bytes.
const NAME_MAX: usize = 40;

/// The web server as its routes see it.
#[derive(Clone, Debug)]
pub struct Web {
    /// The way to the silos.
    pub client: Client,
    /// The end of the pages' events.
    pub drain: Drain,
}

/// The routes of the chat.
pub fn routes(web: Web) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/rooms/{room}/events", get(live))
        .route("/rooms/{room}/lines", post(say))
        .route("/rooms/{room}/typing", post(types))
        // A page whose web process has died asks another one.
        .layer(axum::middleware::map_response(from_anywhere))
        .with_state(web)
}

async fn from_anywhere(mut response: Response) -> Response {
    let any = HeaderValue::from_static("*");
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    response
}

/// A room and a person, of any request.
struct Visit {
    room: String,
    name: String,
}

#[derive(Deserialize)]
struct Visitor {
    name: String,
}

impl FromRequestParts<Web> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut request::Parts, web: &Web) -> Result<Self, Response> {
        let room = Path::<String>::from_request_parts(parts, web).await;
        let Path(room) = room.map_err(IntoResponse::into_response)?;
        let visitor = Query::<Visitor>::from_request_parts(parts, web).await;
        let Query(Visitor { name }) = visitor.map_err(IntoResponse::into_response)?;
        for (what, text) in [("room", &room), ("person", &name)] {
            if !(1..=NAME_MAX).contains(&text.len()) {
                let error = format!("the name of a {what} has 1 to {NAME_MAX} bytes");
                return Err((StatusCode::BAD_REQUEST, error).into_response());
            }
        }
        Ok(Self { room, name })
    }
}

impl Visit {
    fn room(&self, web: &Web) -> RoomRef {
        web.client.grain::<dyn Room>(self.room.as_str())
    }
}

#[derive(Deserialize)]
struct Shown {
    /// The number of the last line that the page shows. A browser that reconnects by itself says it
    /// in a header.
    #[serde(default)]
    after: u64,
}

async fn live(
    State(web): State<Web>,
    Visit { room, name }: Visit,
    Query(Shown { after }): Query<Shown>,
    LastEventId(seen): LastEventId<u64>,
) -> impl IntoResponse {
    let page = live::page(&web.client, room, name, seen.unwrap_or(after));
    events(page, &web.drain, |event| event)
}

#[derive(Deserialize)]
struct Said {
    text: String,
    token: String,
}

/// The body is JSON, and the header says text: a browser sends that to another origin unasked.
async fn say(State(web): State<Web>, visit: Visit, body: String) -> Response {
    let Said { text, token } = match serde_json::from_str(&body) {
        Ok(said) => said,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    match visit.room(&web).say(visit.name, text, token).timeout(secs(5)).await {
        Ok(number) => Json(number).into_response(),
        Err(CallError::App(error @ SayError::Length(_))) => {
            (StatusCode::BAD_REQUEST, error.to_string()).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

async fn types(State(web): State<Web>, visit: Visit) -> StatusCode {
    let _ = visit.room(&web).types(visit.name).send();
    StatusCode::NO_CONTENT
}
