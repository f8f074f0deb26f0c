//! What the cluster says about itself.

use emmer_store::examine::Examination;
use emmer_store_keyvalue::{Fault, security};

use crate::read::one_text;
use crate::store::Cassandra;

/// The whole report.
pub(crate) async fn examine(store: &Cassandra) -> Result<Examination, Fault> {
    let (client, deadline) = (store.client(), store.client().deadline());
    let version = "SELECT release_version FROM system.local".to_owned();
    let version = one_text(client, version, Vec::new(), deadline).await?.unwrap_or_default();
    let mut found = Examination::of("Cassandra", version);
    let address = &client.address;
    let names_no = address.place.user.is_none().then_some("user");
    security::note(&mut found, names_no, (!address.tls).then_some("add ?tls=true"));
    Ok(found)
}
