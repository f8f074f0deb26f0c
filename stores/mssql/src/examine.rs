//! The server's description of itself.

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

pub(crate) async fn examine(
    connection: &mut Connection,
    is_encrypted: bool,
) -> Result<Examination, Fault> {
    let asked = SystemTime::now();
    let answer = connection.query(ABOUT, &[]).await.map_err(Failure::fault)?;
    let answered = SystemTime::now();
    let row = answer.first().ok_or_else(|| Fault::corrupt("the server has no version"))?;
    let cells = RowCells::new(row);
    let version = cells.text(0).map_err(Fault::corrupt)?.unwrap_or_default();
    let mut found = Examination::of("SQL Server", version);
    if is_too_old(version) {
        let text =
            format!("the server's version is {version}: this store needs SQL Server 2016 (13.0)");
        found.add(FindingLevel::Problem, FindingSubject::Setup, text);
    }
    if let Some(ms) = cells.time(1).map_err(Fault::corrupt)? {
        let server = Timestamp::from_millis(ms);
        found.clock =
            Some(ClockDifference::measured(asked, server, answered, Duration::from_millis(1)));
    }
    if cells.text(2).map_err(Fault::corrupt)? == Some("FORCED") {
        found.may_lose_writes(
            "delayed durability is FORCED: a crash of the server loses commits that were answered; \
             ALTER DATABASE ... SET DELAYED_DURABILITY = ALLOWED",
        );
    }
    if cells.int(3).map_err(Fault::corrupt)? != Some(1) {
        found.add(
            FindingLevel::Note,
            FindingSubject::Permission,
            "this user may not make tables: run the script of `emmer schema`, or GRANT CREATE \
             TABLE and ALTER ON SCHEMA",
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

/// The first version whose statements and settings this store needs, SQL Server 2016. Azure SQL
/// says 12, whatever it is.
const VERSION_MIN: u32 = 13;
const VERSION_OF_AZURE: &str = "12.0.2000.";

/// Returns true if a version (`15.0.2000.5`) is known to be too old.
fn is_too_old(version: &str) -> bool {
    let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
    major.is_some_and(|major| major < VERSION_MIN) && !version.starts_with(VERSION_OF_AZURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_2016_are_too_old() {
        for (version, too_old) in [
            ("16.0.1000.6", false),
            ("13.0.1601.5", false),
            ("12.0.2000.8", false),
            ("12.0.6024.0", true),
            ("11.0.2100.60", true),
            ("", false),
            ("x", false),
        ] {
            assert_eq!(is_too_old(version), too_old, "{version}");
        }
    }
}
