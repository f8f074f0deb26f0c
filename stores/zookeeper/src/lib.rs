//! The system store on ZooKeeper 3.6 or later.
//!
//! Everything is a plain node that `zkCli.sh get` shows as JSON with the declared column names
//! (`docs/store.md`):
//!
//! ```text
//! /emmer/silo_instances                                       the table's declaration
//! /emmer/silo_instances/prod                                  a partition; written by every commit
//! /emmer/silo_instances/prod/10.0.0.1-11111-1795265085000000  a row
//! /emmer/silo_instances/prod/.../IAmAliveTime                 a volatile column of that row
//! /emmer/emmer_meta/silo_instances/prod                       written by every commit that deletes rows of the partition
//! ```
//!
//! * **A commit is one `multi`**: it writes the partition's node (which gives the commit its
//!   number, the zxid) and applies every mutation under the server's own version checks. An etag is
//!   the number of the commit that wrote the row and the version of its node, so it never comes
//!   back.
//! * **A node made again begins at version 0**, so versions alone would mistake a new row for the
//!   old one. Every commit with a condition on an etag therefore checks that no row of the
//!   partition was deleted since that etag was written, or, where some was, that the row still is
//!   what it was when the deletions were counted.
//! * **A read of a partition is one `multi` of reads** that begins and ends with the partition's
//!   node and holds the list of its rows; see [`snapshot`](self) for what makes a torn read
//!   impossible to return.
//! * **Reads are preceded by `sync`**, so a server that lags behind does not answer with the past.
//! * **A touch writes the volatile column's own node**, and nothing else.
//! * **No ephemeral nodes**: what a session means to ZooKeeper has no bearing on the membership. A
//!   session lost is replaced by another.

mod bulk;
mod commit;
mod examine;
mod fault;
mod paths;
mod place;
mod plan;
mod rows;
mod session;
mod snapshot;
mod store;
mod tables;
mod tls;

pub use store::{ZooKeeper, ZooKeeperStore};
