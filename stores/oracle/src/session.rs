//! A session on the server: settings, statements, the end of a transaction. Everything here blocks.

use std::time::Duration;

use emmer_store::StoreErrorKind;
use emmer_store_relational::Fault;
use oracledb::{OracleTimestamp, Row, ToDbValue};

use crate::fault::Trouble;
use crate::place::Place;
use crate::sql::COMMIT;
use crate::values::{Bound, Cell, Fetched, Kind, millis};

/// Statements the driver keeps prepared: those of two tables, with some to spare.
const STATEMENTS_KEPT: usize = 50;
/// Rows in one round trip. A row of the membership table takes about a kilobyte.
const ROWS_AT_ONCE: u32 = 500;
/// Comparison of keys, whatever the database's defaults are.
const SETTINGS: &str = "ALTER SESSION SET NLS_COMP = 'BINARY' NLS_SORT = 'BINARY'";
/// In which characters the database keeps texts.
const CHARACTERS: &str =
    "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'";
/// The one that keeps every text, and orders keys by the bytes of their UTF-8.
const UTF8: &str = "AL32UTF8";

/// A session.
pub(crate) struct Session {
    inner: oracledb::Connection,
}

impl Session {
    /// Connects and makes the session ours. Takes as long as the server lets it.
    pub(crate) fn open(place: &Place) -> Result<Self, Trouble> {
        if place.is_tls {
            // The driver takes the process's; another part of the program may have chosen one.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let config = place.config.clone().set_stmtcachesize(STATEMENTS_KEPT);
        let mut opened = Self { inner: oracledb::connect(config)? };
        opened.patience(place.limits.statement_timeout())?;
        opened.execute(SETTINGS, &[])?;
        let found = opened.query(CHARACTERS, &[], &[Kind::Text])?;
        match found.first().map(|row| row.word(0)).transpose()? {
            Some(UTF8) => Ok(opened),
            other => Err(Fault::new(
                StoreErrorKind::Refused,
                format!(
                    "the database keeps texts in {}, which changes some: {UTF8} is needed",
                    other.unwrap_or_default()
                ),
            )
            .into()),
        }
    }

    /// Sets the time that a statement may take from here on.
    pub(crate) fn patience(&mut self, timeout: Duration) -> Result<(), Trouble> {
        Ok(self.inner.set_call_timeout(Some(timeout))?)
    }

    /// Runs a query and returns its rows, with columns of these kinds. They are of one moment, like
    /// the server's cursors.
    pub(crate) fn query(
        &mut self,
        text: &str,
        values: &[Bound],
        kinds: &[Kind],
    ) -> Result<Vec<Fetched>, Trouble> {
        let statement = self
            .inner
            .statement(text)?
            .prefetch_rows(ROWS_AT_ONCE)
            .fetch_array_size(ROWS_AT_ONCE)
            .build()?;
        let mut rows = Vec::new();
        for row in statement.query(&parameters(values))? {
            rows.push(fetched(&row?, kinds)?);
        }
        Ok(rows)
    }

    /// Runs a statement; how many rows it changed.
    pub(crate) fn execute(&mut self, text: &str, values: &[Bound]) -> Result<u64, Trouble> {
        Ok(self.inner.execute(text, &parameters(values))?.rows_affected())
    }

    /// Ends the transaction so that everything of it is there.
    pub(crate) fn commit(&mut self) -> Result<(), Trouble> {
        self.execute(COMMIT, &[]).map(drop)
    }

    /// Ends the transaction without effect.
    pub(crate) fn rollback(&mut self) -> Result<(), Trouble> {
        Ok(self.inner.rollback()?)
    }

    /// Runs the statements of a transaction up to its end, which they leave to the caller. A failed
    /// one is rolled back.
    pub(crate) fn transact<T>(
        &mut self,
        statements: impl FnOnce(&mut Self) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        statements(self).map_err(|trouble| {
            let is_gone = trouble.is_gone || self.rollback().is_err();
            Trouble { is_gone, ..trouble }
        })
    }

    /// The server's version as it says it.
    pub(crate) fn version(&self) -> Result<String, Trouble> {
        Ok(self.inner.version()?.to_string())
    }
}

fn parameters(values: &[Bound]) -> Vec<&dyn ToDbValue> {
    values.iter().map(Bound::as_parameter).collect()
}

fn fetched(row: &Row, kinds: &[Kind]) -> Result<Fetched, Trouble> {
    let cells = kinds.iter().enumerate().map(|(at, kind)| cell(row, at, *kind));
    Ok(Fetched(cells.collect::<Result<_, Trouble>>()?))
}

fn cell(row: &Row, at: usize, kind: Kind) -> Result<Cell, Trouble> {
    let found = match kind {
        Kind::Text => row.get::<Option<String>>(at)?.map(Cell::Text),
        Kind::Int => row.get::<Option<i64>>(at)?.map(Cell::Int),
        Kind::Bytes => row.get::<Option<Vec<u8>>>(at)?.map(Cell::Bytes),
        Kind::Time => {
            let time =
                row.get::<Option<OracleTimestamp>>(at)?.map(|time| millis(&time)).transpose();
            time.map_err(|error| Fault::corrupt(format!("column {at} {error}")))?.map(Cell::Time)
        }
    };
    Ok(found.unwrap_or(Cell::Null))
}
