//! The commands that make the store's database and container, for credentials that may not.

use emmer_store::Result;

use crate::address::Address;
use crate::document::PARTITION;

/// The commands of Azure's command line that make the database and its container, as the URL names
/// them. Nothing is connected to. The variables `ACCOUNT` and `GROUP` name the account and its
/// resource group, `PRINCIPAL` who may read and write.
///
/// # Errors
/// `Invalid`: the URL cannot be understood.
pub fn script(url: &str) -> Result<String> {
    // Any credentials will do: no key is needed to write commands.
    let address = Address::parse(url, |_| Some("bm9uZQ==".to_owned()))?;
    let (database, container) = (quoted(address.database()), quoted(address.container()));
    Ok(format!(
        "az cosmosdb sql database create --account-name \"$ACCOUNT\" --resource-group \"$GROUP\" \\\n  \
         --name {database}\n\
         az cosmosdb sql container create --account-name \"$ACCOUNT\" --resource-group \"$GROUP\" \\\n  \
         --database-name {database} --name {container} --partition-key-path /{PARTITION} \\\n  \
         --throughput 400\n\
         # Cosmos DB Built-in Data Contributor, for tokens; keys need nothing.\n\
         az cosmosdb sql role assignment create --account-name \"$ACCOUNT\" \\\n  \
         --resource-group \"$GROUP\" --scope / --principal-id \"$PRINCIPAL\" \\\n  \
         --role-definition-id 00000000-0000-0000-0000-000000000002\n"
    ))
}

/// A name as a shell takes it.
fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_name_what_the_url_names() {
        let script = script("cosmos://acct/it's?prefix=silos&token_file=/none").unwrap();
        assert!(
            script.contains("--name 'silos'") && script.contains("--name 'it'\\''s'"),
            "{script}"
        );
        assert!(script.contains("--partition-key-path /EmmerPartition"), "{script}");
        assert!(super::script("cosmos://acct?colour=red").is_err());
        assert!(super::script("cosmos://acct").is_ok(), "no key is needed");
    }
}
