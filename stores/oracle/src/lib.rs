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
mod store;
mod tables;
mod values;

pub use dialect::OracleSql;
pub use store::OracleStore;
