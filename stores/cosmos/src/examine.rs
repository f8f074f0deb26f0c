//! The service as it describes itself.

use emmer_store::StoreErrorKind;
use emmer_store::examine::{Examination, FindingLevel, FindingSubject};
use emmer_store_keyvalue::{Fault, security};

use crate::account;
use crate::store::Cosmos;

/// The beginning of the version of the tests' emulator.
const EMULATOR: &str = "emulator ";

/// Makes sure that one region alone takes commits.
///
/// # Errors
/// `Refused`: several do. Each would take a commit on the same version row, and one of the two
/// would be thrown away later. Or the service does not answer.
pub(crate) async fn one_region_writes(cosmos: &Cosmos) -> Result<(), Fault> {
    let client = cosmos.client();
    let account = account::describe(&client.http, &client.address, client.deadline()).await?;
    if account.many_write {
        let detail = format!(
            "the account writes in several regions ({}): two silos could both commit, and one \
             commit would be lost. Emmer needs an account that writes in one region",
            account.write_regions.join(", ")
        );
        return Err(Fault::new(StoreErrorKind::Refused, detail));
    }
    Ok(())
}

/// The whole report.
pub(crate) async fn examine(cosmos: &Cosmos) -> Result<Examination, Fault> {
    let client = cosmos.client();
    let deadline = client.deadline();
    let account = account::describe(&client.http, &client.address, deadline).await?;
    let mut found = match account.version.strip_prefix(EMULATOR) {
        Some(version) => {
            let mut found = Examination::of("Cosmos DB emulator", version);
            found.may_lose_writes(
                "this is the SDK's emulator: it keeps everything in memory; use it for tests only",
            );
            found
        }
        None => Examination::of("Azure Cosmos DB", account.version.clone()),
    };
    let mut note = |subject, text: String| found.add(FindingLevel::Note, subject, text);
    if account.regions > 1 && account.consistency != "Strong" {
        note(
            FindingSubject::Durability,
            format!(
                "the account has {} regions and the consistency {}: a failover that was not \
                 planned loses the commits that were not copied yet; with Strong none is lost. \
                 Silos notice a table that went back",
                account.regions, account.consistency
            ),
        );
    }
    if account.many_write {
        found.may_lose_writes("the account writes in several regions: commits are lost");
    }
    found.clock = account::clock(&client.http, &client.address, client.deadline()).await;
    security::note(&mut found, None, (!client.address.tls).then_some("leave tls=false out"));
    Ok(found)
}
