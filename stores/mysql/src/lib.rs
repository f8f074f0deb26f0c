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
mod store;
mod tables;
mod values;

pub use dialect::{Flavour, MySql};
pub use store::MysqlStore;
