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
mod tables;
mod tls;
mod values;

use emmer_store_relational::Relational;

pub use dialect::Postgres;
pub use driver::PostgresDriver;
pub use tables::script;

/// A system store in a PostgreSQL database.
///
/// Dropping it closes its connections; the tasks that drive them end with them.
///
/// `open` connects to `postgres://user:password@host:port/database`. Where the URL gives no
/// password the environment's `PGPASSWORD` is used. `?pool_max=8` is how many connections the store
/// opens at most (1 to 64), `?timeout_ms=4800` how long an operation takes at most, connecting and
/// waiting for locks included (1000 to 60000). `?sslmode=` is `disable`, `prefer` (the default),
/// `require` or `verify-full`, which trusts the system's root certificates or those in
/// `?ca_file=FILE`. The other parameters are those of the driver's URLs (`target_session_attrs`,
/// `application_name`, `options`, ...).
pub type PostgresStore = Relational<PostgresDriver>;
