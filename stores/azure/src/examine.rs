//! The words of the service about itself.

use emmer_store::examine::{Examination, FindingLevel, FindingSubject};
use emmer_store_keyvalue::{Fault, security};

use crate::credentials::Credentials;
use crate::store::AzureTable;

/// Beginning of the emulator's name.
const EMULATOR: &str = "Azurite-Table/";

/// The whole report.
pub(crate) async fn examine(azure: &AzureTable) -> Result<Examination, Fault> {
    let client = azure.client();
    let (server, clock) = client.about(&azure.declarations(), client.deadline()).await?;
    let mut found = match server.strip_prefix(EMULATOR) {
        Some(version) => {
            let mut found = Examination::of("Azurite", version);
            found.may_lose_writes(
                "this is Azurite, the emulator: it writes its data to disk every few seconds, and \
                 a kill loses what came since; use it for tests only",
            );
            found
        }
        None => {
            let mut found = Examination::of(
                "Azure Table Storage",
                server.split(' ').next().unwrap_or_default(),
            );
            found.add(
                FindingLevel::Note,
                FindingSubject::Durability,
                "an account with geo-redundancy that fails over to the other region loses \
                 commits that were not copied yet, usually minutes: stop the cluster before a \
                 failover; silos notice a table that went back",
            );
            found
        }
    };
    found.clock = clock;
    let nobody = matches!(client.address.credentials, Credentials::Nobody);
    let names_no = nobody.then_some("account key, sas_token or token");
    security::note(&mut found, names_no, (!client.address.tls).then_some("leave tls=false out"));
    Ok(found)
}
