//! The system store on Azure Table Storage, over its REST API.
//!
//! # What lies where
//!
//! ```text
//! table emmersiloinstances   PartitionKey  RowKey            _Etag               Status  IAmAliveTime          ...
//!                            prod          10.0.0.1-11111-7  9f3c2a17d00b4e55.7  Active  2026-11-21T12:44:45Z
//!                            prod          VersionRow        9f3c2a17d00b4e55.7  (MembershipVersion 17)
//! table emmer                tables        silo_instances    (Declaration: the shape of the table)
//! ```
//!
//! One entity for each row, its columns as properties of the declared names, so that an
//! administrator sees one line for a silo, its heartbeat included. `/`, `\`, `#`, `?`, `%`, `~` and
//! control characters of keys become `%XX`. Keys are never in the path of a request, where the
//! service decodes a `%` twice.
//!
//! # How the rules of the contract are kept
//!
//! * A commit is one entity group transaction: an operation for each mutation, up to a hundred, on
//!   one partition. Its status is 202 also when it failed; the answer inside decides.
//! * A row's etag is the property `_Etag`, a text that no other commit writes. The service's own
//!   etag changes with every write, a heartbeat's too, so it cannot be the row's. A commit that
//!   replaces a row has seen both at one moment: that the row has the wanted `_Etag` while the
//!   service says `W/"x"`. It is sent with `If-Match: W/"x"`. If it happens, the row had the wanted
//!   etag.
//! * If it does not, the row is another, or was only touched. The store reads the rows of the
//!   commit again: where an etag is not the wanted one that is a conflict; where all are, only
//!   heartbeats came between, and the commit is sent again with the service's new etags. So a
//!   heartbeat costs a commit another round trip, never its compare-and-set.
//! * A **touch** merges one property into the entity, whatever its etag. A commit puts a whole
//!   entity, with the volatile columns as they were seen under the service's etag that it names: so
//!   it cannot turn a heartbeat back, for a heartbeat in between makes it fail.
//! * A **check** has no operation in a transaction. It is sent as a merge of nothing, with
//!   `If-Match`: the service gives the entity a new etag of its own, the row's etag stays, and so
//!   does all of its content. Checks of one row by several writers disturb each other as heartbeats
//!   do, by a round trip.
//! * What a read saw is remembered (up to 50,000 rows), so that a commit after a read is one
//!   request. A wrong memory costs that request: the service compares.
//! * A **partition** of one page (1,000 rows) is one query, which is one moment. One of several
//!   pages is read between two looks at its version row ([`emmer_store::one_moment`]); when others
//!   commit during each of eight reads, the answer is `Unavailable`.
//! * A commit whose answer is lost, or that ends in a 500, is
//!   [`Unknown`](emmer_store::CommitOutcome::Unknown).
//! * **Throttling** (429, and 503 `ServerBusy`) did nothing: the request is sent again after the
//!   time that the service names, or 50 ms and twice as much each time, up to eight times and
//!   within the operation's time; then it is `Unavailable`. It is never a conflict.
//!
//! # Limits
//!
//! An entity takes 1 MiB, a letter counting two bytes, and a property 64 KiB: longer values
//! continue in `_Name_1`, `_Name_2`. A transaction takes 4 MiB as it is sent. Larger ones are
//! `Invalid` and not sent. There is no index: a scan reads every row of the table.

mod address;
mod batch;
mod client;
mod commit;
mod credentials;
mod entity;
mod examine;
mod keys;
mod read;
mod store;
mod tables;
mod writes;

pub use store::{AzureTable, AzureTableStore};
