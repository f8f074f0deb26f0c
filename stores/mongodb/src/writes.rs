//! Touches, appends and clean-ups.

use emmer_store::{Row, StoredRow, TableDecl};
use emmer_store_keyvalue::{
    Answered, At, Fault, Old, Reads, Touch, Writes, delete_in_parts, first_of_each_key,
};
use mongodb::bson::doc;
use tokio::time::Instant;

use crate::commit::{Builder, Update};
use crate::documents::{self, ID, ROWS, column_path, row_path};
use crate::store::MongoDb;

/// Number of rows that one update of a clean-up deletes.
const DELETED_TOGETHER: usize = 50;

impl MongoDb {
    /// Sends an update that may be done twice. Returns true if its condition held.
    async fn applied(
        &self,
        decl: &'static TableDecl,
        update: &Update,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let collection = self.client().collection(decl);
        let request = || async {
            let request = collection.update_one(update.filter.clone(), update.operators.clone());
            Ok(request.await?.matched_count > 0)
        };
        self.client().send(deadline, request).await
    }

    async fn delete_as_read(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        rows: &[StoredRow],
        column: &str,
    ) -> Result<bool, Fault> {
        let mark = self.mark();
        let mut builder = Builder::new(decl, partition, &mark);
        for row in rows {
            let key = row.row.key();
            builder.unchanged(key, &row.etag);
            if let Some((_, column)) = decl.column(column) {
                builder.holds(
                    column_path(key, column),
                    row.row.get(column.name).map(documents::encode),
                );
            }
            builder.remove(key);
        }
        // A repeated request finds them changed: the count is too small, which does no harm.
        self.applied(decl, &builder.update(), self.client().deadline()).await
    }

    /// Deletes the document of a partition without rows: nothing is to be left of a grain whose
    /// states are cleared.
    pub(crate) async fn forget_empty(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let collection = self.client().collection(decl);
        let request =
            || async { collection.delete_one(doc! { ID: partition, ROWS: {} }).await.map(drop) };
        self.client().send(deadline, request).await
    }
}

impl Writes for MongoDb {
    /// Sets a volatile column of a row, of any writer: the row's etag stays. Returns true if the
    /// row exists.
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table: decl, partition, deadline } = at;
        let Some((_, column)) = decl.column(column) else {
            return Err(Fault::corrupt(format!("there is no column {column}")));
        };
        let update = Update {
            filter: doc! { ID: partition, row_path(row_key): { "$exists": true } },
            operators: doc! { "$set": { column_path(row_key, column): documents::encode(value) } },
            makes: false,
        };
        self.applied(decl, &update, deadline).await
    }

    /// Adds those of the rows that are not there.
    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table: decl, partition, deadline } = at;
        let mut rows = first_of_each_key(rows);
        while !rows.is_empty() {
            let mark = self.mark();
            let mut builder = Builder::new(decl, partition, &mark);
            rows.iter().for_each(|row| builder.insert(row));
            // Done or not: the next check finds missing ones.
            match self.apply(decl, &builder.update(), deadline).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(ended) => return Err(ended.fault()),
            }
            let keys: Vec<&str> = rows.iter().map(|row| row.key()).collect();
            let found = self.etags(decl, partition, &keys, deadline).await?;
            rows.retain(|row| !found.contains_key(row.key()));
        }
        Ok(())
    }

    /// Deletes the old rows of a partition, each as it was read: one that is written or touched
    /// meanwhile stays.
    async fn clean_up(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        let At { table: decl, partition, .. } = at;
        let mut rows = self.read_partition(At { deadline: self.client().deadline(), ..at }).await?;
        rows.retain(|row| old.wants(&row.row));
        let delete = |part| self.delete_as_read(decl, partition, part, old.column);
        let deleted = delete_in_parts(&rows, DELETED_TOGETHER, delete).await?;
        self.forget_empty(decl, partition, self.client().deadline()).await?;
        Ok(deleted)
    }
}
