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
mod store;
mod tables;
mod values;

pub use dialect::TransactSql;
pub use store::MssqlStore;
