//! The system store on SQLite: one file that several silos on one host share.
//!
//! The file is a real database with real tables, one per declaration, columns under the declared
//! names and an `Etag` column; times are milliseconds since 1970 UTC, lists are JSON arrays
//! (`docs/store.md` shows how to read them).
//!
//! * **Several processes** on one host may use the file at once (SQLite's WAL mode; not on a
//!   network file system).
//! * **Durability**: a commit that was answered survives the death of any process
//!   (`synchronous = NORMAL` in WAL mode). When the whole host loses power the newest commits may
//!   be gone, the file stays whole; `?synchronous=full` makes every commit wait for the disk.
//! * **Cost**: one thread writes and puts commits that wait together into one transaction; two
//!   threads read and never wait for the writer.

mod dialect;
mod fault;
mod operations;
mod place;
mod session;
mod sql;
mod store;
mod tables;
mod values;
mod worker;

pub use store::SqliteStore;
pub use tables::script;
