//! What the store costs over mysql_async itself, on this machine, in one run. Without a URL it
//! starts a MariaDB of its own (`innodb_flush_log_at_trx_commit=2`: the disk is the same for both
//! sides and would only hide the difference).

use std::sync::Arc;

use crate::measure::{ByHand, Outcome, measure};
use emmer_store::{BoxFuture, SystemStore};
use emmer_store_mysql::MysqlStore;
use emmer_test_servers::MariadbServer;
use emmer_test_servers::suite::Store;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row, Statement, Value};
use tokio::sync::Mutex;

fn open(url: String) -> BoxFuture<'static, emmer_store::Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(MysqlStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

/// Measures.
pub(crate) async fn run(words: &[String]) -> Outcome<()> {
    let mut own = None;
    let url = match words.first() {
        Some(url) => url.clone(),
        None => own.insert(MariadbServer::start()?).url_of("emmer"),
    };
    measure(&url, Store { open, patient: "", hasty: "" }, || Raw::open(&url)).await?;
    drop(own);
    Ok(())
}

/// The driver, with the statements a careful user would write by hand.
struct Raw {
    conn: Mutex<Conn>,
    version: Statement,
    silo: Statement,
    read: Statement,
}

impl Raw {
    async fn open(url: &str) -> Outcome<Self> {
        let options = OptsBuilder::from_opts(mysql_async::Opts::from_url(
            &url.replace("mariadb://", "mysql://"),
        )?);
        let mut conn = Conn::new(options.prefer_socket(false)).await?;
        for statement in [
            "SET NAMES utf8mb4",
            "CREATE TABLE by_hand LIKE silo_instances",
            "INSERT INTO by_hand (PartitionKey, RowKey, etag, MembershipVersion) VALUES ('cost', \
             'VersionRow', 0, 0)",
        ] {
            conn.query_drop(statement).await?;
        }
        let version = "UPDATE by_hand SET etag = ?, MembershipVersion = ? \
                       WHERE PartitionKey = 'cost' AND RowKey = 'VersionRow' AND etag = ?";
        let silo = "INSERT INTO by_hand VALUES ('cost', ?, ?, 'cost', '10.0.0.1', 11111, ?, ?, \
                    'Active', 0, 'false', '', ?, 0, 0, '[]', '[]', '1970-01-01', '1970-01-01', \
                    NULL) ON DUPLICATE KEY UPDATE etag = VALUES(etag), DeploymentId = \
                    VALUES(DeploymentId), Address = VALUES(Address), Port = VALUES(Port), \
                    Generation = VALUES(Generation), HostName = VALUES(HostName), Status = \
                    VALUES(Status), ProxyPort = VALUES(ProxyPort), `Primary` = VALUES(`Primary`), \
                    RoleName = VALUES(RoleName), InstanceName = VALUES(InstanceName), UpdateZone = \
                    VALUES(UpdateZone), FaultZone = VALUES(FaultZone), SuspectingSilos = \
                    VALUES(SuspectingSilos), SuspectingTimes = VALUES(SuspectingTimes), StartTime \
                    = VALUES(StartTime)";
        let read = "SELECT RowKey, etag, DeploymentId, Address, Port, Generation, HostName, \
                    Status, ProxyPort, `Primary`, RoleName, InstanceName, UpdateZone, FaultZone, \
                    SuspectingSilos, SuspectingTimes, StartTime, IAmAliveTime, MembershipVersion \
                    FROM by_hand WHERE PartitionKey = ? ORDER BY RowKey";
        let (version, silo, read) =
            (conn.prep(version).await?, conn.prep(silo).await?, conn.prep(read).await?);
        Ok(Self { conn: Mutex::new(conn), version, silo, read })
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, silo: u64) -> Outcome<()> {
        let mut conn = self.conn.lock().await;
        conn.query_drop("BEGIN").await?;
        conn.exec_drop(&self.version, (number, number, number - 1)).await?;
        let moved = conn.affected_rows();
        let key = format!("10.0.0.1-11111-{silo}");
        let (host, name) = ("host-17.rack-3.example.net", "silo-17");
        conn.exec_drop(&self.silo, (key, number, silo, host, name)).await?;
        let wrote = conn.affected_rows();
        conn.query_drop("COMMIT").await?;
        if moved == 1 && wrote > 0 { Ok(()) } else { Err("the update missed".into()) }
    }

    async fn read(&self) -> Outcome<usize> {
        let mut conn = self.conn.lock().await;
        let rows: Vec<Row> = conn.exec(&self.read, ("cost",)).await?;
        let mut cells = 0;
        for row in &rows {
            for at in 0..19 {
                cells += usize::from(match row.as_ref(at) {
                    Some(Value::Bytes(text)) => String::from_utf8(text.clone()).is_ok(),
                    Some(Value::NULL) | None => false,
                    Some(_) => true,
                });
            }
        }
        if cells < rows.len() { Err("no cells".into()) } else { Ok(rows.len()) }
    }
}
