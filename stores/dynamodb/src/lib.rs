//! The system store on Amazon DynamoDB, by Amazon's SDK.
//!
//! # What lies where
//!
//! ```text
//! table emmer.silo_instances   PartitionKey  RowKey            _Etag               Status  IAmAliveTime          ...
//!                              prod          10.0.0.1-11111-7  9f3c2a17d00b4e55.7  Active  2026-11-21T12:44:45Z
//!                              prod          VersionRow        9f3c2a17d00b4e55.7  (MembershipVersion 17)
//! table emmer                  Table silo_instances            (Declaration: the shape of the table)
//! ```
//!
//! One item for each row, its columns as attributes of the declared names, so that an administrator
//! sees one line for a silo, its heartbeat included. Keys are unchanged: DynamoDB takes every text,
//! and orders by bytes as the contract does.
//!
//! # How the rules of the contract are kept
//!
//! * A commit is one `TransactWriteItems`: an action for each mutation, up to a hundred, on one
//!   table.
//! * A row's etag is the attribute `_Etag`, a text that no other commit writes. Conditions compare
//!   it. A **touch** updates one attribute of an item that is there and leaves `_Etag` alone.
//! * `Insert` puts an item that must not be there. `Replace` and `Upsert` update: they set all
//!   columns but the volatile ones, which an item has from its beginning, null where there is
//!   nothing. So `if_not_exists` gives them to a new item only.
//! * A **cancelled** transaction says for each action why. The first condition that did not hold is
//!   the conflict. A conflict with another transaction on its way (`TransactionConflict`) and
//!   throttling are none: nothing happened, and the same is sent again after a pause, up to eight
//!   times and within the operation's time; then it is `Unavailable`.
//! * Every commit has a `ClientRequestToken`. The service remembers it for ten minutes from a
//!   success on: the same request sent again succeeds and changes nothing. So a commit whose answer
//!   is lost is sent again, twice at most, and only where there is no time left, or that fails too,
//!   it is [`Unknown`](emmer_store::CommitOutcome::Unknown). When the repetition finds a condition
//!   that does not hold, the first attempt did not happen before; that it will not happen later is
//!   certain if the condition is of an etag, which never comes back. One that wants a row to be
//!   missing, or to be there, may hold later: `Unknown`.
//! * Reads are strongly consistent. But a query beside a transaction may see one row of it and not
//!   the other: to the vendor it is *read-committed*, be it one page or many. `TransactGetItems` is
//!   not: it is refused while one of its items is part of a transaction on its way. So a
//!   **partition with a version row** is read between two looks at that row by `TransactGetItems`
//!   ([`emmer_store::one_moment`]). The version row lists in `_Written` which other rows its commit
//!   wrote, and the first look at a new version asks for these too: the commit is there whole
//!   before the query begins, and whoever commits next has it from such a look, or made it. A
//!   partition without a version row is what one page shows, or two equal passes over several.
//!
//! # Limits
//!
//! An item takes 400 KiB, names and keys counted, and a transaction 4 MiB. Larger ones are
//! `Invalid` and not sent. There is no index: a scan reads the whole table.

mod address;
mod client;
mod commit;
mod connector;
mod credentials;
mod examine;
mod failure;
mod item;
mod read;
mod store;
mod tables;
mod writes;

pub use store::{DynamoDb, DynamoDbStore};
