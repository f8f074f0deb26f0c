//! The system store on Consul's key-value store (1.8 or later), over its HTTP API.
//!
//! # What lies where
//!
//! ```text
//! emmer/silo_instances/prod/10.0.0.1-11111-7/.row           {".commit":"9f3c2a17d00b4e55.17","PartitionKey":"prod",...}
//! emmer/silo_instances/prod/10.0.0.1-11111-7/IAmAliveTime   "2026-11-21T12:44:45.000Z"
//! emmer/silo_instances/prod/~fence                          {"mark":"...","state":"idle"}
//! emmer/.tables/silo_instances                              the shape of the table
//! ```
//!
//! A key for each row, and one more for each of its volatile columns. Partition and row keys are
//! escaped (`/`, `~`, `%` and control characters become `%XX`): a `/` always separates, so no
//! partition's keys begin with another's.
//!
//! # How the rules of the contract are kept
//!
//! * An etag is Consul's `ModifyIndex`, which only grows. (Consul keeps the index of a key that is
//!   written as it was: hence the `.commit` in each row, which no two commits share.)
//! * Everything goes through `/v1/txn`, also reads: a partition, or a row with its columns, is one
//!   `get-tree` in a transaction that only reads, which is one moment of one server; with
//!   `consistent`, so that the server is the leader and knows it.
//! * A refusal for want of permission has the same status as a lost race (409): it is told apart,
//!   and is an error.
//! * An answer that never came, and a leader lost while it committed, leave a commit
//!   [`Unknown`](emmer_store::CommitOutcome::Unknown). Several hosts are tried in turn only while
//!   nothing was sent.
//!
//! # Commits larger than Consul's transactions
//!
//! A transaction takes 64 operations, and a commit has up to 100 mutations, some of several keys.
//! Each partition therefore has a *fence*, a key that says `idle` (as does a fence that is not
//! there), `closing` or `committing`.
//!
//! A **small** commit is one transaction: the fence is unchanged and idle, each row is as its
//! mutation wants it, then the writes. It does not write the fence, so small commits of different
//! rows do not disturb each other.
//!
//! A **large** commit
//!
//! 1. turns the fence from idle to closing. From here on every small commit fails at its check of
//!    the fence;
//! 2. reads the partition and looks whether all conditions hold. If not, it turns the fence back,
//!    and is a conflict;
//! 3. turns the fence from its own closing to committing, with all it will write inside the fence's
//!    value. This one write, which happens or not, *is* the commit;
//! 4. writes the rows, in transactions that each check that the fence is still that one, and turns
//!    it back to idle.
//!
//! A store that meets a committing fence, to read or to write, does step 4 first. So no reader ever
//! sees a part of a commit, even if its writer died. Doing it twice changes nothing, and it cannot
//! be done late, because the fence has moved on. A store that meets a closing fence and wants to
//! write waits a moment and turns it back to idle, also if another writer owns it: its step 3 then
//! fails and it begins again. No clock and no lock decides the outcome, only the fence's own index.
//! Touches check the fence too, so that step 4 cannot turn a heartbeat back.
//!
//! # Limits
//!
//! All rows of a commit must fit one transaction of Consul: 512 KiB (`txn_max_req_len`), which is
//! about 370 KiB of rows, bytes counted as base64. Larger commits are `Invalid`. So are larger
//! rows. Consul has no index: a scan reads the whole table.

mod client;
mod commit;
mod examine;
mod fence;
mod guesses;
mod plan;
mod read;
mod rows;
mod store;
mod wire;

pub use store::{Consul, ConsulStore};
