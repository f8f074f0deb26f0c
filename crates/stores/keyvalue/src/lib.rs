//! What the system stores on key-value servers (Redis, etcd, Consul) share.
//!
//! | module | subject |
//! |---|---|
//! | [`contention`] | races for one row: who lost comes back a little later |
//! | [`document`] | a row as one JSON document with the declared column names, a volatile column as one JSON value |
//! | [`layout`] | the names of keys, readable and without common prefixes of different partitions |
//! | [`place`] | addresses: `scheme://user:password@host:port,host:port/path?parameters` |
//! | [`fault`] | failures, and whether they leave the outcome unknown |
//! | [`known`] | the tables a store has seen on its server |
//! | [`marks`] | texts that never come back |
//! | [`revisions`] | the server's own revision of a key as an etag |
//! | [`tls`] | certificates |
//! | `http` | requests to one of several servers, with a deadline (feature `http`) |
//!
//! The layout is the same on all of them: the columns a commit writes are one value, and each *volatile* column is a
//! value of its own beside it. So a touch is one blind write that changes no etag, and a commit cannot turn it back.

pub mod contention;
pub mod document;
pub mod fault;
#[cfg(feature = "http")]
pub mod http;
pub mod known;
pub mod layout;
pub mod marks;
pub mod place;
pub mod revisions;
pub mod tls;

pub use contention::Contention;
pub use fault::{Failure, Fault};
pub use known::Known;
pub use layout::Layout;
pub use marks::Marks;
pub use place::Place;
