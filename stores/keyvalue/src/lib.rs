//! Common parts of the system stores on key-value servers (Redis, etcd, Consul, ZooKeeper): the
//! store itself, [`KeyValue`], over a [`Backend`] that knows one server's transactions, and parts
//! of backends.
//!
//! | module | subject |
//! |---|---|
//! | [`store`] | the system store over any backend: requests checked, limited in time, handed on |
//! | [`backend`] | what a server must be able to do |
//! | [`azure`] | what the stores on Azure's two services share |
//! | [`asked`] | what scans, clean-ups, appends and commits ask for |
//! | [`document`] | a row as one JSON document with the declared column names, a volatile column as one JSON value |
//! | [`layout`] | the names of keys, readable and without common prefixes of different partitions |
//! | [`rows`] | rows put together from the keys they were read from |
//! | [`outcome`] | the answer to a commit that happened |
//! | [`security`] | what leaves a server open to others |
//! | [`guesses`] | what is believed about rows, to save a request |
//! | `known` | the tables a store has seen on its server |
//! | [`marks`] | texts that never come back |
//! | [`patience`] | what a server that has too much to do is given |
//! | [`revisions`] | the server's own revision of a key as an etag |
//! | [`tls`] | certificates |
//! | `http` | requests to one of several servers, with a deadline (feature `http`) |
//!
//! The layout is similar on all of them: the columns that a commit writes are one value, and each
//! *volatile* column is a value of its own. So a touch is one blind write that changes no etag, and
//! a commit cannot turn it back.

pub mod asked;
pub mod azure;
pub mod backend;
pub mod document;
pub mod guesses;
#[cfg(feature = "http")]
pub mod http;
mod known;
pub mod layout;
pub mod marks;
pub mod outcome;
pub mod patience;
pub mod revisions;
pub mod rows;
pub mod security;
pub mod store;
pub mod tls;

pub use asked::{Old, Scan, Touch, check_sizes, delete_in_parts, first_of_each_key};
pub use backend::{At, Backend, Commits, Reads, Tables, Writes};
pub use emmer_store::{Answered, Failure, Fault};
pub use guesses::Guesses;
pub use layout::Layout;
pub use marks::Marks;
pub use patience::Patience;
pub use store::KeyValue;
