//! The gateway: requests with a token, answers or failures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use emmer_store::{Address, ClockDifference, Parameter, Result, Rules, StoreErrorKind, User};
use emmer_store_keyvalue::http::{Answer, Http, Request};
use emmer_store_keyvalue::layout::{Layout, PREFIX_PARAMETER};
use emmer_store_keyvalue::{Failure, Fault};
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use crate::fault::{Refused, refused};
use crate::wire::Txn;

/// The rules for URLs. etcd has no databases.
const RULES: Rules = Rules {
    schemes: &["etcd"],
    shape: "etcd://user:password@host:port,host:port",
    user: User::BeforePassword,
    hosts_max: 16,
    port: 2_379,
    path: None,
    parameters: &[Parameter::flag("tls"), Parameter::text("ca_file"), PREFIX_PARAMETER],
};

/// A client of one etcd cluster.
pub(crate) struct Client {
    pub(crate) address: Address,
    pub(crate) layout: Layout,
    pub(crate) tls: bool,
    http: Http,
    /// Token of our user, for servers that ask.
    token: Mutex<Option<String>>,
    /// The server asks for no user.
    open_to_all: AtomicBool,
}

impl Client {
    /// Reads a URL; nothing is sent yet. `password` is for a user whose URL has none.
    pub(crate) fn new(url: &str, password: Option<&str>) -> Result<Self> {
        let address = Address::parse(url, &RULES, password)?;
        let (layout, tls) = (Layout::of(&address)?, address.tls(false)?);
        let http = Http::new(&address, tls)?;
        let (token, open_to_all) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { address, layout, tls, http, token, open_to_all })
    }

    /// Returns true if the server was told a name and does not care.
    pub(crate) fn is_open_to_all(&self) -> bool {
        self.open_to_all.load(Ordering::Relaxed)
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.timeout
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a token, if the URL names a user.
    pub(crate) async fn authenticate(&self, deadline: Instant) -> std::result::Result<(), Fault> {
        #[derive(Deserialize)]
        struct Authenticated {
            token: String,
        }
        let Some(user) = &self.address.user else { return Ok(()) };
        let password = self.address.password.as_deref().unwrap_or_default();
        let body = json!({"name": user, "password": password}).to_string();
        let request = Request::new(Method::POST, "/v3/auth/authenticate", body);
        let answer = self.http.send(&request, deadline, true).await.map_err(Failure::fault)?;
        if answer.status != 200 {
            let fault = refused(&answer).failure().fault();
            // A server that asks for no user name does not mind getting one.
            let is_open = fault.detail.contains("authentication is not enabled");
            self.open_to_all.store(is_open, Ordering::Relaxed);
            return if is_open { Ok(()) } else { Err(fault) };
        }
        let found: Authenticated = understood(&answer).map_err(Failure::fault)?;
        *self.token() = Some(found.token);
        Ok(())
    }

    /// Sends a request. Any status except 200 is an error.
    async fn once(
        &self,
        path: &str,
        body: &Json,
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<Answer, Refused> {
        let mut request = Request::new(Method::POST, path, body.to_string());
        request.token = self.token().clone().map(|token| ("authorization", token));
        let answer =
            self.http.send(&request, deadline, repeatable).await.map_err(Refused::Otherwise)?;
        if answer.status == 200 { Ok(answer) } else { Err(refused(&answer)) }
    }

    /// Sends a request, again with a new token when the old one is no longer valid.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Json,
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<T, Refused> {
        let answer = match self.once(path, body, deadline, repeatable).await {
            Err(Refused::Token(_)) if self.address.user.is_some() => {
                let renewed = self.authenticate(deadline).await;
                renewed.map_err(|fault| Refused::Otherwise(Failure::Nothing(fault)))?;
                self.once(path, body, deadline, repeatable).await?
            }
            answered => answered?,
        };
        understood(&answer).map_err(Refused::Otherwise)
    }

    /// Distance of the server's clock from this host's.
    pub(crate) async fn clock(&self, deadline: Instant) -> Option<ClockDifference> {
        let mut request = Request::new(Method::POST, "/v3/maintenance/status", "{}");
        request.token = self.token().clone().map(|token| ("authorization", token));
        self.http.clock(&request, deadline).await
    }

    /// Runs a transaction.
    pub(crate) async fn txn(
        &self,
        body: &Json,
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<Txn, Failure> {
        self.ask("/v3/kv/txn", body, deadline, repeatable).await.map_err(Refused::failure)
    }
}

/// An answer in its expected type. An answer that cannot be understood leaves the outcome open.
fn understood<T: DeserializeOwned>(answer: &Answer) -> std::result::Result<T, Failure> {
    serde_json::from_slice(&answer.body).map_err(|e| {
        let detail = format!("the server answered something else: {e}: {}", answer.words());
        Failure::Broken(Fault::new(StoreErrorKind::Corrupt, detail))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("etcd://bob:s3cret@h/db", "path"),
            ("etcd://:s3cret@h", "without a user"),
            ("etcd://bob:s3cret@h?tls=perhaps", "tls"),
            ("etcd://bob:s3cret@h?ca_file=/not/there", "ca_file"),
            ("etcd://bob:s3cret@h?lease=1", "lease"),
        ] {
            let error = Client::new(url, None).map(|c| c.tls).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
        let client = Client::new("etcd://bob@h", Some("s3cret")).unwrap();
        assert_eq!(client.address.password.as_deref(), Some("s3cret"));
        let shown = format!("{:?}", client.address);
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
