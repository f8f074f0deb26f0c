//! The service's REST API: queries, transactions, tables; each with who asks, in time, and again
//! while the service throttles.

use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::{ClockDifference, Result, StoreErrorKind};
use emmer_store_keyvalue::http::{Answer, Http, Request};
use emmer_store_keyvalue::marks::random;
use emmer_store_keyvalue::{Failure, Fault, Patience};
use reqwest::Method;
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::address::Address;
use crate::batch::{self, BATCH_BYTES_MAX, Done, Operation};
use crate::keys::in_url;

/// The version of the API: the first that takes bearer tokens for tables.
const VERSION: &str = "2020-12-06";

/// A client of one account.
pub(crate) struct Client {
    pub(crate) address: Address,
    base: String,
    http: Http,
}

/// A page of entities, and the query parameters of the next one.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) entities: Vec<Json>,
    pub(crate) next: Option<String>,
}

impl Client {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn new(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let address = Address::parse(url, environment)?;
        let http = Http::new(&address.place, address.tls)?;
        Ok(Self { base: address.base(), address, http })
    }

    /// Time at which an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.place.timeout
    }

    /// A request for `resource` of the account, beginning with a slash, with these query
    /// parameters.
    fn request(
        &self,
        method: Method,
        resource: &str,
        query: &str,
    ) -> std::result::Result<Request, Fault> {
        let path = format!("{}{resource}", self.address.root);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
        let credentials = &self.address.credentials;
        let headers = credentials.headers(&path, now)?;
        // An operation that was given up ends at the service as well.
        let seconds = self.address.place.timeout.as_secs().max(1);
        let mut request = Request::new(
            method,
            format!("{path}?timeout={seconds}{query}{}", credentials.query()),
            "",
        );
        request.headers = headers.into_iter().map(|(name, value)| (name.into(), value)).collect();
        for (name, value) in [
            ("x-ms-version", VERSION),
            ("dataserviceversion", "3.0;NetFx"),
            ("maxdataserviceversion", "3.0;NetFx"),
            ("accept", "application/json;odata=minimalmetadata"),
        ] {
            request.headers.push((name.into(), value.to_owned()));
        }
        Ok(request)
    }

    /// Sends a request, again while the service throttles. Whatever it answers else is an answer.
    async fn send(
        &self,
        request: impl Fn() -> std::result::Result<Request, Fault>,
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<Answer, Failure> {
        let mut patience = Patience::default();
        loop {
            // Signed again each time: signatures grow old.
            let answer = self.http.send(&request()?, deadline, repeatable).await?;
            if !is_throttled(&answer) {
                return Ok(answer);
            }
            let asked = answer.header("retry-after").and_then(|text| text.trim().parse().ok());
            if !patience.wait(asked.map(Duration::from_secs), deadline).await {
                let (words, sent) = (words(&answer), patience.sent());
                let detail = format!("the service throttles: {words}, {sent} times");
                return Err(Failure::Nothing(Fault::unavailable(detail)));
            }
        }
    }

    /// One page of the entities of `table` that match `filter` (all without one), at most `top`:
    /// the first page, or the one at `from`.
    pub(crate) async fn query(
        &self,
        table: &str,
        filter: &str,
        top: usize,
        from: Option<&str>,
        deadline: Instant,
    ) -> std::result::Result<Page, Fault> {
        let filter =
            if filter.is_empty() { String::new() } else { format!("&$filter={}", in_url(filter)) };
        let query = format!("{filter}&$top={top}{}", from.unwrap_or_default());
        let resource = format!("/{table}()");
        let request = || self.request(Method::GET, &resource, &query);
        let answer = self.send(request, deadline, true).await.map_err(Failure::fault)?;
        if answer.status != 200 {
            return Err(failure(&answer).fault());
        }
        let next = |name: &str, parameter: &str| {
            answer.header(name).map(|value| format!("&{parameter}={}", in_url(value)))
        };
        let partition = next("x-ms-continuation-nextpartitionkey", "NextPartitionKey");
        let row = next("x-ms-continuation-nextrowkey", "NextRowKey");
        let next = partition.map(|partition| format!("{partition}{}", row.unwrap_or_default()));
        let mut json: Json = serde_json::from_slice(&answer.body).map_err(|e| {
            Fault::corrupt(format!("the server answered something else: {e}: {}", words(&answer)))
        })?;
        match json.get_mut("value").map(Json::take) {
            Some(Json::Array(entities)) => Ok(Page { entities, next }),
            _ => Err(Fault::corrupt(format!(
                "the server's answer has no entities: {}",
                words(&answer)
            ))),
        }
    }

    /// Runs a transaction on one partition of `table`: at least one operation, at most a hundred.
    pub(crate) async fn transact(
        &self,
        table: &str,
        operations: &[Operation],
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<Done, Failure> {
        let mark = format!("{:016x}{:016x}", random(), random());
        let (body, content_type) =
            batch::encode(&format!("{}/{table}", self.base), operations, &mark);
        if body.len() > BATCH_BYTES_MAX {
            let detail = format!(
                "a commit of {} bytes as it is sent: Azure Table takes {BATCH_BYTES_MAX}",
                body.len()
            );
            return Err(Failure::Nothing(Fault::new(StoreErrorKind::Invalid, detail)));
        }
        let body = bytes::Bytes::from(body);
        let request = || {
            let mut request = self.request(Method::POST, "/$batch", "")?;
            request.body = body.clone();
            request.headers.push(("content-type".into(), content_type.clone()));
            Ok(request)
        };
        let answer = self.send(request, deadline, repeatable).await?;
        match answer.status {
            202 => batch::decode(&String::from_utf8_lossy(&answer.body), operations.len()),
            _ => Err(failure(&answer)),
        }
    }

    /// Makes a table, unless there is one of its name.
    pub(crate) async fn make_table(
        &self,
        name: &str,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        let body = serde_json::json!({ "TableName": name }).to_string();
        let request = || {
            let mut request = self.request(Method::POST, "/Tables", "")?;
            request.body = body.clone().into();
            request.headers.push(("prefer".into(), "return-no-content".to_owned()));
            Ok(request)
        };
        let answer = self.send(request, deadline, true).await.map_err(Failure::fault)?;
        match (answer.status, batch::error(&answer.body).0.as_str()) {
            (200..=299, _) | (409, "TableAlreadyExists") => Ok(()),
            _ => Err(failure(&answer).fault()),
        }
    }

    /// Name of the service, and the distance of its clock from this host's.
    pub(crate) async fn about(
        &self,
        table: &str,
        deadline: Instant,
    ) -> std::result::Result<(String, Option<ClockDifference>), Fault> {
        let resource = format!("/{table}()");
        let request = || self.request(Method::GET, &resource, "&$top=1");
        let answer = self.send(request, deadline, true).await.map_err(Failure::fault)?;
        let server = answer.header("server").unwrap_or_default().to_owned();
        let clock = self.http.clock(&request()?, deadline).await;
        Ok((server, clock))
    }
}

/// Returns true if the service says that it did nothing because there is too much to do.
fn is_throttled(answer: &Answer) -> bool {
    match answer.status {
        429 => true,
        503 => {
            batch::error(&answer.body).0 == "ServerBusy"
                || answer.header("x-ms-error-code") == Some("ServerBusy")
        }
        _ => false,
    }
}

/// An answer in words: code and message, nothing that may hold a secret.
fn words(answer: &Answer) -> String {
    let (code, message) = batch::error(&answer.body);
    format!("HTTP {} {code} {message}", answer.status).trim_end().to_owned()
}

/// An answer that is no success.
fn failure(answer: &Answer) -> Failure {
    let (mut code, message) = batch::error(&answer.body);
    if code.is_empty() {
        code = answer.header("x-ms-error-code").unwrap_or_default().to_owned();
    }
    batch::failure(answer.status, &code, &message)
}
