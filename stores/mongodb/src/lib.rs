//! The system store on MongoDB, by its official driver.
//!
//! # What lies where
//!
//! ```text
//! database emmer
//! collection silo_instances   { _id: "prod", last: "9f3c2a17d00b4e55.7",
//!                               rows: { "10%2E0%2E0%2E1-11111-7": { etag: "9f3c2a17d00b4e55.7", PartitionKey: "prod",
//!                                                                   RowKey: "10.0.0.1-11111-7", Status: "Active", ... },
//!                                       VersionRow: { etag: "9f3c2a17d00b4e55.7", ..., MembershipVersion: 17 } },
//!                               volatile: { "10%2E0%2E0%2E1-11111-7": { IAmAliveTime: 2026-11-21T12:44:45Z } } }
//! collection emmer_meta       { _id: "silo_instances", declaration: the shape of the table }
//! ```
//!
//! **A partition is one document.** Its rows are fields under their keys, with `.`, `$` and `%`
//! escaped. Its volatile columns are fields next to them.
//!
//! # How the rules of the contract are kept
//!
//! * **A commit is one update of one document**: all conditions are its filter, all mutations its
//!   operators. The server does it whole or not at all, in one request. There are no transactions
//!   of several documents: the server keeps one of those open for a minute when its client is
//!   killed in the middle, and whoever needs the same rows waits for as long.
//! * **An etag is a mark of the commit's own** (64 random bits and a counter), in each row it
//!   wrote. So it never comes back.
//! * **A read of a partition is one moment**, for it is a read of one document; and *linearizable*:
//!   it sees what was acknowledged before, also when the server that is asked does not know yet
//!   that another one is the primary.
//! * **A write is acknowledged** when a majority of the servers has it in its journal.
//! * **A lost answer** is asked for again: the driver sends the same write once more under the same
//!   number, upon which the server tells what became of it. When that is lost too, the rows are
//!   read: they have the commit's mark, or it is unknown.
//! * **A touch sets one field below `volatile`** where the row is there, and leaves the row and its
//!   etag alone.

mod address;
mod client;
mod commit;
mod documents;
mod examine;
mod failure;
mod read;
mod store;
mod tables;
mod writes;

pub use store::{MongoDb, MongoDbStore};
