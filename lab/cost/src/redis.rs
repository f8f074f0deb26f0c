//! What the store costs over the `redis` crate itself, on this machine, in one run. It starts a
//! server of its own that does not wait for the disk (which is the same for both sides and would
//! only hide the difference).
//!
//! The driver does by hand what a careful user would: rows as JSON in one hash, a membership commit
//! as one script that compares the version and writes both rows, a read as one `HGETALL` whose
//! values are parsed.

use crate::measure::{ByHand, Outcome, measure, silo};
use emmer_store_redis::RedisStore;
use emmer_test_servers::RedisServer;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use redis::aio::MultiplexedConnection;

const STORE: Store = store!(RedisStore);

const COMMIT: &str = r"
if redis.call('HGET', KEYS[1], 'VersionRow') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'VersionRow', ARGV[2], ARGV[3], ARGV[4])
if redis.call('HSETNX', KEYS[1], ARGV[3] .. '/IAmAliveTime', ARGV[5]) == 1 then return 2 end
return 1
";

/// The driver, by hand.
struct Raw {
    connection: MultiplexedConnection,
    script: redis::Script,
}

fn version(number: i64) -> String {
    format!(r#"{{"DeploymentId":"cost","MembershipVersion":{number}}}"#)
}

/// The document of a silo, as one would write it.
fn document(n: u64) -> String {
    let silo = silo(n);
    serde_json::json!({
        "DeploymentId": "cost", "Address": silo.address.ip().to_string(), "Port": silo.address.port(),
        "Generation": n, "HostName": &*silo.host_name, "Status": "Active", "ProxyPort": 0, "Primary": "false",
        "RoleName": "", "InstanceName": &*silo.instance_name, "UpdateZone": 0, "FaultZone": 0,
        "SuspectingSilos": [], "SuspectingTimes": [], "StartTime": silo.start_time.to_string(),
    })
    .to_string()
}

impl Raw {
    async fn open(url: &str) -> Outcome<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let raw = Self { connection, script: redis::Script::new(COMMIT) };
        let mut set = redis::cmd("HSET");
        set.arg("by_hand").arg("VersionRow").arg(version(0));
        set.exec_async(&mut raw.connection.clone()).await?;
        Ok(raw)
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let mut call = self.script.key("by_hand");
        call.arg(version(number - 1)).arg(version(number)).arg(format!("10.0.0.1-11111-{n}"));
        call.arg(document(n)).arg(format!("\"{}\"", silo(n).i_am_alive_time));
        let done: i64 = call.invoke_async(&mut self.connection.clone()).await?;
        if done == 0 { Err("the version is another".into()) } else { Ok(()) }
    }

    async fn read(&self) -> Outcome<usize> {
        let mut get = redis::cmd("HGETALL");
        let fields: Vec<(String, Vec<u8>)> =
            get.arg("by_hand").query_async(&mut self.connection.clone()).await?;
        let mut rows = 0;
        for (field, value) in fields {
            let parsed: serde_json::Value = serde_json::from_slice(&value)?;
            rows += usize::from(!field.contains('/') && parsed.is_object());
        }
        Ok(rows)
    }
}

/// Measures.
pub(crate) async fn run(_words: &[String]) -> Outcome<()> {
    let server = RedisServer::start_with(&["--appendonly", "no"])?;
    let url = server.url();
    measure(&url, STORE, || Raw::open(&url)).await
}
