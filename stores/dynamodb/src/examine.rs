//! The words of the service about itself.

use aws_sdk_dynamodb::types::TableDescription;
use emmer_store::examine::{Examination, FindingLevel, FindingSubject};
use emmer_store::silos::SILO_INSTANCES;
use emmer_store_keyvalue::{Fault, security};

use crate::credentials::Credentials;
use crate::store::DynamoDb;

/// Name of the emulator's web server; the service's says `Server`.
const EMULATOR: &str = "Jetty";

/// The whole report.
pub(crate) async fn examine(store: &DynamoDb) -> Result<Examination, Fault> {
    let client = store.client();
    let (server, clock) = client.about(client.deadline()).await?;
    let mut found = if server.starts_with(EMULATOR) {
        let mut found = Examination::of("DynamoDB Local", "");
        found.may_lose_writes(
            "this is DynamoDB Local, the emulator, one process on one machine: use it for tests \
             only",
        );
        found
    } else {
        Examination::of("DynamoDB", &client.address.region)
    };
    if let Some(table) = store.described(&store.name_of(&SILO_INSTANCES), client.deadline()).await?
    {
        note_table(&mut found, &table);
    }
    found.clock = clock;
    let nobody = matches!(client.address.credentials, Credentials::Nobody);
    let names_no = nobody.then_some("access key");
    security::note(&mut found, names_no, (!client.address.tls).then_some("leave tls=false out"));
    Ok(found)
}

/// Notes the facts about the table of silos.
fn note_table(found: &mut Examination, table: &TableDescription) {
    let regions: Vec<&str> =
        table.replicas().iter().filter_map(|replica| replica.region_name.as_deref()).collect();
    if !regions.is_empty() {
        found.may_lose_writes(format!(
            "the table of silos has replicas in other regions ({}): a write there may undo one \
             here, and a failover loses commits that were not copied yet; let the silos of a \
             cluster use one region",
            regions.join(", ")
        ));
    }
    if table.billing_mode_summary.is_none() {
        found.add(
            FindingLevel::Note,
            FindingSubject::Durability,
            "the table of silos has provisioned throughput: a cluster that starts needs more than \
             one that runs; on demand there is nothing to reckon",
        );
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{BillingMode, BillingModeSummary, ReplicaDescription};

    use super::*;

    #[test]
    fn replicas_and_provisioned_tables_are_told() {
        let on_demand =
            BillingModeSummary::builder().billing_mode(BillingMode::PayPerRequest).build();
        let table = TableDescription::builder().billing_mode_summary(on_demand);
        let mut found = Examination::of("DynamoDB", "eu-1");
        note_table(&mut found, &table.clone().build());
        assert!(found.findings.is_empty() && !found.warns_of_lost_writes());
        let replica = ReplicaDescription::builder().region_name("us-east-1").build();
        note_table(&mut found, &table.replicas(replica).build());
        assert!(found.warns_of_lost_writes());
        let mut found = Examination::of("DynamoDB", "eu-1");
        note_table(&mut found, &TableDescription::builder().build());
        assert_eq!(found.findings.len(), 1);
    }
}
