//! The words of the server about itself.

use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::{ClockDifference, Examination, FindingLevel, FindingSubject};
use emmer_store_relational::Fault;
use tokio_postgres::SimpleQueryMessage;

use crate::connection::Connection;
use crate::fault;

/// One row: version, two settings that decide what a crash costs, the server's time, the right to
/// make tables, standbys that commits do not wait for, the encryption of the connection.
const ABOUT: &str = "SELECT current_setting('server_version'), current_setting('fsync'),
    current_setting('full_page_writes'), (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
    CASE current_setting('synchronous_standby_names') WHEN ''
      THEN (SELECT count(*) FROM pg_stat_replication) ELSE 0 END,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)";

pub(crate) async fn examine(connection: &mut Connection) -> Result<Examination, Fault> {
    connection.in_flight = true;
    let asked = SystemTime::now();
    let answer = connection.client.simple_query(ABOUT).await.map_err(|e| fault::fault(&e))?;
    let answered = SystemTime::now();
    connection.in_flight = false;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let cell = |at| row.and_then(|row| row.get(at)).unwrap_or_default();
    let version = cell(0).split_whitespace().next().unwrap_or_default();
    let mut found = Examination::of("PostgreSQL", version);
    if let Ok(ms) = cell(3).parse() {
        let server = Timestamp::from_millis(ms);
        found.clock =
            Some(ClockDifference::measured(asked, server, answered, Duration::from_millis(1)));
    }
    for (setting, value) in [("fsync", cell(1)), ("full_page_writes", cell(2))] {
        if value == "off" {
            found.may_lose_writes(format!(
                "{setting} is off: a crash of the server's host may lose commits that were \
                 answered, and damage the database; set {setting} = on"
            ));
        }
    }
    if cell(5).parse().is_ok_and(|standbys: u64| standbys > 0) {
        found.may_lose_writes(
            "standbys copy asynchronously: a failover may lose the newest commits; name them in \
             synchronous_standby_names",
        );
    }
    if cell(4) != "t" {
        found.add(
            FindingLevel::Note,
            FindingSubject::Permission,
            "this user may not make tables in the first schema of its search path: where some are \
             missing, run the script of `emmer schema`, or GRANT CREATE ON SCHEMA",
        );
    }
    if cell(6) != "t" {
        found.add(
            FindingLevel::Note,
            FindingSubject::Security,
            "the connection is not encrypted: use sslmode=require, or a private network",
        );
    }
    Ok(found)
}
