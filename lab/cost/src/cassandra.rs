//! What the store costs over the driver by hand, on this machine, in one run. It starts a server of
//! its own, with its defaults.
//!
//! By hand is what a careful user would do with `scylla`: a membership commit as one conditional
//! batch, which replaces the version row by its number and writes the silo's; a read as one serial
//! query whose values are taken out of their rows.

use std::num::NonZeroUsize;

use crate::measure::{ByHand, Outcome, measure, silo};
use emmer_store_cassandra::CassandraStore;
use emmer_test_servers::suite::Store;
use emmer_test_servers::{CassandraServer, store};
use scylla::client::PoolSize;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::frame::types::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlTimestamp, Row};

const STORE: Store = store!(CassandraStore);

const CREATE: &str = "CREATE TABLE emmer.by_hand (partitionkey text, rowkey text, deploymentid text, address text, port bigint, \
                      generation bigint, hostname text, status text, proxyport bigint, \"primary\" \
                      text, rolename text, instancename text, updatezone bigint, faultzone bigint, \
                      suspectingsilos frozen<list<text>>, suspectingtimes frozen<list<text>>, \
                      starttime timestamp, iamalivetime timestamp, membershipversion bigint, \
                      PRIMARY KEY (partitionkey, rowkey))";
const VERSION: &str = "UPDATE emmer.by_hand SET deploymentid = ?, membershipversion = ? WHERE partitionkey = 'cost' AND \
                       rowkey = 'VersionRow' IF membershipversion = ?";
const SILO: &str = "UPDATE emmer.by_hand SET deploymentid = ?, address = ?, port = ?, generation = ?, hostname = ?, status = ?, \
                    proxyport = ?, \"primary\" = ?, instancename = ?, updatezone = ?, faultzone = \
                    ?, starttime = ?, iamalivetime = ? WHERE partitionkey = 'cost' AND rowkey = ?";

/// The driver, by hand.
struct Raw {
    session: Session,
    commit: Batch,
    read: PreparedStatement,
}

impl Raw {
    async fn open(port: u16) -> Outcome<Self> {
        let connections = NonZeroUsize::new(2).ok_or("none")?;
        let builder = SessionBuilder::new().known_node(format!("127.0.0.1:{port}"));
        let session = builder.pool_size(PoolSize::PerHost(connections)).build().await?;
        session.query_unpaged(CREATE, ()).await?;
        let first = "INSERT INTO emmer.by_hand (partitionkey, rowkey, membershipversion) VALUES \
                     ('cost', 'VersionRow', 0) IF NOT EXISTS";
        session.query_unpaged(first, ()).await?;
        let mut commit = Batch::new(BatchType::Unlogged);
        commit.append_statement(session.prepare(VERSION).await?);
        commit.append_statement(session.prepare(SILO).await?);
        let mut read =
            session.prepare("SELECT * FROM emmer.by_hand WHERE partitionkey = 'cost'").await?;
        read.set_consistency(Consistency::Serial);
        Ok(Self { session, commit, read })
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, n: u64) -> Outcome<()> {
        let silo = silo(n);
        let time = CqlTimestamp(silo.start_time.as_millis());
        let (address, host, instance) =
            (silo.address.ip().to_string(), &*silo.host_name, &*silo.instance_name);
        let key = format!("10.0.0.1-11111-{n}");
        let row = (
            ("cost", address, i64::from(silo.address.port()), n.cast_signed(), host, "Active"),
            (0_i64, "false", instance, 0_i64, 0_i64, time, time, key),
        );
        let ((a, b, c, d, e, f), (g, h, i, j, k, l, m, o)) = row;
        let values = (("cost", number, number - 1), (a, b, c, d, e, f, g, h, i, j, k, l, m, o));
        let result = self.session.batch(&self.commit, values).await?.into_rows_result()?;
        let applied = result.first_row::<Row>()?.columns.into_iter().next().flatten();
        if applied.and_then(|applied| applied.as_boolean()) == Some(true) {
            Ok(())
        } else {
            Err("a conflict".into())
        }
    }

    async fn read(&self) -> Outcome<usize> {
        let rows = self.session.execute_unpaged(&self.read, ()).await?.into_rows_result()?;
        let mut count = 0;
        for row in rows.rows::<Row>()? {
            count += usize::from(!row?.columns.is_empty());
        }
        Ok(count)
    }
}

/// Measures.
pub(crate) async fn run(_words: &[String]) -> Outcome<()> {
    let server = CassandraServer::start()?;
    measure(&server.url(), STORE, || Raw::open(server.port())).await
}
