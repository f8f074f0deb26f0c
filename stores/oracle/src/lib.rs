//! The system store on Oracle Database 12.1 or later. **Untested against a live server**: its suite
//! runs where `TEST_ORACLE_URL` names one.
//!
//! * **The driver** is Oracle's own, in Rust, without the native client. It blocks, so every
//!   connection has a thread of its own (`connection.rs`).
//! * **A commit is one transaction**: it locks the version row first, then the others by key,
//!   judges the conditions on locked rows, and writes all or rolls back (`commit.rs`). `COMMIT` is
//!   sent by itself and only while somebody waits for it: what fails before it certainly did not
//!   happen.
//! * **Empty texts and bytes**: this server takes them for null. A value of nothing but blanks
//!   (bytes: nothing but zeros) is kept with one more, so that an empty one is one blank
//!   (`values.rs`).
//! * **Keys are `VARCHAR2`** compared by their bytes, which takes a database in `AL32UTF8`; another
//!   one is refused.

mod commit;
mod connection;
mod dialect;
mod driver;
mod examine;
mod fault;
mod place;
mod session;
mod sql;
mod tables;
mod values;

use emmer_store::TableDecl;
use emmer_store_relational::{Relational, schema};

pub use dialect::OracleSql;
pub use driver::OracleDriver;

/// A system store in an Oracle database. Untested against a live server.
///
/// Dropping it closes its connections, each on a thread of its own.
///
/// `open` connects to `oracle://user:password@host:port/service`; the tables are in that user's
/// schema. Where the URL gives no password the environment's `ORACLE_PASSWORD` is used.
/// `?pool_max=8` is how many connections the store opens at most (1 to 64), `?timeout_ms=4800` how
/// long an operation takes at most, connecting and waiting for locks included (1000 to 60000).
/// `?sslmode=` is `disable` (the default) or `verify-full`, which connects with TLS (port 2484
/// unless the URL names one) and trusts the usual root certificates and, with `?wallet=FOLDER`,
/// those in that folder's `ewallet.pem`. `?sid=NAME` stands for the service of a database that has
/// none.
pub type OracleStore = Relational<OracleDriver>;

/// The `CREATE` script for an administrator who lets no application make tables.
pub fn script(tables: &[&TableDecl]) -> String {
    // Clients of this server begin a transaction by themselves.
    schema::script(&OracleSql, tables) + "COMMIT;\n"
}
