//! The system store in Azure Cosmos DB (the API for NoSQL), by Microsoft's SDK.
//!
//! # What lies where
//!
//! One container, partitioned by `/EmmerPartition`, has all tables: an item for each row.
//!
//! ```text
//! EmmerPartition       id                Status  IAmAliveTime          EmmerEtag           ...
//! silo_instances/prod  10.0.0.1-11111-7  Active  2026-11-21T12:44:45Z  9f3c2a17d00b4e55.7
//! silo_instances/prod  VersionRow        (MembershipVersion 17)        9f3c2a17d00b4e55.7
//! tables               silo_instances    (Declaration: the shape of the table)
//! ```
//!
//! An item has the columns as fields of the declared names, so that an administrator sees a silo,
//! its heartbeat included, in the portal's explorer. A container costs by the throughput that is
//! set aside for it: with one for all tables the smallest is enough for a cluster.
//!
//! # How the rules of the contract are kept
//!
//! * A commit is one **transactional batch**: an operation for each mutation, up to a hundred and
//!   2 MiB, on one partition. The service runs it where the partition is written, all of it or
//!   nothing.
//! * A row's etag is the field `EmmerEtag`, a text that no other commit writes. The service's own
//!   `_etag` changes with every write, a heartbeat's too, so it cannot be the row's. A commit that
//!   replaces a row has seen both at one moment, and is sent with `If-Match` on the service's. If
//!   it happens, the row had the wanted etag. If it does not, the rows are read again: where an
//!   etag is not the wanted one that is a conflict; where all are, only heartbeats came between,
//!   and the commit is sent again.
//! * A **touch** reads the item and replaces it under its `_etag`, until nothing came between. A
//!   **check** replaces an item by itself: the service's etag changes, the row stays.
//! * What a read saw is remembered (up to 50,000 rows), so that a commit after a read is one
//!   request. A wrong memory costs that request: the service compares.
//! * **Consistency.** Under the default of accounts, Session, a read may be answered by a copy that
//!   does not have the last commit of another process. A batch is not: it runs where the partition
//!   is written. So single rows are read by batches. A commit compares there too: an old read makes
//!   it fail, and never makes it happen.
//! * A **partition** is read between two looks at its version row ([`emmer_store::one_moment`]),
//!   also if it is one page: nobody promises that a page is one moment. The first look brings the
//!   client's session up to date, and a query gives what the session has seen. Rows that were
//!   written meanwhile are read again by a batch of reads, which is one moment.
//! * A **scan** asks for `LatestCommitted`, a read of a majority of the copies in its region.
//! * **A lost answer.** The rows are looked at. If one has the commit's own mark, it happened. If
//!   the rows that it replaces are all as they were, it has not, and it is sent again under their
//!   `_etag`: the service lets one of the two attempts pass. Otherwise (somebody wrote such a row,
//!   or the commit replaces none) it is [`Unknown`](emmer_store::CommitOutcome::Unknown). The SDK
//!   itself repeats nothing.
//! * **Throttling** (429, 449) did nothing: the request is sent again after the time that the
//!   service names, up to eight times and within the operation's time; then it is `Unavailable`.
//!   It is never a conflict. 408, 500 and 503 leave the outcome open, as a lost answer does.
//! * An account that **writes in several regions** would take two commits on one version and throw
//!   one away. It is refused when the store is opened.
//!
//! # Limits
//!
//! A batch takes 2 MiB; a commit has 1.5 MiB as JSON, a row 1 MiB. Larger ones are `Invalid` and
//! not sent. Integers beyond 2^53 are text: the service's numbers are floating point.

mod account;
mod address;
mod batch;
mod client;
mod commit;
mod document;
mod examine;
mod failure;
mod read;
mod script;
mod store;
mod writes;

pub use script::script;
pub use store::{Cosmos, CosmosStore};
