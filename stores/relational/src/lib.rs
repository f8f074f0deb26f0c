//! The common part of the system stores on SQL servers.
//!
//! A [`TableDecl`](emmer_store::TableDecl) becomes a real table with one column for each declared
//! column, an `etag` column and a primary key over both key columns. The servers differ in how they
//! quote names, number parameters and call types: that is a [`Dialect`]; and in how they are talked
//! to: that is a [`Driver`]. Everything else is written once, here:
//!
//! | module | subject |
//! |---|---|
//! | [`dialect`] | what one server's SQL does its own way |
//! | [`names`] | tables, columns and indexes as the server spells them |
//! | [`schema`] | `CREATE` scripts, the recorded schema version, what is missing in what is found |
//! | [`statements`] | reads, scans, touches, clean-up, as text |
//! | [`rows`] | rows of an answer as rows of the contract |
//! | [`etags`] | etags that never come back |
//! | [`address`] | the parameters of all URLs |
//! | [`calendar`] | times as dates, for servers that keep these |
//! | [`driver`] | what a server's own crate does |
//! | [`order`] | which rows are locked before which |
//! | [`limits`] | connections and times, as a URL sets them |
//! | [`fault`] | failures, and what they say about the statement that was sent |
//! | `group`, `shared` | requests that share a statement |
//! | `pool` | the connections of a store |
//! | `pace` | how long requests take, and which are refused for it |
//! | [`store`] | the store: checks, retries, outcomes |
//!
//! How a server changes up to a hundred rows in one round trip is what its own crate is for. All
//! lock in one [`order`].

pub mod address;
pub mod calendar;
pub mod dialect;
pub mod driver;
pub mod etags;
pub mod fault;
mod group;
pub mod limits;
pub mod names;
pub mod order;
mod pace;
mod pool;
pub mod rows;
pub mod schema;
mod shared;
pub mod statements;
pub mod store;

pub use address::{CA_FILE, POOL_MAX, SSL_MODE, TlsMode};
pub use calendar::Date;
pub use dialect::{Dialect, SqlType};
pub use driver::{Answer, Driver, Each, EachAnswer, EachRow, Request};
pub use emmer_store::Fault;
pub use etags::Etags;
pub use fault::Failure;
pub use limits::Limits;
pub use names::Names;
pub use rows::{Cells, stored_row};
pub use statements::{Made, Statements};
pub use store::Relational;
