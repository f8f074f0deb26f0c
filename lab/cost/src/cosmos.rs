//! The store's cost over Microsoft's SDK by hand, on this machine, in one run. It starts the
//! SDK's emulator: of the service's own times it says nothing.
//!
//! By hand is what a careful user would do: a membership commit as one transactional batch, which
//! replaces the version row by its etag and writes the silo's, a read as one query whose items are
//! parsed.

use std::sync::Mutex;

use azure_core::credentials::Secret;
use azure_core::http::Etag;
use azure_data_cosmos::options::{
    BatchReplaceOptions, ConnectionPoolOptions, Precondition, RoutingStrategy,
};
use azure_data_cosmos::{
    AccountEndpoint, AccountReference, ContainerClient, CosmosClientBuilder, CosmosRuntime,
    FeedScope, Query, TransactionalBatch,
};
use emmer_store_cosmos::CosmosStore;
use emmer_test_servers::cosmos::KEY;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{CosmosServer, store};
use futures_util::TryStreamExt as _;
use serde_json::{Value as Json, json};

use crate::measure::{ByHand, Outcome, measure, silo};

const STORE: Store = store!(CosmosStore);
/// The partition of what is written by hand.
const PLACE: &str = "byhand";

/// The SDK, by hand.
struct Raw {
    container: ContainerClient,
    /// The etag of the version row.
    etag: Mutex<String>,
}

/// The item of a silo, as one would write it.
fn item(n: u64) -> Json {
    let silo = silo(n);
    json!({
        "id": format!("10.0.0.1-11111-{n}"), "EmmerPartition": PLACE, "DeploymentId": "cost",
        "Address": silo.address.ip().to_string(), "Port": silo.address.port(), "Generation": n,
        "HostName": &*silo.host_name, "Status": "Active", "ProxyPort": 0, "Primary": false, "RoleName": "",
        "InstanceName": &*silo.instance_name, "UpdateZone": 0, "FaultZone": 0, "SuspectingSilos": [],
        "SuspectingTimes": [], "StartTime": silo.start_time.to_string(),
        "IAmAliveTime": silo.i_am_alive_time.to_string(),
    })
}

fn version(number: i64) -> Json {
    json!({"id": "VersionRow", "EmmerPartition": PLACE, "DeploymentId": "cost", "MembershipVersion": number})
}

impl Raw {
    async fn open(port: u16) -> Outcome<Self> {
        // The store made the container, and chose the cryptography.
        let endpoint: AccountEndpoint = format!("http://127.0.0.1:{port}").parse()?;
        let account = AccountReference::with_authentication_key(endpoint, Secret::new(KEY));
        let pool = ConnectionPoolOptions::builder().with_is_http2_allowed(false).build()?;
        let runtime = CosmosRuntime::builder().with_connection_pool(pool).build().await?;
        let client = CosmosClientBuilder::new()
            .with_runtime(runtime)
            .build(account, RoutingStrategy::PreferredRegions(Vec::new()))
            .await?;
        let container = client.database_client("emmer").container_client("emmer", None).await?;
        let batch = TransactionalBatch::new(PLACE).create_item(version(0))?;
        let raw = Self { container, etag: Mutex::default() };
        raw.run(batch).await?;
        Ok(raw)
    }

    /// Runs a batch, and keeps the etag of its first item.
    async fn run(&self, batch: TransactionalBatch) -> Outcome<()> {
        let answer = self.container.execute_transactional_batch(batch, None).await?.into_model()?;
        if let Some(failed) = answer.results().iter().find(|result| !result.is_success()) {
            return Err(format!("status {}", failed.status_code()).into());
        }
        let etag = answer.results().first().and_then(|result| result.etag()).ok_or("no etag")?;
        *self.etag.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = etag.to_owned();
        Ok(())
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let etag = self.etag.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let seen = Precondition::IfMatch(Etag::from(etag));
        let options = BatchReplaceOptions::default().with_precondition(seen);
        let batch = TransactionalBatch::new(PLACE)
            .replace_item("VersionRow", version(number), Some(options))?
            .upsert_item(item(n), None)?;
        self.run(batch).await
    }

    async fn read(&self) -> Outcome<usize> {
        let (query, scope) = (Query::from("SELECT * FROM c"), FeedScope::partition(PLACE));
        let found = self.container.query_items::<Json>(query, scope, None).await?;
        Ok(found.try_collect::<Vec<Json>>().await?.len())
    }
}

/// Measures.
pub(crate) async fn run(_words: &[String]) -> Outcome<()> {
    let server = CosmosServer::start()?;
    measure(&server.url(), STORE, || Raw::open(server.port())).await
}
