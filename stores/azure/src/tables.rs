//! Tables: one of the service for each declaration, and one, named by the prefix alone, that keeps
//! the declarations.

use emmer_store::document::declaration;
use emmer_store::{StoreErrorKind, TableDecl, Value};
use emmer_store_keyvalue::{Answered, Failure, Fault, Tables};
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::batch::{Operation, Verb};
use crate::entity::Entity;
use crate::keys::{TABLE_NAME_BYTES_MAX, literal, table_name};
use crate::store::AzureTable;

/// The partition of the table of declarations; a row's key is the name of its table.
const PARTITION: &str = "tables";
/// The column that holds a declaration.
const DECLARATION: &str = "Declaration";

impl AzureTable {
    fn prefix(&self) -> &str {
        self.client().address.layout.prefix()
    }

    /// The name of a table.
    pub(crate) fn name_of(&self, table: &TableDecl) -> String {
        table_name(self.prefix(), table)
    }

    /// The name of the table of declarations.
    pub(crate) fn declarations(&self) -> String {
        self.prefix().to_ascii_lowercase()
    }
}

impl Tables for AzureTable {
    async fn make(&self, table: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let name = self.name_of(table);
        if name.len() > TABLE_NAME_BYTES_MAX {
            let detail = format!(
                "{name} is longer than the {TABLE_NAME_BYTES_MAX} letters of a table's name"
            );
            return Err(Fault::new(StoreErrorKind::Invalid, detail));
        }
        let client = self.client();
        if self.shape(table, deadline).await?.is_some() {
            // The table itself may have been deleted.
            return match client.query(&name, "", 1, None, deadline).await {
                Err(fault) if fault.kind == StoreErrorKind::NotFound => {
                    client.make_table(&name, deadline).await
                }
                other => other.map(drop),
            };
        }
        client.make_table(&self.declarations(), deadline).await?;
        client.make_table(&name, deadline).await?;
        let mut entity = Entity::new(PARTITION, table.name);
        entity.value(DECLARATION, &Value::Text(declaration(table).into()));
        let insert = Operation::new(Verb::Insert, PARTITION, table.name, None, entity.json()?);
        // The second maker finds the first one's table, which is then compared.
        client
            .transact(&self.declarations(), &[insert], deadline, true)
            .await
            .map(drop)
            .map_err(Failure::fault)
    }

    async fn shape(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let filter = format!("PartitionKey eq '{PARTITION}' and RowKey eq {}", literal(table.name));
        let page = match self.client().query(&self.declarations(), &filter, 1, None, deadline).await
        {
            Err(fault) if fault.kind == StoreErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let found =
            page.entities.first().and_then(|entity| entity.get(DECLARATION)).and_then(Json::as_str);
        Ok(found.map(|text| text.as_bytes().to_vec()))
    }
}
