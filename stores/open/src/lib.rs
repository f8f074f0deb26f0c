//! Opens any system store by its URL. Which schemes are known depends on the crate's features: each
//! brings a store, and `emmer` passes its own on.

mod credentials;
mod masked;
mod renewed;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use emmer_store::memory::MemoryStore;
use emmer_store::url::{ParseStoreUrlError, StoreUrl};
use emmer_store::{BoxFuture, StoreError, StoreErrorKind, SystemStore};

pub use self::credentials::{CredentialError, CredentialSource, StoreCredentials};
use self::credentials::{Origin, without_files};
use self::masked::{masked, without_secrets};
use self::renewed::{Open, Renewed};

/// The URL schemes that can be opened.
pub const SCHEMES: &[&str] = &[
    "memory",
    #[cfg(feature = "azure")]
    "azure-table",
    #[cfg(feature = "cassandra")]
    "cassandra",
    #[cfg(feature = "consul")]
    "consul",
    #[cfg(feature = "cosmos")]
    "cosmos",
    #[cfg(feature = "dynamodb")]
    "dynamodb",
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "mysql")]
    "mariadb",
    #[cfg(feature = "mongodb")]
    "mongodb",
    #[cfg(feature = "mssql")]
    "mssql",
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "oracle")]
    "oracle",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "rediss",
    #[cfg(feature = "sqlite")]
    "sqlite",
    #[cfg(feature = "mssql")]
    "sqlserver",
    #[cfg(feature = "zookeeper")]
    "zookeeper",
];

fn invalid(store: String, detail: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Invalid, store, operation: "open".to_owned(), detail }
}

/// The features that bring the stores of schemes called otherwise; the others are called like their
/// schemes.
const FEATURES: [(&str, &str); 4] =
    [("azure-table", "azure"), ("mariadb", "mysql"), ("rediss", "redis"), ("sqlserver", "mssql")];

/// Tells an operator how to get the store of a scheme that this build has none for.
fn unknown(scheme: &str) -> String {
    if !emmer_store::url::SCHEMES.contains(&scheme) {
        return format!("there is no store for {scheme}://: this build has {}", SCHEMES.join(", "));
    }
    let feature = FEATURES.iter().find(|(other, _)| *other == scheme);
    let feature = feature.map_or(scheme, |(_, feature)| feature);
    format!("this build has no store for {scheme}://: build it with --features {feature}")
}

fn parsed(url: &str) -> Result<StoreUrl, StoreError> {
    url.parse().map_err(|e| match e {
        ParseStoreUrlError::UnknownScheme(scheme) => {
            invalid(format!("{scheme}://"), unknown(&scheme))
        }
        e => invalid("store".to_owned(), e.to_string()),
    })
}

/// Opens a system store: `sqlite://relative.db`, `sqlite:///absolute.db`, `memory://name` (inside
/// this process: the same name is the same store while it is held), and a scheme for each feature
/// that brings a store, as in `postgres://user:password@host/database` (`docs/store.md` has them
/// all).
///
/// A secret may stand in a file: `postgres://user@host/database?password_file=/run/secrets/db`. It
/// is read again when the server refuses it, and when the file has changed.
///
/// # Errors
/// An unknown scheme, with the known ones; or the store's error, which names the store and never a
/// password.
pub fn open(url: &str) -> BoxFuture<'static, Result<Arc<dyn SystemStore>, StoreError>> {
    open_with(url, None)
}

/// Opens a system store with credentials that the program gives instead of the URL's.
///
/// # Errors
/// As [`open`]; `Refused` if the program gives none, `Invalid` for a store that takes none.
pub fn open_with(
    url: &str,
    source: Option<CredentialSource>,
) -> BoxFuture<'static, Result<Arc<dyn SystemStore>, StoreError>> {
    let url = url.to_owned();
    // In a box: with the drivers of all stores the type would nest too deeply for rustc.
    Box::pin(async move {
        let parsed = parsed(&url)?;
        if source.is_some() && !has_connections(&url) {
            let detail = "this store takes no credentials: leave out store_credentials".to_owned();
            return Err(invalid(parsed.to_string(), detail));
        }
        match Origin::of(&parsed, source) {
            None => opened(&url).await,
            Some(origin) => {
                let open: Open =
                    Arc::new(|url: String| Box::pin(async move { opened(&url).await }));
                Ok(Arc::new(Renewed::open(&parsed, origin, open).await?) as Arc<dyn SystemStore>)
            }
        }
    })
}

