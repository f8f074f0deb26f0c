//! The system store on Apache Cassandra, by the driver `scylla`.
//!
//! # What lies where
//!
//! ```text
//! keyspace emmer
//! table silo_instances   partitionkey  rowkey            etag                status  iamalivetime         ...  _last_commit
//!                        prod          10.0.0.1-11111-7  9f3c2a17d00b4e55.7  Active  2026-11-21 12:44:45       9f3c2a17d00b4e55.7
//!                        prod          VersionRow        9f3c2a17d00b4e55.7  (membershipversion 17)            (the same: static)
//! table emmer_meta       name silo_instances, declaration (the shape of the table)
//! ```
//!
//! One row of the server for each row, its columns under the declared names in lower case. A
//! partition of the contract is a partition of the server.
//!
//! # How the rules of the contract are kept
//!
//! * **Every write is conditional** (a lightweight transaction), heartbeats, appends and clean-ups
//!   too. No cell ever sees a plain write beside: the two take their times from different clocks,
//!   and one of them may be lost.
//! * A commit is one batch in one partition, which the server does as a whole or not at all. A
//!   row's etag is a column, a text that no other commit writes; conditions compare it. A **touch**
//!   sets one column if the row is there and leaves the etag alone. The first condition that does
//!   not hold is told by the etags that come back.
//! * `Upsert` gives volatile columns to a new row only: its condition says whether the row is
//!   there, as the store believes. A wrong belief costs one more request.
//! * Each batch begins by writing its mark to the partition (`_last_commit`), unless `_refused`
//!   names the mark, and to its writer's place in `_commits`. All three are static columns, one for
//!   a partition. So **what became of a batch whose answer was lost** is found out by one more
//!   conditional write: it puts the mark into `_refused` unless it is its writer's last commit. If
//!   that succeeds the batch did not happen and will not, even when a node that stood still takes
//!   it up within a day. It is sent again with a new mark. Only where there is no time for that
//!   question is the commit [`Unknown`](emmer_store::CommitOutcome::Unknown).
//! * A writer has one commit at a time on its way in a partition: one that is left behind, by a
//!   caller who gives up or a question that is not answered, keeps its writer's place, and the
//!   store goes by another name. And no two requests of one process are about the same partition at
//!   once, for the server lets conditional writes that meet start over.
//! * Reads of a partition are **serial**: they see every commit that was acknowledged, end one that
//!   is half way, and never see a part. One page is one moment. Several are read between two looks
//!   at `_last_commit`, which every commit changes, in partitions with a version row and without
//!   ([`emmer_store::one_moment`]).
//!
//! # Limits
//!
//! A row of 1 MiB and a commit of 4 MiB. The server's `batch_size_fail_threshold` (50 KiB) is about
//! batches of several partitions and none of this store's. There is no index: a scan reads the
//! whole table.

mod address;
mod batch;
mod client;
mod commit;
mod cql;
mod examine;
mod failure;
mod lanes;
mod read;
mod store;
mod tables;
mod tls;
mod values;
mod writes;

pub use store::{Cassandra, CassandraStore};
pub use tables::script;
