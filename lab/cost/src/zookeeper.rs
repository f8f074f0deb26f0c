//! What the store costs over zookeeper-client itself, on this machine, in one run. It starts a
//! server of its own (`forceSync=no`: the disk is the same for both sides and would only hide the
//! difference).
//!
//! The driver does by hand what a careful user would: rows as JSON in nodes, a membership commit as
//! one `multi` (write the version row if its version is the one of last time, write one silo row),
//! a read as the list of the children and one `multi` of all rows and heartbeats, which are parsed.

use crate::measure::{ByHand, Outcome, measure, silo};
use emmer_store_zookeeper::ZooKeeperStore;
use emmer_test_servers::{ZooKeeperServer, store};
use serde_json::{Value as Json, json};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, MultiReadResult};

/// The nodes written by hand.
const BY_HAND: &str = "/by_hand";
const SILOS: u64 = 99;

/// The driver, by hand.
struct Raw {
    client: Client,
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

fn row(n: u64) -> String {
    format!("{BY_HAND}/10.0.0.1-11111-{n}")
}

impl Raw {
    async fn open(host: &str) -> Outcome<Self> {
        let client = Client::connect(host).await?;
        let options: CreateOptions<'_> = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(BY_HAND, b"", &options).await?;
        let alive = json!(silo(1).i_am_alive_time.to_string()).to_string();
        for node in [format!("{BY_HAND}/VersionRow")].into_iter().chain((1..=SILOS).map(row)) {
            client.create(&node, b"{}", &options).await?;
            client.create(&format!("{node}/IAmAliveTime"), alive.as_bytes(), &options).await?;
        }
        Ok(Self { client })
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let version = json!({"DeploymentId": "cost", "MembershipVersion": number}).to_string();
        let mut writer = self.client.new_multi_writer();
        // The node was made at version 0, and each commit wrote it once.
        let before = i32::try_from(number - 1)?;
        writer.add_set_data(&format!("{BY_HAND}/VersionRow"), version.as_bytes(), Some(before))?;
        writer.add_set_data(&row(n), document(n).as_bytes(), None)?;
        writer.commit().await?;
        Ok(())
    }

    async fn read(&self) -> Outcome<usize> {
        let names = self.client.list_children(BY_HAND).await?;
        let mut reader = self.client.new_multi_reader();
        for name in &names {
            reader.add_get_data(&format!("{BY_HAND}/{name}"))?;
            reader.add_get_data(&format!("{BY_HAND}/{name}/IAmAliveTime"))?;
        }
        let mut rows = 0;
        for found in reader.commit().await? {
            let MultiReadResult::Data { data, .. } = found else {
                return Err("a node is gone".into());
            };
            let found: Json = serde_json::from_slice(&data)?;
            rows += usize::from(found.is_object());
        }
        Ok(rows)
    }
}

/// Measures.
pub(crate) async fn run(_words: &[String]) -> Outcome<()> {
    let server = ZooKeeperServer::start()?;
    let host = format!("127.0.0.1:{}", server.port());
    measure(&server.url(), store!(ZooKeeperStore), || Raw::open(&host)).await
}
