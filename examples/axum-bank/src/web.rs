//! The bank over HTTP. Any number of these servers may run: each is a client of the cluster.

use std::convert::Infallible;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use emmer::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::{Account, BankError, Ending, Order, Transfer};

/// The money that an account is opened with or has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// In cents.
    pub cents: u64,
}

/// The routes. One client serves all requests: it is cheap to clone, and axum clones it for each.
pub fn routes(client: Client) -> Router {
    Router::new()
        .route("/accounts/{number}", put(open).get(balance))
        .route("/transfers/{id}", put(transfer).get(progress))
        .route("/readyz", get(ready))
        .with_state(client)
}

async fn open(
    State(client): State<Client>,
    Path(number): Path<String>,
    Json(Balance { cents }): Json<Balance>,
) -> Result<StatusCode, Refusal> {
    client.grain::<dyn Account>(number).open(cents).timeout(secs(10)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn balance(
    State(client): State<Client>,
    Path(number): Path<String>,
) -> Result<Response, Refusal> {
    let cents = client.grain::<dyn Account>(number).balance().timeout(secs(10)).await?;
    Ok(found(cents.map(|cents| Balance { cents })))
}

/// A customer that gets no answer asks again with the same identifier: the money moves once.
async fn transfer(
    State(client): State<Client>,
    Path(id): Path<String>,
    Json(order): Json<Order>,
) -> Result<Response, Refusal> {
    let ending = client.grain::<dyn Transfer>(id).make(order).timeout(secs(10)).await?;
    let status = match ending {
        Ending::Done => StatusCode::OK,
        Ending::Refused => StatusCode::CONFLICT,
    };
    Ok((status, Json(json!({ "ending": ending }))).into_response())
}

async fn progress(
    State(client): State<Client>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let progress = client.grain::<dyn Transfer>(id).progress().timeout(secs(10)).await?;
    Ok(found(progress.map(|progress| json!({ "progress": progress }))))
}

/// Says whether this server reaches the cluster.
async fn ready(State(client): State<Client>) -> StatusCode {
    let is_connected = client.gateway_watch().state().is_connected();
    if is_connected { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn found(value: Option<impl Serialize>) -> Response {
    value.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |it| Json(it).into_response())
}

/// The answer to a request that was not carried out.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<CallError<BankError>> for Refusal {
    fn from(error: CallError<BankError>) -> Self {
        let status = match error {
            CallError::App(BankError::Order(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl From<CallError<Infallible>> for Refusal {
    fn from(error: CallError<Infallible>) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}