/// Returns true if a store of this URL sends its requests over connections, so that opening it
/// twice gives two separate ways to the server. A store in this process or in a file has one queue.
pub fn has_connections(url: &str) -> bool {
    let scheme = url.split_once("://").map_or(url, |(scheme, _)| scheme);
    !["memory", "sqlite"].iter().any(|local| scheme.eq_ignore_ascii_case(local))
}

/// Opens a system store to read it. No file is made: one that is missing is `NotFound`, whatever
/// the `mode` of its URL.
///
/// # Errors
/// As [`open`].
pub fn open_to_read(url: &str) -> BoxFuture<'static, Result<Arc<dyn SystemStore>, StoreError>> {
    open_to_read_with(url, None)
}

/// Opens a system store to read it, with credentials that the program gives instead of the URL's.
///
/// # Errors
/// As [`open_with`].
pub fn open_to_read_with(
    url: &str,
    source: Option<CredentialSource>,
) -> BoxFuture<'static, Result<Arc<dyn SystemStore>, StoreError>> {
    open_with(&without_making(url), source)
}

/// The URL of a store that makes no file.
fn without_making(url: &str) -> String {
    let is_file =
        url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("sqlite"));
    if !is_file {
        return url.to_owned();
    }
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let kept =
        query.split('&').filter(|one| !one.is_empty() && *one != "mode=rwc" && *one != "mode=rw");
    let query: Vec<_> = std::iter::once("mode=rw").chain(kept).collect();
    format!("{place}?{}", query.join("&"))
}

/// Opens a store; whatever its driver says of a failure, the address's secrets stay out of it.
async fn opened(url: &str) -> Result<Arc<dyn SystemStore>, StoreError> {
    let address = parsed(url)?;
    match by_scheme(url).await {
        Ok(store) => Ok(masked(store, address)),
        Err(error) => Err(without_secrets(&address, error)),
    }
}

