//! Silos and clients for the scenarios, with default options.

use std::path::Path;
use std::sync::Arc;

use emmer::certs::{Authority, Wanted};
use emmer::options::StoreSource;
use emmer::store::{MemoryStore, SystemStore};
use emmer::tables::ClusterId;
use emmer::tls::Tls;
use emmer::{Client, Silo, SiloBuilder};

use crate::grains::{
    Cell, CellGrain, Counter, CounterGrain, Echo, EchoGrain, StoredCell, StoredCellGrain,
};

/// The cluster that all scenarios use, each in a store of its own.
///
/// # Errors
/// Never: the name is a valid one.
pub fn cluster_id() -> crate::Result<ClusterId> {
    Ok(ClusterId::new("bench")?)
}

/// A silo that hosts no grain yet.
///
/// # Errors
/// As [`cluster_id`].
pub fn builder(store: impl Into<StoreSource>) -> crate::Result<SiloBuilder> {
    Ok(Silo::builder().store(store).cluster_id(cluster_id()?))
}

/// A silo alone in its cluster, on a store in memory, that hosts every grain of [`crate::grains`].
///
/// # Errors
/// Error of the start.
pub async fn alone() -> crate::Result<Silo> {
    alone_on(Arc::new(MemoryStore::new())).await
}

/// Starts a lone silo on this store.
///
/// # Errors
/// Error of the start.
pub async fn alone_on(store: Arc<dyn SystemStore>) -> crate::Result<Silo> {
    let builder = builder(StoreSource::Opened(store))?;
    Ok(hosting(builder).start().await?)
}

/// Makes an authority, and certificates of a silo and a client, in `folder`.
///
/// # Errors
/// Error of making or writing them.
pub fn make_certificates(folder: &Path) -> crate::Result<()> {
    let authority = Authority::new("bench")?;
    let silo = authority.issue(&Wanted::silo("bench"))?;
    std::fs::write(folder.join("authority.pem"), authority.certificate())?;
    let client = authority.issue(&Wanted::client("bench"))?;
    for (name, issued) in [("silo", silo), ("client", client)] {
        std::fs::write(folder.join(format!("{name}.pem")), issued.certificate)?;
        std::fs::write(folder.join(format!("{name}.key")), issued.key)?;
    }
    Ok(())
}

/// TLS by what [`make_certificates`] has made in `folder`.
pub fn tls(folder: &Path) -> Tls {
    let file = |name: &str| folder.join(name);
    Tls::new(file("authority.pem"), file("silo.pem"), file("silo.key"))
}

/// TLS of a client, by the certificates in `folder`.
pub fn client_tls(folder: &Path) -> Tls {
    let file = |name: &str| folder.join(name);
    Tls::new(file("authority.pem"), file("client.pem"), file("client.key"))
}

/// With every grain of [`crate::grains`].
pub fn hosting(builder: SiloBuilder) -> SiloBuilder {
    builder
        .host::<dyn Cell, CellGrain>()
        .host::<dyn StoredCell, StoredCellGrain>()
        .host::<dyn Echo, EchoGrain>()
        .host::<dyn Counter, CounterGrain>()
}

/// A client of the cluster in `store`.
///
/// # Errors
/// Error of the connection.
pub async fn client(store: impl Into<StoreSource>) -> crate::Result<Client> {
    Ok(Client::builder().store(store).cluster_id(cluster_id()?).connect().await?)
}
