//! Real servers for tests and for `cargo xtask services`: child processes on private ports of this
//! host, in folders of their own. Nothing here touches a server it did not start, and nothing here
//! installs one: an error names missing parts.
//!
//! ```no_run
//! # use emmer_test_servers::PostgresServer;
//! // None, with a loud line, when PostgreSQL is not installed; a panic where CI=true.
//! if let Some(server) = PostgresServer::start_or_skip("the_store_conforms") {
//!     println!("{}", server.url());
//! }
//! ```

mod ask;
pub mod azurite;
pub mod cassandra;
pub mod certificates;
pub mod consul;
pub mod cosmos;
pub mod database;
pub mod dynamodb;
pub mod etcd;
pub mod group;
mod local;
pub mod mariadb;
pub mod mongodb;
pub mod postgres;
pub mod process;
pub mod redis;
pub mod report;
#[cfg(feature = "suite")]
pub mod suite;
pub mod tls;
#[cfg(feature = "tsql")]
pub mod tsql;
pub mod zookeeper;

pub use azurite::AzuriteServer;
pub use cassandra::{CassandraCluster, CassandraKeyspace, CassandraServer};
pub use certificates::Certificates;
pub use consul::ConsulServer;
pub use cosmos::CosmosServer;
pub use dynamodb::DynamoDbServer;
pub use etcd::EtcdServer;
pub use local::{Local, Starter};
pub use mariadb::MariadbServer;
pub use mongodb::{MongoDbDatabase, MongoDbServer};
pub use postgres::PostgresServer;
pub use redis::{RedisCluster, RedisServer};
pub use zookeeper::ZooKeeperServer;

use std::fmt;

/// Why there is no server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Programs are missing; the package (as Debian names it) has them.
    Missing {
        /// Program that was looked for.
        program: String,
        /// The package.
        package: &'static str,
    },
    /// The server did not start; its own words.
    Failed(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { program, package } => write!(
                f,
                "{program} is not installed: run `cargo xtask services install`, or install the \
                 package {package}"
            ),
            Self::Failed(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for Trouble {}

/// What a test does about a server it cannot have: it says so and is skipped, but where the
/// environment says `CI=true` it fails.
///
/// # Panics
/// In CI, and everywhere when the server is installed but does not start.
pub fn skip(test: &str, trouble: &Trouble) {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let missing = matches!(trouble, Trouble::Missing { .. });
    assert!(missing && !ci, "{test} cannot run: {trouble}");
    println!("SKIPPED {test}: {trouble}");
    report::skipped(test, &trouble.to_string());
}
