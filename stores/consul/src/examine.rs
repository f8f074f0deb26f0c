//! The words of Consul about itself.

use emmer_store::examine::{Examination, FindingLevel, FindingSubject};
use emmer_store_keyvalue::{Fault, security};
use serde::Deserialize;

use crate::client::Client;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Agent {
    config: Config,
    debug_config: DebugConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Config {
    version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DebugConfig {
    dev_mode: bool,
    #[serde(rename = "ACLsEnabled")]
    acls_enabled: Option<bool>,
}

/// The whole report. What this token may not ask is left out.
pub(crate) async fn examine(client: &Client) -> Result<Examination, Fault> {
    let deadline = client.deadline();
    // A question that every client may ask, to see that a server answers.
    let peers: Vec<String> = client.get("/v1/status/peers", deadline).await?;
    let mut found = Examination::of("Consul", "");
    found.clock = client.clock(deadline).await;
    match client.get::<Agent>("/v1/agent/self", deadline).await {
        Ok(agent) => {
            found.version = agent.config.version;
            if client.has_token() && agent.debug_config.acls_enabled == Some(false) {
                security::note_ignored(&mut found, "token", "access control lists are not enabled");
            }
            if agent.debug_config.dev_mode {
                found.may_lose_writes(
                    "the agent runs in -dev mode and keeps everything in memory: a restart loses \
                     all commits; run a server with -data-dir",
                );
            }
        }
        Err(fault) => found.add(
            FindingLevel::Note,
            FindingSubject::Permission,
            format!(
                "the agent does not describe itself ({}): version and -dev mode are unknown",
                fault.detail
            ),
        ),
    }
    if peers.len() == 1 {
        let text = "Consul has one server: its disk is the only copy of the cluster's tables";
        found.add(FindingLevel::Note, FindingSubject::Durability, text);
    }
    let names_no = (!client.has_token()).then_some("token");
    security::note(&mut found, names_no, (!client.tls).then_some("add ?tls=true"));
    Ok(found)
}
