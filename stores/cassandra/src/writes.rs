//! Touches, appends and clean-ups: conditional writes, too. No cell ever sees another kind.

use emmer_store::{Etag, Mutation, Row, StoredRow, TableDecl};
use emmer_store_keyvalue::{
    Answered, At, Fault, Old, Touch, Writes, delete_in_parts, first_of_each_key,
};

use crate::batch::{Applied, Statement};
use crate::client::Client;
use crate::store::Cassandra;
use crate::values::{bound, text};

/// Number of rows that one batch of a clean-up deletes.
const DELETED_TOGETHER: usize = 50;

impl Cassandra {
    async fn delete_as_read(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        rows: &[StoredRow],
        column: &str,
    ) -> Result<bool, Fault> {
        let client = self.client();
        let cql = client.cql(decl).delete_as_read(column);
        let delete = |row: &StoredRow| -> Statement {
            let key = row.row.key();
            (
                cql.clone(),
                vec![text(partition), text(key), text(&row.etag), bound(row.row.get(column))],
            )
        };
        let statements = |_: &Etag| Ok(rows.iter().map(delete).collect());
        let applied = self.apply(decl, partition, statements, client.deadline()).await;
        let (applied, _) = applied.map_err(emmer_store_keyvalue::Failure::fault)?;
        Ok(applied == Applied::Yes)
    }
}

impl Writes for Cassandra {
    /// Sets a volatile column of a row, of any writer: the row's etag stays. Returns true if the
    /// row exists.
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table: decl, partition, deadline } = at;
        let client = self.client();
        let _lane = client.lanes.enter(decl, partition, deadline).await?;
        let cql = client.cql(decl).touch(column);
        let values = vec![bound(Some(value)), text(partition), text(row_key)];
        client
            .send(deadline, |connected| {
                Client::conditional(connected, (cql.clone(), values.clone()))
            })
            .await
    }

    /// Adds those of the rows that are not there.
    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table: decl, partition, deadline } = at;
        let mut rows = first_of_each_key(rows);
        while !rows.is_empty() {
            let inserts: Vec<Mutation> =
                rows.iter().map(|&row| Mutation::Insert { row: row.clone() }).collect();
            let added = self.insert_all(decl, partition, &inserts, deadline).await?;
            match added {
                Applied::Yes => break,
                Applied::No(found) if found.is_empty() => {
                    return Err(Fault::corrupt("rows that are not there are said to be there"));
                }
                Applied::No(found) => rows.retain(|row| !found.contains_key(row.key())),
            }
        }
        Ok(())
    }

    /// Deletes the old rows of a partition, each as it was read: one that is written or touched
    /// meanwhile stays.
    async fn clean_up(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        let At { table: decl, partition, .. } = at;
        let mut rows = self.rows_at_some_time(decl, partition, self.client().deadline()).await?;
        rows.retain(|row| old.wants(&row.row));
        let delete = |part| self.delete_as_read(decl, partition, part, old.column);
        delete_in_parts(&rows, DELETED_TOGETHER, delete).await
    }
}
