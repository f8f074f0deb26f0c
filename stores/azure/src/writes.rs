//! Touches, appends and clean-ups: small transactions of their own.

use emmer_store::{ColumnType, Row, TableDecl};
use emmer_store_keyvalue::{Answered, At, Failure, Fault, Old, Touch, Writes, first_of_each_key};

use crate::batch::{Done, OPERATIONS_MAX, Operation, Verb};
use crate::entity::{Entity, Found};
use crate::keys;
use crate::store::AzureTable;

/// Number of looks of an append for its rows.
const APPEND_LOOKS_MAX: u32 = 8;

impl AzureTable {
    async fn delete_some(
        &self,
        table: &'static TableDecl,
        partition: &str,
        found: &[Found],
    ) -> Result<u64, Fault> {
        let stored = keys::encode(partition).stored;
        let delete = |found: &Found| {
            let key = found.stored.row.key();
            self.guesses().learn(table, partition, key, None);
            let key = keys::encode(key).stored;
            Operation::new(Verb::Delete, &stored, &key, Some(&found.service_etag), String::new())
        };
        let mut operations: Vec<Operation> = found.iter().map(delete).collect();
        // Each refusal leaves one less.
        while !operations.is_empty() {
            let deadline = self.client().deadline();
            let done =
                self.client().transact(&self.name_of(table), &operations, deadline, false).await;
            match done.map_err(Failure::fault)? {
                Done::All(_) => break,
                Done::Not(at) => drop(operations.remove(at)),
            }
        }
        Ok(u64::try_from(operations.len()).unwrap_or(u64::MAX))
    }
}

impl Writes for AzureTable {
    /// Merges a volatile column into its row, of any writer: the row's own etag stays. Returns true
    /// if the row exists.
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table, partition, deadline } = at;
        let mut entity = Entity::new(partition, row_key);
        entity.value(column, value);
        if !matches!(value.column_type(), ColumnType::Int | ColumnType::Time) {
            entity.end_parts(column);
        }
        let (stored, row) = (keys::encode(partition).stored, keys::encode(row_key).stored);
        let merge = Operation::new(Verb::Merge, &stored, &row, Some("*"), entity.json()?);
        // The row's other etag, besides the service's new one, is unknown.
        self.guesses().learn(table, partition, row_key, None);
        match self.client().transact(&self.name_of(table), &[merge], deadline, true).await {
            Ok(Done::All(_)) => Ok(true),
            Ok(Done::Not(_)) => Ok(false),
            Err(failure) => Err(failure.fault()),
        }
    }

    /// Adds those of the rows that are not there: all at once, and without those that were found to
    /// be there.
    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table, partition, deadline } = at;
        let mark = self.mark();
        let mut rows = first_of_each_key(rows);
        for _ in 0..APPEND_LOOKS_MAX {
            if rows.is_empty() {
                return Ok(());
            }
            let insert = |row: &&Row| {
                let (stored, key) =
                    (keys::encode(partition).stored, keys::encode(row.key()).stored);
                let body = Entity::of(partition, row, &mark).json()?;
                Ok(Operation::new(Verb::Insert, &stored, &key, None, body))
            };
            let operations: Result<Vec<Operation>, Fault> = rows.iter().map(insert).collect();
            let done =
                self.client().transact(&self.name_of(table), &operations?, deadline, true).await;
            match done.map_err(Failure::fault)? {
                Done::All(_) => return Ok(()),
                Done::Not(_) => {
                    let keys: Vec<&str> = rows.iter().map(|row| row.key()).collect();
                    let there = self.look_at(table, partition, &keys, deadline).await?;
                    rows.retain(|row| !there.contains_key(row.key()));
                }
            }
        }
        Err(Fault::unavailable("others add the same rows all the time"))
    }

    /// Deletes the old rows of a partition, each as it was read: one that is written or touched
    /// meanwhile stays.
    async fn clean_up(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        let At { table, partition, .. } = at;
        let filter = format!("PartitionKey eq {}", keys::literal(&keys::encode(partition).stored));
        let found = self.find_all(table, &filter, usize::MAX, self.client().deadline()).await?;
        let found: Vec<Found> =
            found.into_iter().filter(|found| old.wants(&found.stored.row)).collect();
        let mut deleted = 0;
        for part in found.chunks(OPERATIONS_MAX) {
            deleted += self.delete_some(table, partition, part).await?;
        }
        Ok(deleted)
    }
}
