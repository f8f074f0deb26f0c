//! The store: a driver, and what all relational stores share.

use emmer_store::{Result, TableDecl};
use emmer_store_relational::{Relational, relational_store, schema};
use tokio::time::Instant;

use crate::dialect::{Flavour, MySql};
use crate::driver::MysqlDriver;
use crate::place::Place;

/// A system store in a MariaDB or MySQL database.
///
/// Dropping it closes its connections.
pub struct MysqlStore {
    inner: Relational<MysqlDriver>,
}

relational_store!(MysqlStore);

impl MysqlStore {
    /// Connects to `mysql://user:password@host:port/database` or `mariadb://...` (the same; which
    /// of the two the server is it says itself). Where the URL gives no password the environment's
    /// `MYSQL_PWD` is used. `?pool_max=8` is how many connections the store opens at most (1 to
    /// 64), `?timeout_ms=4800` how long an operation takes at most, connecting and waiting for
    /// locks included (1000 to 60000). `?sslmode=` is `disable`, `prefer` (the default), `require`
    /// or `verify-full`, which trusts the system's root certificates or those in
    /// `?ca_file=FILE`.
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot
    /// be understood, `Unavailable` when nobody answers, `Refused` for wrong credentials, a missing
    /// database, a replica, TLS that cannot be had, or a server older than MariaDB 10.3 or MySQL
    /// 8.0.17.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let place = Place::parse(url, std::env::var("MYSQL_PWD").ok().as_deref())?;
        let name = place.name.clone();
        let (a, b) = uuid::Uuid::new_v4().as_u64_pair();
        // Six bits of a random UUID are fixed, at different places in its halves.
        let seed = a ^ b.rotate_left(32);
        Ok(Self { inner: Relational::open(name, MysqlDriver::new(place), begun, seed).await? })
    }

    /// The `CREATE` script for an administrator who lets no application make tables.
    pub fn script(flavour: Flavour, tables: &[&TableDecl]) -> String {
        schema::script(&MySql(flavour), tables)
    }
}
