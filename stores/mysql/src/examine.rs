//! The words of the server about itself.

use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::{ClockDifference, Examination, FindingLevel, FindingSubject};
use emmer_store_relational::Fault;
use mysql_async::prelude::Queryable;

use crate::connection::Connection;
use crate::dialect::Flavour;
use crate::fault;

/// Version, what a commit waits for, the server's time.
const ABOUT: &str = "SELECT VERSION(), @@global.innodb_flush_log_at_trx_commit, \
                     CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)";
/// The cipher of this connection; empty when it has none.
const CIPHER: &str = "SHOW SESSION STATUS LIKE 'Ssl_cipher'";

pub(crate) async fn examine(connection: &mut Connection) -> Result<Examination, Fault> {
    connection.in_flight = true;
    let asked = SystemTime::now();
    let about: Option<(String, u64, i64)> =
        connection.raw().query_first(ABOUT).await.map_err(|e| fault::fault(&e))?;
    let answered = SystemTime::now();
    let cipher: Option<(String, String)> =
        connection.raw().query_first(CIPHER).await.map_err(|e| fault::fault(&e))?;
    connection.in_flight = false;
    let (version, flush, ms) = about.ok_or_else(|| Fault::corrupt("the server has no version"))?;
    let product = if connection.flavour == Flavour::MariaDb { "MariaDB" } else { "MySQL" };
    let mut found = Examination::of(product, version.split('-').next().unwrap_or_default());
    let server = Timestamp::from_millis(ms);
    found.clock =
        Some(ClockDifference::measured(asked, server, answered, Duration::from_millis(1)));
    if flush != 1 {
        let whose = if flush == 0 { "the server" } else { "the server's host" };
        found.may_lose_writes(format!(
            "innodb_flush_log_at_trx_commit is {flush}: a crash of {whose} loses up to a second of \
             commits that were answered; set it to 1"
        ));
    }
    if cipher.is_none_or(|(_, cipher)| cipher.is_empty()) {
        found.add(
            FindingLevel::Note,
            FindingSubject::Security,
            "the connection is not encrypted: use sslmode=require, or a private network",
        );
    }
    Ok(found)
}
