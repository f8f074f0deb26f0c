//! The store: a driver, and what all relational stores share.

use emmer_store::{Result, TableDecl};
use emmer_store_relational::{Relational, relational_store, schema};
use tokio::time::Instant;

use crate::dialect::OracleSql;
use crate::driver::OracleDriver;
use crate::place::Place;

/// A system store in an Oracle database. Untested against a live server.
///
/// Dropping it closes its connections, each on a thread of its own.
pub struct OracleStore {
    inner: Relational<OracleDriver>,
}

relational_store!(OracleStore);

impl OracleStore {
    /// Connects to `oracle://user:password@host:port/service`; the tables are in that user's
    /// schema. Where the URL gives no password the environment's `ORACLE_PASSWORD` is used.
    /// `?pool_max=8` is how many connections the store opens at most (1 to 64), `?timeout_ms=4800`
    /// how long an operation takes at most, connecting and waiting for locks included (1000 to
    /// 60000). `?sslmode=` is `disable` (the default) or `verify-full`, which connects with TLS
    /// (port 2484 unless the URL names one) and trusts the usual root certificates and, with
    /// `?wallet=FOLDER`, those in that folder's `ewallet.pem`. `?sid=NAME` stands for the service
    /// of a database that has none.
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot
    /// be understood, `Unavailable` when nobody answers or the listener knows no such service,
    /// `Refused` for wrong credentials, TLS that cannot be had, or a database whose character set
    /// is not AL32UTF8.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let place = Place::parse(url, std::env::var("ORACLE_PASSWORD").ok().as_deref())?;
        let name = place.name.clone();
        let (a, b) = uuid::Uuid::new_v4().as_u64_pair();
        // Six bits of a random UUID are fixed, at different places in its halves.
        let seed = a ^ b.rotate_left(32);
        Ok(Self { inner: Relational::open(name, OracleDriver::new(place), begun, seed).await? })
    }

    /// The `CREATE` script for an administrator who lets no application make tables.
    pub fn script(tables: &[&TableDecl]) -> String {
        // Clients of this server begin a transaction by themselves.
        schema::script(&OracleSql, tables) + "COMMIT;\n"
    }
}
