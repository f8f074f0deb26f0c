//! Consul's HTTP API: requests with a token, answers or failures.

use emmer_store::{Address, ClockDifference, Parameter, Result, Rules, StoreErrorKind, User};
use emmer_store_keyvalue::http::{Answer, Http, Request};
use emmer_store_keyvalue::layout::{Layout, PREFIX_PARAMETER};
use emmer_store_keyvalue::{Failure, Fault};
use reqwest::Method;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::wire::{Error, KeyValue, Operation, TRANSACTION_BYTES_MAX, Txn};

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["consul"],
    shape: "consul://host:port,host:port",
    user: User::Never("a user before the hosts: Consul knows tokens, use ?token="),
    hosts_max: 16,
    port: 8_500,
    path: None,
    parameters: &[
        Parameter::text("token"),
        Parameter::text("dc"),
        Parameter::flag("tls"),
        Parameter::text("ca_file"),
        PREFIX_PARAMETER,
    ],
};
/// The header of the token.
const TOKEN: &str = "x-consul-token";

/// A client of one Consul datacenter.
pub(crate) struct Client {
    pub(crate) address: Address,
    pub(crate) layout: Layout,
    pub(crate) tls: bool,
    http: Http,
    token: Option<String>,
    /// `dc=...`, or nothing.
    datacenter: String,
}

/// A transaction that did nothing because some of its operations failed.
pub(crate) type Refused = Vec<Error>;

impl Client {
    /// Reads a URL; nothing is sent yet. `token` stands in for one the URL leaves out.
    pub(crate) fn new(url: &str, token: Option<String>) -> Result<Self> {
        let address = Address::parse(url, &RULES, None)?;
        let token =
            address.text("token").map(str::to_owned).or(token).filter(|token| !token.is_empty());
        if token.as_ref().is_some_and(|token| token.chars().any(|c| !c.is_ascii_graphic())) {
            return Err(address.invalid("the token has characters that no token has"));
        }
        let datacenter = address.text("dc").unwrap_or_default();
        if !datacenter.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return Err(address.invalid("dc is not made of letters, digits, '-' and '_'"));
        }
        let datacenter =
            if datacenter.is_empty() { String::new() } else { format!("&dc={datacenter}") };
        let (layout, tls) = (Layout::of(&address)?, address.tls(false)?);
        let http = Http::new(&address, tls)?;
        Ok(Self { address, layout, tls, http, token, datacenter })
    }

    /// Returns true if requests say who we are.
    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Time at which an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.timeout
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        body: Vec<u8>,
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<Answer, Failure> {
        let mut request = Request::new(method, path, body);
        request.token = self.token.clone().map(|token| (TOKEN, token));
        self.http.send(&request, deadline, repeatable).await
    }

    /// Runs a transaction. The inner error is Consul's refusal: it did nothing.
    pub(crate) async fn txn(
        &self,
        operations: &[Operation],
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<std::result::Result<Txn, Refused>, Failure> {
        let encode = |e: serde_json::Error| {
            Failure::Nothing(Fault::new(StoreErrorKind::Invalid, e.to_string()))
        };
        let body = serde_json::to_vec(operations).map_err(encode)?;
        // For reads only: the leader asks the others whether it still is the leader. Writes need
        // their agreement anyway.
        let query = if operations.iter().any(Operation::writes) {
            self.datacenter.trim_start_matches('&').to_owned()
        } else {
            format!("consistent{}", self.datacenter)
        };
        let path = format!("/v1/txn?{query}");
        let answer = self.send(Method::PUT, path, body, deadline, repeatable).await?;
        match answer.status {
            200 => Ok(Ok(understood(&answer)?)),
            409 => {
                let found: Txn = understood(&answer)?;
                match found.errors.iter().find(|error| error.what.contains("ermission denied")) {
                    // The same status as a lost race, and something quite different.
                    Some(error) => Err(refusing(StoreErrorKind::Refused, &error.what)),
                    None => Ok(Err(found.errors)),
                }
            }
            _ => Err(refused(&answer)),
        }
    }

    /// All keys that begin with one of `prefixes`, as of one moment.
    pub(crate) async fn read(
        &self,
        prefixes: &[&str],
        deadline: Instant,
    ) -> std::result::Result<Vec<KeyValue>, Fault> {
        let reads: Vec<Operation> =
            prefixes.iter().map(|prefix| Operation::get_tree(prefix)).collect();
        match self.txn(&reads, deadline, true).await.map_err(Failure::fault)? {
            Ok(found) => Ok(found.into_keys()),
            Err(errors) => Err(Fault::corrupt(words(&errors))),
        }
    }

    /// The names right below `prefix`, in order. Names with others below them end in `/`.
    pub(crate) async fn names(
        &self,
        prefix: &str,
        deadline: Instant,
    ) -> std::result::Result<Vec<String>, Fault> {
        let path =
            format!("/v1/kv/{}?keys&separator=/&consistent{}", in_path(prefix), self.datacenter);
        let answer = self
            .send(Method::GET, path, Vec::new(), deadline, true)
            .await
            .map_err(Failure::fault)?;
        match answer.status {
            200 => understood(&answer).map_err(Failure::fault),
            404 => Ok(Vec::new()),
            _ => Err(refused(&answer).fault()),
        }
    }

    /// Distance of the server's clock from this host's.
    pub(crate) async fn clock(&self, deadline: Instant) -> Option<ClockDifference> {
        self.http.clock(&Request::new(Method::GET, "/v1/status/leader", ""), deadline).await
    }

    /// Answer of a path.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        deadline: Instant,
    ) -> std::result::Result<T, Fault> {
        let path = format!("{path}?{}", self.datacenter.trim_start_matches('&'));
        let answer = self
            .send(Method::GET, path, Vec::new(), deadline, true)
            .await
            .map_err(Failure::fault)?;
        if answer.status != 200 {
            return Err(refused(&answer).fault());
        }
        understood(&answer).map_err(Failure::fault)
    }
}

