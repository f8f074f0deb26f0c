//! What the store costs over etcd's JSON gateway by hand, on this machine, in one run. It starts a
//! server of its own that does not wait for the disk (which is the same for both sides and would
//! only hide the difference).
//!
//! By hand is what a careful user would do with `reqwest`: rows as JSON, a membership commit as one
//! transaction that compares the version row's revision and writes both rows, a read as one range
//! whose values are parsed.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::measure::{ByHand, Outcome, measure, silo};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_store_etcd::EtcdStore;
use emmer_test_servers::EtcdServer;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use serde_json::{Value as Json, json};

const STORE: Store = store!(EtcdStore);

/// The gateway, by hand.
struct Raw {
    client: reqwest::Client,
    base: String,
    /// The revision of the version row.
    revision: AtomicI64,
}

/// The document of a silo, as one would write it.
fn document(n: u64) -> String {
    let silo = silo(n);
    json!({
        "DeploymentId": "cost", "Address": silo.address.ip().to_string(), "Port": silo.address.port(),
        "Generation": n, "HostName": &*silo.host_name, "Status": "Active", "ProxyPort": 0, "Primary": "false",
        "RoleName": "", "InstanceName": &*silo.instance_name, "UpdateZone": 0, "FaultZone": 0,
        "SuspectingSilos": [], "SuspectingTimes": [], "StartTime": silo.start_time.to_string(),
    })
    .to_string()
}

fn put(key: &str, value: &str) -> Json {
    json!({"request_put": {"key": BASE64.encode(key), "value": BASE64.encode(value)}})
}

impl Raw {
    async fn open(port: u16) -> Outcome<Self> {
        let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let raw =
            Self { client, base: format!("http://127.0.0.1:{port}"), revision: AtomicI64::new(0) };
        let body = json!({"key": BASE64.encode("by_hand/VersionRow"), "value": BASE64.encode("0")});
        raw.keep_revision(&raw.post("/v3/kv/put", &body).await?)?;
        Ok(raw)
    }

    async fn post(&self, path: &str, body: &Json) -> Outcome<Json> {
        let sent = self.client.post(format!("{}{path}", self.base)).json(body).send().await?;
        Ok(sent.error_for_status()?.json().await?)
    }

    fn keep_revision(&self, answer: &Json) -> Outcome<()> {
        let revision = answer["header"]["revision"].as_str().ok_or("no revision")?;
        self.revision.store(revision.parse()?, Ordering::Relaxed);
        Ok(())
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let revision = self.revision.load(Ordering::Relaxed).to_string();
        let version = json!({"DeploymentId": "cost", "MembershipVersion": number}).to_string();
        let row = format!("by_hand/10.0.0.1-11111-{n}");
        let alive = put(&format!("{row}/IAmAliveTime"), &silo(n).i_am_alive_time.to_string());
        let body = json!({
            "compare": [{"key": BASE64.encode("by_hand/VersionRow"), "target": "MOD", "mod_revision": revision}],
            "success": [
                put("by_hand/VersionRow", &version),
                {"request_txn": {
                    "compare": [{"key": BASE64.encode(&row), "target": "CREATE", "create_revision": "0"}],
                    "success": [put(&row, &document(n)), alive],
                    "failure": [put(&row, &document(n))],
                }},
            ],
        });
        let answer = self.post("/v3/kv/txn", &body).await?;
        if answer["succeeded"].as_bool() != Some(true) {
            return Err("the version is another".into());
        }
        self.keep_revision(&answer)
    }

    async fn read(&self) -> Outcome<usize> {
        let body =
            json!({"key": BASE64.encode("by_hand/"), "range_end": BASE64.encode("by_hand0")});
        let answer = self.post("/v3/kv/range", &body).await?;
        let mut rows = 0;
        for kv in answer["kvs"].as_array().ok_or("no keys")? {
            let key = String::from_utf8(BASE64.decode(kv["key"].as_str().unwrap_or_default())?)?;
            let value = BASE64.decode(kv["value"].as_str().unwrap_or_default())?;
            let is_row = key.matches('/').count() == 1;
            // Heartbeats are texts.
            let parsed: Json = if is_row {
                serde_json::from_slice(&value)?
            } else {
                String::from_utf8(value)?.into()
            };
            rows += usize::from(is_row && !parsed.is_null());
        }
        Ok(rows)
    }
}

/// Measures.
pub(crate) async fn run(_words: &[String]) -> Outcome<()> {
    let server = EtcdServer::start()?;
    measure(&server.url(), STORE, || Raw::open(server.port())).await
}
