//! What etcd says about itself.

use emmer_store::examine::{Examination, FindingLevel, FindingSubject};
use emmer_store_keyvalue::{Fault, security};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::client::Client;
use crate::fault::Refused;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Alarms {
    alarms: Vec<Alarm>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Alarm {
    alarm: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Members {
    members: Vec<serde_json::Value>,
}

/// The server's version.
pub(crate) async fn version(client: &Client, deadline: Instant) -> Result<String, Refused> {
    let status: Status = client.ask("/v3/maintenance/status", &json!({}), deadline, true).await?;
    Ok(status.version)
}

/// The whole report. What this user may not ask is left out.
pub(crate) async fn examine(client: &Client) -> Result<Examination, Fault> {
    let deadline = client.deadline();
    let version = version(client, deadline).await.map_err(|refused| refused.failure().fault())?;
    let mut found = Examination::of("etcd", version);
    found.clock = client.clock(deadline).await;
    let ask = json!({"action": "GET"});
    if let Ok(answer) = client.ask::<Alarms>("/v3/maintenance/alarm", &ask, deadline, true).await {
        for alarm in answer.alarms {
            let text = match alarm.alarm.as_str() {
                "NOSPACE" => "the database has reached its quota and takes no writes: compact and \
                              defragment it, or raise --quota-backend-bytes, then run etcdctl \
                              alarm disarm"
                    .to_owned(),
                other => format!("etcd has raised the alarm {other}: see etcdctl alarm list"),
            };
            found.add(FindingLevel::Problem, FindingSubject::Capacity, text);
        }
    }
    if let Ok(answer) =
        client.ask::<Members>("/v3/cluster/member/list", &json!({}), deadline, true).await
        && answer.members.len() == 1
    {
        let text = "etcd has one member: its disk is the only copy of the cluster's tables";
        found.add(FindingLevel::Note, FindingSubject::Durability, text);
    }
    if client.is_open_to_all() {
        security::note_ignored(&mut found, "user and password", "authentication is not enabled");
    }
    let names_no = client.address.user.is_none().then_some("user");
    security::note(&mut found, names_no, (!client.tls).then_some("add ?tls=true"));
    Ok(found)
}
