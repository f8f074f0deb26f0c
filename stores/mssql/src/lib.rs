//! The system store on SQL Server 2016 or later and Azure SQL. **Untested against a live server**:
//! its suite runs where `TEST_MSSQL_URL` names one.
//!
//! * **A commit is one batch** and one round trip: it locks the version row first, the others by
//!   key, judges the conditions on locked rows, and writes all or rolls back.
//! * **Keys are `varbinary`**: SQL Server's texts compare equal when they differ in trailing spaces
//!   only, and order otherwise than by their bytes. `CAST(RowKey AS varchar(512))` shows them.
//! * **Reads hold their rows** until they are done (`HOLDLOCK`), whatever the database's isolation.
//! * **Microsoft's own parser** reads every kind of statement this crate sends
//!   (its tests).

mod connection;
mod dialect;
mod driver;
mod examine;
mod fault;
mod place;
mod sql;
#[cfg(test)]
mod statements;
mod tables;
mod values;

use emmer_store::TableDecl;
use emmer_store_relational::{Relational, schema};

pub use dialect::TransactSql;
pub use driver::MssqlDriver;

/// A system store in a SQL Server database. Untested against a live server.
///
/// Dropping it closes its connections.
///
/// `open` connects to `mssql://user:password@host:port/database` (`sqlserver://` is the same).
/// Where the URL gives no password the environment's `MSSQL_PASSWORD` is used. `?pool_max=8` is how
/// many connections the store opens at most (1 to 64), `?timeout_ms=4800` how long an operation
/// takes at most, connecting and waiting for locks included (1000 to 60000). `?sslmode=` is
/// `disable`, `prefer`, `require` (the default) or `verify-full`, which trusts the system's root
/// certificates and those in `?ca_file=FILE`.
pub type MssqlStore = Relational<MssqlDriver>;

/// The `CREATE` script for an administrator who lets no application make tables.
pub fn script(tables: &[&TableDecl]) -> String {
    schema::script(&TransactSql, tables)
}
