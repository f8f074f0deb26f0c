//! Touches, appends and clean-ups: small batches of their own, and the table of declarations.

use azure_data_cosmos::Query;
use emmer_store::document::declaration;
use emmer_store::{Row, StoreErrorKind, TableDecl};
use emmer_store_keyvalue::{Answered, At, Fault, Old, Tables, Touch, Writes, first_of_each_key};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use crate::batch::{Done, OPERATIONS_MAX, Operation};
use crate::document::{self, Found, PARTITION, encode, id, partition_value};
use crate::store::Cosmos;

/// The most times that a touch or an append looks at its rows again.
const LOOKS_MAX: u32 = 64;
/// The partition of the declarations; the id of one is the name of its table.
const DECLARATIONS: &str = "tables";
/// The field that holds a declaration.
const DECLARATION: &str = "Declaration";

impl Tables for Cosmos {
    async fn make(&self, table: &'static TableDecl, deadline: Instant) -> Answered<()> {
        self.client().make_container(deadline).await?;
        let item = json!({
            "id": table.name,
            PARTITION: DECLARATIONS,
            DECLARATION: declaration(table),
        });
        // The second maker finds the first one's item, which is then compared.
        let create = [Operation::Create(item)];
        self.client().transact_again(DECLARATIONS, &create, deadline).await.map(drop)
    }

    async fn shape(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let id = vec![table.name.to_owned()];
        let items = match self.client().read(DECLARATIONS, id, deadline).await {
            Err(fault) if fault.kind == StoreErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let text = items.first().and_then(|item| item.get(DECLARATION)).and_then(Json::as_str);
        Ok(text.map(|text| text.as_bytes().to_vec()))
    }
}

impl Writes for Cosmos {
    /// Sets a volatile column of a row, of any writer: the row's own etag stays. Returns false if
    /// the row is not there.
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table, partition, deadline } = at;
        let place = partition_value(table.name, partition);
        for _ in 0..LOOKS_MAX {
            let found = self.row(table, partition, row_key, deadline).await?;
            let Some(Found { mut document, service_etag, .. }) = found else { return Ok(false) };
            if let Some(fields) = document.as_object_mut() {
                fields.insert(column.to_owned(), document::field(value));
            }
            let write = [Operation::Replace(id(row_key), document, service_etag)];
            // The etag that the service gives the row now comes with the next look.
            self.guesses().learn(table, partition, row_key, None);
            if let Done::All(_) = self.client().transact_again(&place, &write, deadline).await? {
                return Ok(true);
            }
        }
        Err(Fault::unavailable("others write the same row all the time"))
    }

    /// Adds those of the rows that are not there: all at once, and without those that were found to
    /// be there.
    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table, partition, deadline } = at;
        let (mark, place) = (self.mark(), partition_value(table.name, partition));
        let mut rows = first_of_each_key(rows);
        for _ in 0..LOOKS_MAX {
            if rows.is_empty() {
                return Ok(());
            }
            let create = |row: &&Row| Operation::Create(encode(table, partition, row, &mark, None));
            let operations: Vec<Operation> = rows.iter().map(create).collect();
            match self.client().transact_again(&place, &operations, deadline).await? {
                Done::All(_) => return Ok(()),
                Done::Not(_) => {
                    let keys: Vec<&str> = rows.iter().map(|row| row.key()).collect();
                    let there = self.some_rows(table, partition, &keys, deadline).await?;
                    rows.retain(|row| there.iter().all(|it| it.stored.row.key() != row.key()));
                }
            }
        }
        Err(Fault::unavailable("others add the same rows all the time"))
    }

    /// Deletes the old rows of a partition, each as it was read: one that is written or touched
    /// meanwhile stays.
    async fn clean_up(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        let At { table, partition, .. } = at;
        let (query, deadline) = (Query::from("SELECT * FROM c"), self.client().deadline());
        let found = self.find_all(table, &query, Some(partition), usize::MAX, deadline).await?;
        let found: Vec<Found> =
            found.into_iter().filter(|found| old.wants(&found.stored.row)).collect();
        let place = partition_value(table.name, partition);
        let mut deleted = 0;
        for part in found.chunks(OPERATIONS_MAX) {
            let delete = |found: &Found| {
                let key = found.stored.row.key();
                self.guesses().learn(table, partition, key, None);
                Operation::Delete(id(key), Some(found.service_etag.clone()))
            };
            let mut operations: Vec<Operation> = part.iter().map(delete).collect();
            // Each refusal leaves one less.
            while !operations.is_empty() {
                let deadline = self.client().deadline();
                match self.client().transact_again(&place, &operations, deadline).await? {
                    Done::All(_) => break,
                    Done::Not(at) => drop(operations.remove(at)),
                }
            }
            deleted += operations.len() as u64;
        }
        Ok(deleted)
    }
}
