//! The system store on PostgreSQL 12 or later.
//!
//! Real tables with real columns: `SELECT * FROM silo_instances` in `psql` shows the membership
//! (`docs/store.md`).
//!
//! * **A commit is one statement and one round trip**, whatever it changes: the mutations travel as
//!   arrays, the rows are locked in one order (the version row first, so that writers queue; the
//!   others by key), the conditions are judged on the locked rows, and everything or nothing is
//!   written. A commit that conflicts writes nothing and does not wait for the disk.
//! * **Outcomes are honest**: an `ERROR` from the server means that nothing was changed; a
//!   connection lost, or a session ended, after the statement was sent is
//!   [`CommitOutcome::Unknown`](emmer_store::CommitOutcome::Unknown).
//! * **Nothing waits for ever**: an operation ends within five seconds, connecting included.
//! * **TLS** as the URL says: `sslmode=disable`, `prefer`, `require` or `verify-full`.

mod connection;
mod dialect;
mod driver;
mod examine;
mod fault;
mod place;
mod sql;
mod store;
mod tables;
mod tls;
mod values;

pub use dialect::Postgres;
pub use store::PostgresStore;
