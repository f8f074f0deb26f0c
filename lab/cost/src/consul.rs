//! What the store costs over Consul's HTTP API by hand, on this machine, in one run. It starts a
//! server of its own.
//!
//! By hand is what a careful user would do with `reqwest`: rows as JSON, a membership commit as one
//! transaction that writes the version row if it has the index of last time and the silo's row if
//! it is as it was, a read as one consistent recursive read whose values are parsed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::measure::{ByHand, Outcome, measure, silo};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_store_consul::ConsulStore;
use emmer_test_servers::ConsulServer;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use serde_json::{Value as Json, json};

const STORE: Store = store!(ConsulStore);

/// The API, by hand.
struct Raw {
    client: reqwest::Client,
    base: String,
    /// When each key was written.
    indexes: Mutex<BTreeMap<String, u64>>,
}

/// The document of a silo, as one would write it. It says which commit wrote it: Consul keeps the
/// index of what is written as it was.
fn document(number: i64, n: u64) -> String {
    let silo = silo(n);
    json!({
        "Commit": number,
        "DeploymentId": "cost", "Address": silo.address.ip().to_string(), "Port": silo.address.port(),
        "Generation": n, "HostName": &*silo.host_name, "Status": "Active", "ProxyPort": 0, "Primary": "false",
        "RoleName": "", "InstanceName": &*silo.instance_name, "UpdateZone": 0, "FaultZone": 0,
        "SuspectingSilos": [], "SuspectingTimes": [], "StartTime": silo.start_time.to_string(),
    })
    .to_string()
}

impl Raw {
    fn open(port: u16) -> Outcome<Self> {
        let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        Ok(Self { client, base: format!("http://127.0.0.1:{port}"), indexes: Mutex::default() })
    }

    fn cas(&self, key: &str, value: &str) -> Json {
        let index = self
            .indexes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .copied()
            .unwrap_or(0);
        json!({"KV": {"Verb": "cas", "Key": key, "Value": BASE64.encode(value), "Index": index}})
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let version = json!({"DeploymentId": "cost", "MembershipVersion": number}).to_string();
        let row = format!("by_hand/10.0.0.1-11111-{n}");
        let mut operations =
            vec![self.cas("by_hand/VersionRow", &version), self.cas(&row, &document(number, n))];
        if operations[1]["KV"]["Index"] == 0 {
            let alive = silo(n).i_am_alive_time.to_string();
            let alive = json!({"Verb": "set", "Key": format!("{row}/IAmAliveTime"), "Value": BASE64.encode(alive)});
            operations.push(json!({"KV": alive}));
        }
        let sent =
            self.client.put(format!("{}/v1/txn", self.base)).json(&operations).send().await?;
        let answer: Json = sent.error_for_status()?.json().await?;
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        for result in answer["Results"].as_array().ok_or("no results")? {
            let (key, index) = (result["KV"]["Key"].as_str(), result["KV"]["ModifyIndex"].as_u64());
            indexes.insert(key.ok_or("no key")?.to_owned(), index.ok_or("no index")?);
        }
        Ok(())
    }

    async fn read(&self) -> Outcome<usize> {
        let sent = self
            .client
            .get(format!("{}/v1/kv/by_hand/?recurse&consistent", self.base))
            .send()
            .await?;
        let answer: Json = sent.error_for_status()?.json().await?;
        let mut rows = 0;
        for kv in answer.as_array().ok_or("no keys")? {
            let value = BASE64.decode(kv["Value"].as_str().unwrap_or_default())?;
            let is_row = kv["Key"].as_str().unwrap_or_default().matches('/').count() == 1;
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
    let server = ConsulServer::start()?;
    measure(&server.url(), STORE, async || Raw::open(server.port())).await
}
