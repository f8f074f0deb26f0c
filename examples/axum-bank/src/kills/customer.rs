//! Customers of the bank, over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::api::{Ending, Progress};

/// One in this many transfers is given up by its customer.
const GIVES_UP: u32 = 20;
/// The pause before a customer asks again.
const AGAIN: Duration = Duration::from_millis(100);

/// The bank's web server as its customers see it.
#[derive(Clone)]
pub(super) struct Bank {
    address: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl Bank {
    pub(super) fn at(address: SocketAddr) -> Self {
        Self { address, http: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Opens an account, however long it takes.
    pub(super) async fn open(&self, account: u64, cents: u32) {
        let path = format!("/accounts/{account}");
        let body = json!({ "cents": cents });
        while self.ask(Method::PUT, &path, Some(&body)).await.is_none() {
            sleep(AGAIN).await;
        }
    }

    /// The money on an account; none on one that is not open.
    pub(super) async fn balance(&self, account: u64) -> u64 {
        let answer = self.ask_again(Method::GET, &format!("/accounts/{account}"), None).await;
        answer.1["cents"].as_u64().unwrap_or(0)
    }

    /// Makes a transfer, however often it has to be asked for.
    pub(super) async fn transfer(&self, id: &str, from: u64, to: u64, cents: u32) -> Ending {
        let order = order(from, to, cents);
        match self.ask_again(Method::PUT, &format!("/transfers/{id}"), Some(&order)).await.0 {
            StatusCode::OK => Ending::Done,
            _ => Ending::Refused,
        }
    }

    /// Where a transfer stands; none if the bank does not know it.
    pub(super) async fn progress(&self, id: &str) -> Option<Progress> {
        let answer = self.ask_again(Method::GET, &format!("/transfers/{id}"), None).await.1;
        Progress::deserialize(&answer["progress"]).ok()
    }

    async fn ask_again(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        loop {
            if let Some(answer) = self.ask(method.clone(), path, body).await {
                return answer;
            }
            sleep(AGAIN).await;
        }
    }

    /// An answer; none if there was none, or if the bank says to ask again.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(StatusCode, Value)> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .body(Full::from(body))
            .ok()?;
        let answer = self.http.request(request).await.ok()?;
        let status = answer.status();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        let value = serde_json::from_slice(&body).unwrap_or_default();
        (status != StatusCode::SERVICE_UNAVAILABLE).then_some((status, value))
    }
}

fn order(from: u64, to: u64, cents: u32) -> Value {
    json!({ "from": from.to_string(), "to": to.to_string(), "cents": cents })
}

/// A transfer that a customer has asked for.
pub(super) struct Made {
    pub(super) id: String,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) cents: u32,
    /// The answer to the customer; None if it did not wait.
    pub(super) told: Option<Ending>,
}

/// Moves money between accounts, one transfer after the other.
pub(super) struct Customer {
    number: u64,
    rng: StdRng,
    accounts: u64,
    bank: Bank,
    is_over: Arc<AtomicBool>,
}

impl Customer {
    pub(super) fn new(
        number: u64,
        seed: u64,
        accounts: u64,
        bank: Bank,
        is_over: Arc<AtomicBool>,
    ) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ number.wrapping_add(1).rotate_left(32));
        Self { number, rng, accounts, bank, is_over }
    }

    /// Makes transfers until `is_over` is set, and returns all of them.
    pub(super) async fn shop(mut self) -> Vec<Made> {
        let mut made = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let id = format!("{}-{}", self.number, made.len());
            let from = self.rng.random_range(0..self.accounts);
            let to = (from + self.rng.random_range(1..self.accounts)) % self.accounts;
            let cents = self.rng.random_range(1..5_000);
            let gives_up = self.rng.random_ratio(1, GIVES_UP);
            let transfer = self.bank.transfer(&id, from, to, cents);
            let told = if gives_up {
                // Cut off at any moment of it, or before it has begun.
                let patience = Duration::from_millis(self.rng.random_range(0..50));
                timeout(patience, transfer).await.ok()
            } else {
                Some(transfer.await)
            };
            made.push(Made { id, from, to, cents, told });
        }
        made
    }
}
