//! The system store on Redis 6.2 or later, and servers that speak like it (Valkey).
//!
//! # What lies where
//!
//! ```text
//! HGETALL emmer:{silo_instances/prod}
//!   10.0.0.1-11111-7                {"etag":"9f3c2a17d00b4e55.17","PartitionKey":"prod","RowKey":"10.0.0.1-11111-7",...}
//!   10.0.0.1-11111-7/IAmAliveTime   "2026-11-21T12:44:45.000Z"
//! ```
//!
//! One hash for each partition; a field for each row, and one more for each of its volatile
//! columns. Keys are escaped (`/`, `~`, `%` and control characters become `%XX`), so that a `/` in
//! a field always stands before a column.
//!
//! | key | what it is |
//! |---|---|
//! | `emmer:{TABLE/PARTITION}` | the rows of a partition (hash) |
//! | `emmer:{TABLE/PARTITION}:by:COLUMN` | the row fields by an indexed column (sorted set) |
//! | `emmer:partitions:TABLE` | the partitions of a table (set) |
//! | `emmer:tables` | the shapes of the tables (hash) |
//!
//! The braces make all keys of a partition lie in one slot of a Redis Cluster, so a commit is one
//! node's business. The store finds the node of a slot by the answers of those it asks (`MOVED`,
//! `ASK`) and waits while a slot moves.
//!
//! # How the rules of the contract are kept
//!
//! * A commit is one Lua script, which Redis runs alone: first all conditions, then all writes.
//!   Whatever can be refused for want of memory is written before anything is deleted, so that a
//!   refusal comes before the first change.
//! * Etags are made by the client (64 random bits and a counter): a failover that loses commits
//!   brings none back.
//! * A partition is read by one `HGETALL`, a row by one `HMGET`.
//! * A connection that ends between request and answer leaves a commit
//!   [`Unknown`](emmer_store::CommitOutcome::Unknown).
//! * Numbers in the index are doubles; beyond 2^53 neighbours share one, and a scan looks at the
//!   row itself.
//!
//! # What Redis does not promise
//!
//! With `appendonly no` a crash loses everything since the last snapshot, with
//! `appendfsync everysec` about a second, and with any `maxmemory-policy` but `noeviction` Redis
//! may throw the cluster's table away at any time. The store says so when it opens (as a warning in
//! the log) and in [`examine`](emmer_store::SystemStore::examine). Replication is asynchronous:
//! with `?wait_replicas=N` a commit is acknowledged only when N replicas have it, and is
//! [`Unknown`](emmer_store::CommitOutcome::Unknown) otherwise.

mod address;
mod durability;
mod fault;
mod keys;
mod link;
mod nodes;
mod requests;
mod rows;
mod scripts;
mod store;
mod walk;

pub use store::{Redis, RedisStore};