/// Words of Consul about operations that failed.
pub(crate) fn words(errors: &[Error]) -> String {
    let all: Vec<&str> = errors.iter().map(|error| error.what.as_str()).take(3).collect();
    all.join("; ")
}

/// A key as part of a path.
fn in_path(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// An answer in its expected type. An answer that cannot be understood leaves the outcome open.
fn understood<T: DeserializeOwned>(answer: &Answer) -> std::result::Result<T, Failure> {
    serde_json::from_slice(&answer.body).map_err(|e| {
        Failure::Broken(Fault::corrupt(format!(
            "the server answered something else: {e}: {}",
            answer.words()
        )))
    })
}

fn refusing(kind: StoreErrorKind, detail: &str) -> Failure {
    Failure::Nothing(Fault::new(kind, detail))
}

/// An answer that is neither done nor a refusal of operations.
fn refused(answer: &Answer) -> Failure {
    use StoreErrorKind::{Invalid, Refused, Unavailable};
    let words = answer.words();
    match answer.status {
        401 | 403 => refusing(Refused, &words),
        404 | 405 => {
            refusing(Refused, &format!("there is no /v1/txn: this is no Consul ({words})"))
        }
        413 => refusing(
            Invalid,
            &format!(
                "{words}; one commit takes at most {TRANSACTION_BYTES_MAX} bytes as it is sent"
            ),
        ),
        429 => refusing(Unavailable, &words),
        400..=499 => refusing(Refused, &words),
        // It was given to no leader.
        _ if words.contains("No cluster leader") => refusing(Unavailable, &words),
        _ if words.contains("No path to datacenter") => refusing(Refused, &words),
        // A leader that was lost while it committed, a server that is stopping.
        _ => Failure::Broken(Fault::unavailable(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named_without_the_token() {
        for (url, word) in [
            ("consul://h/kv?token=s3cret", "path"),
            ("consul://bob:s3cret@h", "token"),
            ("consul://h?token=s3cret%0a", "characters"),
            ("consul://h?token=s3cret&dc=a%2Fb", "dc"),
            ("consul://h?token=s3cret&tls=perhaps", "tls"),
            ("consul://h?token=s3cret&ns=x", "ns"),
        ] {
            let error = Client::new(url, None).map(|c| c.tls).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
        let client = Client::new("consul://h?dc=eu", Some("s3cret".to_owned())).unwrap();
        let shown = format!("{:?}", client.address);
        assert!(client.has_token() && !shown.contains("s3cret"), "{shown}");
        assert_eq!(client.datacenter, "&dc=eu");
    }

    #[test]
    fn keys_in_paths_mean_themselves() {
        assert_eq!(in_path("emmer/t/a%2Fb c?é/"), "emmer/t/a%252Fb%20c%3F%C3%A9/");
    }

    #[test]
    fn what_may_have_happened_is_told_from_what_did_not() {
        let of = |status, body: &'static str| refused(&Answer::of(status, body));
        for (status, body, kind) in [
            (403, "ACL not found", StoreErrorKind::Refused),
            (413, "too large", StoreErrorKind::Invalid),
            (500, "No cluster leader", StoreErrorKind::Unavailable),
            (500, "No path to datacenter", StoreErrorKind::Refused),
        ] {
            match of(status, body) {
                Failure::Nothing(fault) => assert_eq!(fault.kind, kind, "{body}"),
                other => panic!("{body}: {other:?}"),
            }
        }
        for body in ["leadership lost while committing log", "rpc error making call: EOF"] {
            assert!(matches!(of(500, body), Failure::Broken(_)), "{body}");
        }
    }
}
