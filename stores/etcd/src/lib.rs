//! The system store on etcd 3.4 or later, over the JSON gateway that every etcd has (`/v3/...`):
//! nothing needs to be generated to build it, and everything goes over plain HTTP.
//!
//! # What lies where
//!
//! ```text
//! emmer/silo_instances/prod/10.0.0.1-11111-7                {"PartitionKey":"prod","RowKey":"10.0.0.1-11111-7",...}
//! emmer/silo_instances/prod/10.0.0.1-11111-7/IAmAliveTime   "2026-11-21T12:44:45.000Z"
//! emmer/.tables/silo_instances                              the shape of the table
//! ```
//!
//! A key for each row, and one more for each of its volatile columns. Partition and row keys are
//! escaped (`/`, `~`, `%` and control characters become `%XX`): a `/` always separates, so no
//! partition's keys begin with another's.
//!
//! # How the rules of the contract are kept
//!
//! * A commit is one transaction that compares the *modification revisions* of rows, which are the
//!   etags: etcd counts them up with every write and never goes back. (Restoring a backup does:
//!   stop the cluster first, or restore with `--bump-revision`.)
//! * It fits etcd's limit of 128 operations (`--max-txn-ops`): 100 mutations are at most 100
//!   comparisons and 100 operations, of which those that need several keys (a new row with its
//!   volatile columns, a deletion) are transactions inside.
//! * All rows of a commit together must fit one request of etcd: 1.5 MiB (`--max-request-bytes`),
//!   otherwise it is `Invalid`.
//! * A partition is read by pages at one revision. When that revision is compacted in between, the
//!   read begins again.
//! * Reads are linearizable. No leases: a row goes only when somebody deletes it.
//! * An answer that never came, a proposal that timed out and a leader that changed leave a commit
//!   [`Unknown`](emmer_store::CommitOutcome::Unknown). Several hosts are tried in turn only while
//!   nothing was sent.
//!
//! etcd has no index: a scan reads the whole table, page by page.

mod client;
mod examine;
mod fault;
mod requests;
mod rows;
mod store;
mod walk;
mod wire;

pub use store::{Etcd, EtcdStore};
