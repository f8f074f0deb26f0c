//! The words of the server about itself.

use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::{ClockDifference, Examination, FindingLevel, FindingSubject};

use crate::fault::Trouble;
use crate::session::Session;
use crate::values::{Cell, Kind};

/// The server's time, whether tables may be made, what the connection goes over.
pub(crate) const ABOUT: &str = "SELECT SYS_CONTEXT('USERENV', 'NETWORK_PROTOCOL'), \
     (SELECT COUNT(*) FROM session_privs WHERE privilege IN ('CREATE TABLE', 'CREATE ANY TABLE')), \
     CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS TIMESTAMP(3)) FROM dual";

pub(crate) fn examine(session: &mut Session) -> Result<Examination, Trouble> {
    let version = session.version()?;
    let asked = SystemTime::now();
    let answer = session.query(ABOUT, &[], &[Kind::Text, Kind::Int, Kind::Time])?;
    let answered = SystemTime::now();
    let cells = answer.first().map(|row| row.0.as_slice()).unwrap_or_default();
    let mut found = Examination::of("Oracle Database", version);
    if let Some(Cell::Time(ms)) = cells.get(2) {
        let server = Timestamp::from_millis(*ms);
        found.clock =
            Some(ClockDifference::measured(asked, server, answered, Duration::from_millis(1)));
    }
    if cells.get(1) == Some(&Cell::Int(0)) {
        found.add(
            FindingLevel::Note,
            FindingSubject::Permission,
            "this user may not make tables: run the script of `emmer schema`, or GRANT CREATE \
             TABLE",
        );
    }
    if cells.first() != Some(&Cell::Text("tcps".to_owned())) {
        found.add(
            FindingLevel::Note,
            FindingSubject::Security,
            "the connection is not encrypted: use sslmode=verify-full, or a private network",
        );
    }
    Ok(found)
}
