//! What the system stores on SQL servers share.
//!
//! A [`TableDecl`](emmer_store::TableDecl) becomes a real table with one column for each declared column, an `etag`
//! column and a primary key over both key columns. The servers differ in how they quote names, number parameters and
//! call types: that is a [`Dialect`]. Everything else is written once, here:
//!
//! | module | subject |
//! |---|---|
//! | [`dialect`] | what one server's SQL does its own way |
//! | [`names`] | tables, columns and indexes as the server spells them |
//! | [`schema`] | `CREATE` scripts, the recorded schema version, and whether what is found is what is declared |
//! | [`statements`] | reads, scans, touches, clean-up, as text |
//! | [`rows`] | rows of an answer as rows of the contract |
//! | [`etags`] | etags that never come back |
//!
//! A commit is not here: how a server changes up to a hundred rows in one round trip, and locks them in an order that
//! makes writers queue, is what its own crate is for. The crates agree on the order: the first mutation's row (the
//! version row, in a membership commit) is locked first, the others by key.

pub mod dialect;
pub mod etags;
pub mod names;
pub mod rows;
pub mod schema;
pub mod statements;

pub use dialect::{Dialect, SqlType};
pub use etags::Etags;
pub use names::Names;
pub use rows::{Cells, stored_row};
pub use statements::Statements;