async fn by_scheme(url: &str) -> Result<Arc<dyn SystemStore>, StoreError> {
    let parsed = parsed(url)?;
    match parsed.scheme() {
        "memory" => match parsed.parameters().next() {
            None => Ok(memory(parsed.place())),
            Some((name, _)) => {
                let detail = format!("there is no parameter {name:?}: memory://name takes none");
                Err(invalid(parsed.to_string(), detail))
            }
        },
        #[cfg(feature = "azure")]
        "azure-table" => Ok(Arc::new(emmer_store_azure::AzureTableStore::open(url).await?)),
        #[cfg(feature = "cassandra")]
        "cassandra" => Ok(Arc::new(emmer_store_cassandra::CassandraStore::open(url).await?)),
        #[cfg(feature = "consul")]
        "consul" => Ok(Arc::new(emmer_store_consul::ConsulStore::open(url).await?)),
        #[cfg(feature = "cosmos")]
        "cosmos" => Ok(Arc::new(emmer_store_cosmos::CosmosStore::open(url).await?)),
        #[cfg(feature = "dynamodb")]
        "dynamodb" => Ok(Arc::new(emmer_store_dynamodb::DynamoDbStore::open(url).await?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(emmer_store_etcd::EtcdStore::open(url).await?)),
        #[cfg(feature = "mongodb")]
        "mongodb" => Ok(Arc::new(emmer_store_mongodb::MongoDbStore::open(url).await?)),
        #[cfg(feature = "mssql")]
        "mssql" | "sqlserver" => Ok(Arc::new(emmer_store_mssql::MssqlStore::open(url).await?)),
        #[cfg(feature = "mysql")]
        "mariadb" | "mysql" => Ok(Arc::new(emmer_store_mysql::MysqlStore::open(url).await?)),
        #[cfg(feature = "oracle")]
        "oracle" => Ok(Arc::new(emmer_store_oracle::OracleStore::open(url).await?)),
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Arc::new(emmer_store_postgres::PostgresStore::open(url).await?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(Arc::new(emmer_store_redis::RedisStore::open(url).await?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let url = url.to_owned();
            // Opening a file blocks: not on a thread that runs turns.
            let opened =
                tokio::task::spawn_blocking(move || emmer_store_sqlite::SqliteStore::open(&url))
                    .await;
            let store = opened.map_err(|e| invalid(parsed.to_string(), e.to_string()))??;
            Ok(Arc::new(store))
        }
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Ok(Arc::new(emmer_store_zookeeper::ZooKeeperStore::open(url).await?)),
        other => Err(invalid(parsed.to_string(), unknown(other))),
    }
}

/// The script that makes the tables of a store, for administrators who let no application make
/// them: `CREATE` statements, or the vendor's commands; none for a store that has no tables to
/// make. Nothing is connected to, and no file is made.
///
/// # Errors
/// As [`open`]'s for a URL it does not understand.
pub fn schema(url: &str) -> Result<Option<String>, StoreError> {
    let parsed = without_files(&parsed(url)?);
    #[cfg(any(
        feature = "cassandra",
        feature = "mssql",
        feature = "mysql",
        feature = "oracle",
        feature = "postgres",
        feature = "sqlite"
    ))]
    let tables = emmer_store::TABLES;
    Ok(match parsed.scheme() {
        #[cfg(feature = "cassandra")]
        "cassandra" => Some(emmer_store_cassandra::script(url, &tables)?),
        #[cfg(feature = "cosmos")]
        "cosmos" => Some(emmer_store_cosmos::script(url)?),
        #[cfg(feature = "mysql")]
        "mariadb" => Some(emmer_store_mysql::script(emmer_store_mysql::Flavour::MariaDb, &tables)),
        #[cfg(feature = "mssql")]
        "mssql" | "sqlserver" => Some(emmer_store_mssql::script(&tables)),
        #[cfg(feature = "mysql")]
        "mysql" => Some(emmer_store_mysql::script(emmer_store_mysql::Flavour::MySql, &tables)),
        #[cfg(feature = "oracle")]
        "oracle" => Some(emmer_store_oracle::script(&tables)),
        #[cfg(feature = "postgres")]
        "postgres" => Some(emmer_store_postgres::script(&tables)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Some(emmer_store_sqlite::script(&tables)),
        scheme if SCHEMES.contains(&scheme) => None,
        other => return Err(invalid(parsed.to_string(), unknown(other))),
    })
}

static MEMORY: Mutex<BTreeMap<String, Weak<MemoryStore>>> = Mutex::new(BTreeMap::new());

fn memory(name: &str) -> Arc<dyn SystemStore> {
    let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    stores.retain(|_, store| store.strong_count() > 0);
    if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
        return store;
    }
    let store = Arc::new(MemoryStore::new());
    stores.insert(name.to_owned(), Arc::downgrade(&store));
    store
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_never_makes_a_file() {
        for (url, opened) in [
            ("sqlite://a.db", "sqlite://a.db?mode=rw"),
            ("SQLite://a.db", "SQLite://a.db?mode=rw"),
            ("sqlite://a.db?synchronous=full", "sqlite://a.db?mode=rw&synchronous=full"),
            ("sqlite://a.db?mode=rwc", "sqlite://a.db?mode=rw"),
            ("sqlite://a.db?mode=odd", "sqlite://a.db?mode=rw&mode=odd"),
            ("memory://x", "memory://x"),
        ] {
            assert_eq!(without_making(url), opened);
        }
    }

    #[test]
    fn a_store_in_this_process_or_in_a_file_has_no_connections() {
        for (url, has) in [
            ("memory://x", false),
            ("SQLite://a.db", false),
            ("postgres://host/db", true),
            ("redis://host", true),
        ] {
            assert_eq!(has_connections(url), has, "{url}");
        }
    }

    #[tokio::test]
    async fn a_store_in_memory_takes_no_parameters() {
        for (url, word) in [("memory://x?timeout_ms=1", "timeout_ms"), ("memory://?pool", "pool")] {
            let error = open(url).await.map(|store| store.describe()).unwrap_err();
            assert!(
                error.kind == StoreErrorKind::Invalid && error.detail.contains(word),
                "{error}"
            );
        }
        let (upper, lower) = (open("MEMORY://x").await.unwrap(), open("memory://x").await.unwrap());
        assert!(Arc::ptr_eq(&upper, &lower), "the case of a scheme means nothing");
    }
}
