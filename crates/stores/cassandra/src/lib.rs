//! The system store on Apache Cassandra.

mod address;
mod batch;
mod client;
mod commit;
mod cql;
mod examine;
mod failure;
mod guesses;
mod lanes;
mod read;
mod store;
mod tables;
mod tls;
mod values;
mod writes;

pub use store::{Cassandra, CassandraStore};
pub use tables::script;
