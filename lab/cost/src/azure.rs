//! What the store costs over the REST API by hand, on this machine, in one run. It starts an
//! emulator of its own: of the service's own times it says nothing.
//!
//! By hand is what a careful user would do with `reqwest`: a membership commit as one entity group
//! transaction, which replaces the version row by its etag and writes the silo's, a read as one
//! query whose values are parsed. Both are let in by a shared access signature.

#[path = "../../../stores/azure/tests/it/common.rs"]
#[allow(clippy::unwrap_used, reason = "shared with the tests")]
mod common;

use std::sync::Mutex;

use crate::measure::{ByHand, Outcome, measure, silo};
use common::{sas, url_with};
use emmer_store_azure::AzureTableStore;
use emmer_test_servers::azurite::ACCOUNT;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{AzuriteServer, store};
use serde_json::{Value as Json, json};

const STORE: Store = store!(AzureTableStore);
const JSON: &str = "application/json;odata=minimalmetadata";

/// The API, by hand.
struct Raw {
    client: reqwest::Client,
    base: String,
    sas: String,
    /// The etag of the version row.
    etag: Mutex<String>,
}

/// The entity of a silo, as one would write it.
fn entity(n: u64) -> Json {
    let silo = silo(n);
    json!({
        "PartitionKey": "cost", "RowKey": format!("10.0.0.1-11111-{n}"), "DeploymentId": "cost",
        "Address": silo.address.ip().to_string(), "Port": silo.address.port().to_string(), "Port@odata.type": "Edm.Int64",
        "Generation": n.to_string(), "Generation@odata.type": "Edm.Int64", "HostName": &*silo.host_name,
        "Status": "Active", "ProxyPort": "0", "ProxyPort@odata.type": "Edm.Int64", "Primary": "false", "RoleName": "",
        "InstanceName": &*silo.instance_name, "UpdateZone": 0, "FaultZone": 0, "SuspectingSilos": "[]",
        "SuspectingTimes": "[]", "StartTime": silo.start_time.to_string(), "StartTime@odata.type": "Edm.DateTime",
        "IAmAliveTime": silo.i_am_alive_time.to_string(), "IAmAliveTime@odata.type": "Edm.DateTime",
    })
}

fn version(number: i64) -> Json {
    json!({"PartitionKey": "cost", "RowKey": "VersionRow", "DeploymentId": "cost", "MembershipVersion": number.to_string(),
           "MembershipVersion@odata.type": "Edm.Int64"})
}

impl Raw {
    async fn open(port: u16) -> Outcome<Self> {
        let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let base = format!("http://127.0.0.1:{port}/{ACCOUNT}");
        let raw = Self { client, base, sas: sas("rwdlacu"), etag: Mutex::default() };
        raw.post("Tables", &json!({"TableName": "byhand"})).await?;
        let etag = raw.post("byhand", &version(0)).await?;
        raw.keep(etag);
        Ok(raw)
    }

    fn keep(&self, etag: String) {
        *self.etag.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = etag;
    }

    async fn post(&self, resource: &str, body: &Json) -> Outcome<String> {
        let url = format!("{}/{resource}?{}", self.base, self.sas);
        let sent = self
            .client
            .post(url)
            .header("accept", JSON)
            .json(body)
            .send()
            .await?
            .error_for_status()?;
        let etag = sent.headers().get("etag").and_then(|etag| etag.to_str().ok());
        Ok(etag.unwrap_or_default().to_owned())
    }

    fn put(&self, row: &str, if_match: &str, body: &Json) -> String {
        format!(
            "--changeset_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: \
             binary\r\n\r\n\
             PUT {}/byhand(PartitionKey='cost',RowKey='{row}') HTTP/1.1\r\nAccept: \
             {JSON}\r\n{if_match}\
             Content-Type: application/json\r\n\r\n{body}\r\n",
            self.base
        )
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let etag = self.etag.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let body = format!(
            "--batch_1\r\nContent-Type: multipart/mixed; \
             boundary=changeset_1\r\n\r\n{}{}--changeset_1--\r\n--batch_1--\r\n",
            self.put("VersionRow", &format!("If-Match: {etag}\r\n"), &version(number)),
            self.put(&format!("10.0.0.1-11111-{n}"), "", &entity(n)),
        );
        let request = self.client.post(format!("{}/$batch?{}", self.base, self.sas));
        let request = request
            .header("content-type", "multipart/mixed; boundary=batch_1")
            .header("accept", JSON);
        let answer = request.body(body).send().await?.error_for_status()?.text().await?;
        let mut etags = answer.lines().filter_map(|line| line.strip_prefix("ETag: "));
        match (answer.matches("HTTP/1.1 204").count(), etags.next()) {
            (2, Some(etag)) => self.keep(etag.trim().to_owned()),
            _ => return Err(answer.into()),
        }
        Ok(())
    }

    async fn read(&self) -> Outcome<usize> {
        let url =
            format!("{}/byhand()?$filter=PartitionKey%20eq%20%27cost%27&{}", self.base, self.sas);
        let answer: Json = self
            .client
            .get(url)
            .header("accept", JSON)
            .send()
            .await?
            .error_for_status()?
            .json()
            .await?;
        Ok(answer["value"].as_array().ok_or("no entities")?.len())
    }
}

/// Measures.
pub(crate) async fn run(_words: &[String]) -> Outcome<()> {
    let server = AzuriteServer::start()?;
    measure(&url_with(&sas("rwdlacu"), server.port()), STORE, || Raw::open(server.port())).await
}
