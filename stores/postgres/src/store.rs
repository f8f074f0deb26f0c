//! The store: a driver, and what all relational stores share.

use emmer_store::{Result, TableDecl};
use emmer_store_relational::{Relational, relational_store};
use tokio::time::Instant;

use crate::driver::PostgresDriver;
use crate::place::Place;
use crate::tables;

/// A system store in a PostgreSQL database.
///
/// Dropping it closes its connections; the tasks that drive them end with them.
pub struct PostgresStore {
    inner: Relational<PostgresDriver>,
}

relational_store!(PostgresStore);

impl PostgresStore {
    /// Connects to `postgres://user:password@host:port/database`. Where the URL gives no password
    /// the environment's `PGPASSWORD` is used. `?pool_max=8` is how many connections the store
    /// opens at most (1 to 64), `?timeout_ms=4800` how long an operation takes at most, connecting
    /// and waiting for locks included (1000 to 60000). `?sslmode=` is `disable`, `prefer` (the
    /// default), `require` or `verify-full`, which trusts the system's root certificates or those
    /// in `?ca_file=FILE`. The other parameters are those of the driver's URLs
    /// (`target_session_attrs`, `application_name`, `options`, ...).
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot
    /// be understood, `Unavailable` when nobody answers, `Refused` for wrong credentials, a missing
    /// database, a standby, an encoding other than UTF8 or a server older than version 12.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let place = Place::parse(url, std::env::var("PGPASSWORD").ok().as_deref())?;
        let name = place.name.clone();
        let (a, b) = uuid::Uuid::new_v4().as_u64_pair();
        // Six bits of a random UUID are fixed, at different places in its halves.
        let seed = a ^ b.rotate_left(32);
        Ok(Self { inner: Relational::open(name, PostgresDriver::new(place), begun, seed).await? })
    }

    /// The `CREATE` script for an administrator who lets no application make tables.
    pub fn script(tables: &[&TableDecl]) -> String {
        tables::script(tables)
    }
}
