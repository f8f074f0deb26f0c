//! What the store costs over tokio-postgres itself, on this machine, in one run. Without a URL it
//! starts a server of its own (`fsync=off`: the disk is the same for both sides and would only hide
//! the difference).

use std::sync::Arc;

use crate::measure::{ByHand, Outcome, measure};
use emmer_store::{BoxFuture, SystemStore};
use emmer_store_postgres::PostgresStore;
use emmer_test_servers::PostgresServer;
use emmer_test_servers::suite::Store;
use futures_util::future::try_join3;
use tokio_postgres::{Client, NoTls, Statement};

fn open(url: String) -> BoxFuture<'static, emmer_store::Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(PostgresStore::open(&url).await?) as Arc<dyn SystemStore>) })
}

/// Measures.
pub(crate) async fn run(words: &[String]) -> Outcome<()> {
    let mut own = None;
    let url = match words.first() {
        Some(url) => url.clone(),
        None => own.insert(PostgresServer::start()?).url_of("postgres"),
    };
    measure(&url, Store { open, patient: "", hasty: "" }, || Raw::open(&url)).await?;
    drop(own);
    Ok(())
}

/// The driver, with the statements a careful user would write by hand.
struct Raw {
    client: Client,
    version: Statement,
    silo: Statement,
    read: Statement,
}

impl Raw {
    async fn open(url: &str) -> Outcome<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        client.batch_execute("CREATE TABLE by_hand (LIKE silo_instances INCLUDING ALL)").await?;
        client
            .batch_execute(
                "INSERT INTO by_hand (partitionkey, rowkey, etag, membershipversion) VALUES \
                 ('cost', 'VersionRow', 0, 0)",
            )
            .await?;
        let version = "UPDATE by_hand SET etag = $2, membershipversion = $2 \
                       WHERE partitionkey = 'cost' AND rowkey = 'VersionRow' AND etag = $1";
        let silo = "INSERT INTO by_hand VALUES ('cost', $1, $2, 'cost', '10.0.0.1', 11111, $3, $4, \
                    'Active', 0, 'false', '', $5, 0, 0, '[]', '[]', '1970-01-01', '1970-01-01', \
                    NULL) ON CONFLICT (partitionkey, rowkey) DO UPDATE SET etag = excluded.etag, \
                    deploymentid = excluded.deploymentid, address = excluded.address, port = \
                    excluded.port, generation = excluded.generation, hostname = excluded.hostname, \
                    status = excluded.status, proxyport = excluded.proxyport, \"primary\" = \
                    excluded.\"primary\", rolename = excluded.rolename, instancename = \
                    excluded.instancename, updatezone = excluded.updatezone, faultzone = \
                    excluded.faultzone, suspectingsilos = excluded.suspectingsilos, \
                    suspectingtimes = excluded.suspectingtimes, starttime = excluded.starttime";
        let read = "SELECT rowkey, etag, deploymentid, address, port, generation, hostname, \
            status, proxyport, \
                    \"primary\", rolename, instancename, updatezone, faultzone, \
                    suspectingsilos::text, suspectingtimes::text, (extract(epoch FROM starttime) * \
                    1000)::bigint, (extract(epoch FROM iamalivetime) * 1000)::bigint, \
                    membershipversion FROM by_hand WHERE partitionkey = $1 ORDER BY rowkey";
        let (version, silo, read) =
            try_join3(client.prepare(version), client.prepare(silo), client.prepare(read)).await?;
        Ok(Self { client, version, silo, read })
    }

    async fn move_version(&self, number: i64) -> Result<u64, tokio_postgres::Error> {
        self.client.execute(&self.version, &[&(number - 1), &number]).await
    }

    async fn write_silo(&self, number: i64, silo: u64) -> Result<u64, tokio_postgres::Error> {
        let epoch = silo.cast_signed();
        let key = format!("10.0.0.1-11111-{silo}");
        let (host, name) = ("host-17.rack-3.example.net", "silo-17");
        self.client.execute(&self.silo, &[&key, &number, &epoch, &host, &name]).await
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, silo: u64) -> Outcome<()> {
        self.client.batch_execute("BEGIN").await?;
        let moved = self.move_version(number).await?;
        let wrote = self.write_silo(number, silo).await?;
        self.client.batch_execute("COMMIT").await?;
        if (moved, wrote) == (1, 1) { Ok(()) } else { Err("the update missed".into()) }
    }

    async fn read(&self) -> Outcome<usize> {
        let rows = self.client.query(&self.read, &[&"cost"]).await?;
        let mut cells = 0;
        for row in &rows {
            for at in [0, 2, 3, 6, 7, 9, 10, 11, 14, 15] {
                cells += usize::from(row.try_get::<_, Option<String>>(at)?.is_some());
            }
            for at in [1, 4, 5, 8, 12, 13, 16, 17, 18] {
                cells += usize::from(row.try_get::<_, Option<i64>>(at)?.is_some());
            }
        }
        if cells < rows.len() { Err("no cells".into()) } else { Ok(rows.len()) }
    }
}
