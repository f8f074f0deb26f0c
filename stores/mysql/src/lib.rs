//! The system store on MariaDB 10.3 or later and MySQL 8.0.17 or later.
//!
//! Real tables with real columns: `SELECT * FROM silo_instances` in `mariadb` shows the membership
//! (`docs/store.md`).
//!
//! * **A commit is one round trip**: its statements travel as one text. Rows are locked in one
//!   order, the version row first, so that writers queue; the conditions are judged on locked rows
//!   before the first write, and every write depends on that verdict alone (`commit.rs`).
//! * **Outcomes are honest**: an error before the `COMMIT` means that nothing was changed; a
//!   connection lost after the text was sent is
//!   [`CommitOutcome::Unknown`](emmer_store::CommitOutcome::Unknown).
//! * **Nothing waits for ever**: an operation ends within five seconds, connecting included.
//! * **Texts come back byte for byte**, and keys are compared by their bytes, trailing spaces
//!   included.

mod commit;
mod connection;
mod dialect;
mod driver;
mod examine;
mod fault;
mod place;
mod sql;
mod tables;
mod values;

use emmer_store::TableDecl;
use emmer_store_relational::{Relational, schema};

pub use dialect::{Flavour, MySql};
pub use driver::MysqlDriver;

/// A system store in a MariaDB or MySQL database.
///
/// Dropping it closes its connections.
///
/// `open` connects to `mysql://user:password@host:port/database` or `mariadb://...` (the same;
/// which of the two the server is it says itself). Where the URL gives no password the
/// environment's `MYSQL_PWD` is used. `?pool_max=8` is how many connections the store opens at most
/// (1 to 64), `?timeout_ms=4800` how long an operation takes at most, connecting and waiting for
/// locks included (1000 to 60000). `?sslmode=` is `disable`, `prefer` (the default), `require` or
/// `verify-full`, which trusts the system's root certificates or those in `?ca_file=FILE`.
pub type MysqlStore = Relational<MysqlDriver>;

/// The `CREATE` script for an administrator who lets no application make tables.
pub fn script(flavour: Flavour, tables: &[&TableDecl]) -> String {
    schema::script(&MySql(flavour), tables)
}
