//! What the server says about itself.

use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::{ClockDifference, Examination, FindingLevel, FindingSubject};
use emmer_store_relational::{Cells, Failure, Fault};

use crate::connection::Connection;
use crate::values::RowCells;

/// Version, the server's time, what a commit waits for, whether tables may be made.
pub(crate) const ABOUT: &str = "SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), \
     CAST(SYSUTCDATETIME() AS datetime2(3)), \
     (SELECT delayed_durability_desc FROM sys.databases WHERE database_id = DB_ID()), \
     HAS_PERMS_BY_NAME(DB_NAME(), 'DATABASE', 'CREATE TABLE')";

pub(crate) async fn examine(connection: &mut Connection, is_encrypted: bool) -> Result<Examination, Fault> {
    let asked = SystemTime::now();
    let answer = connection.query(ABOUT, &[]).await.map_err(Failure::fault)?;
    let answered = SystemTime::now();
    let row = answer.first().ok_or_else(|| Fault::corrupt("the server has no version"))?;
    let cells = RowCells::new(row);
    let version = cells.text(0).map_err(Fault::corrupt)?.unwrap_or_default();
    let mut found = Examination::of("SQL Server", version);
    if let Some(ms) = cells.time(1).map_err(Fault::corrupt)? {
        let server = Timestamp::from_millis(ms);
        found.clock = Some(ClockDifference::measured(asked, server, answered, Duration::from_millis(1)));
    }
    if cells.text(2).map_err(Fault::corrupt)? == Some("FORCED") {
        found.may_lose_writes(
            "delayed durability is FORCED: a crash of the server loses commits that were answered; ALTER DATABASE ... SET \
             DELAYED_DURABILITY = ALLOWED",
        );
    }
    if cells.int(3).map_err(Fault::corrupt)? != Some(1) {
        found.add(
            FindingLevel::Note,
            FindingSubject::Permission,
            "this user may not make tables: run the script of `emmer schema`, or GRANT CREATE TABLE and ALTER ON SCHEMA",
        );
    }
    if !is_encrypted {
        found.add(
            FindingLevel::Note,
            FindingSubject::Security,
            "the connection may not be encrypted: use sslmode=require, or a private network",
        );
    }
    Ok(found)
}
