//! Touches, appends and clean-ups: requests for one item each.

use emmer_store::{Row, StoredRow, TableDecl};
use emmer_store_keyvalue::{Answered, At, Fault, Old, Touch, Writes, first_of_each_key};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::client::Ended;
use crate::commit::Expression;
use crate::item;
use crate::store::DynamoDb;

/// Number of requests for one item each that are on their way at a time.
const TOGETHER: usize = 16;

/// Returns true if a request happened, or (false) its condition did not hold.
fn happened<T>(sent: Result<T, Ended>) -> Result<bool, Fault> {
    match sent {
        Ok(_) => Ok(true),
        Err(Ended::Conditions { .. }) => Ok(false),
        Err(Ended::Failed(failure)) => Err(failure.fault()),
    }
}

impl DynamoDb {
    async fn put_new(
        &self,
        decl: &'static TableDecl,
        item: &item::Item,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let (client, table) = (self.client(), self.name_of(decl));
        let mut expression = Expression::default();
        let condition = expression.is_missing();
        happened(
            client
                .send(deadline, || {
                    let put = client.sdk.put_item().table_name(&table).set_item(Some(item.clone()));
                    let put = put.condition_expression(&condition);
                    put.set_expression_attribute_names(Some(expression.names.clone())).send()
                })
                .await,
        )
    }

    /// Deletes a row if its etag and its time are unchanged since the read.
    async fn delete_as_read(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        row: &StoredRow,
        column: &'static str,
    ) -> Result<bool, Fault> {
        let (client, table) = (self.client(), self.name_of(decl));
        let key = item::key(decl, partition, row.row.key());
        let mut expression = Expression::default();
        let mut condition = expression.has(&row.etag);
        if let Some(value) = row.row.get(column) {
            let (name, value) = (expression.name(column), expression.value(item::attribute(value)));
            condition = format!("{condition} AND {name} = {value}");
        }
        let (names, values) = expression.values();
        happened(
            client
                .send(client.deadline(), || {
                    let delete =
                        client.sdk.delete_item().table_name(&table).set_key(Some(key.clone()));
                    delete
                        .condition_expression(&condition)
                        .set_expression_attribute_names(Some(names.clone()))
                        .set_expression_attribute_values(values.clone())
                        .send()
                })
                .await,
        )
    }
}

impl Writes for DynamoDb {
    /// Sets a volatile column of a row, of any writer: the row's own etag stays. Returns true if
    /// the row exists.
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table: decl, partition, deadline } = at;
        let (client, table) = (self.client(), self.name_of(decl));
        let key = item::key(decl, partition, row_key);
        let mut expression = Expression::default();
        let condition = expression.exists();
        let set = format!(
            "SET {} = {}",
            expression.name(column),
            expression.value(item::attribute(value))
        );
        let (names, values) = expression.values();
        happened(
            client
                .send(deadline, || {
                    let update =
                        client.sdk.update_item().table_name(&table).set_key(Some(key.clone()));
                    update
                        .update_expression(&set)
                        .condition_expression(&condition)
                        .set_expression_attribute_names(Some(names.clone()))
                        .set_expression_attribute_values(values.clone())
                        .send()
                })
                .await,
        )
    }

    /// Adds those of the rows that are not there.
    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table: decl, partition, deadline } = at;
        let mark = self.mark();
        let rows = first_of_each_key(rows);
        let items: Result<Vec<_>, Fault> =
            rows.into_iter().map(|row| item::of(decl, partition, row, &mark)).collect();
        for part in items?.chunks(TOGETHER) {
            try_join_all(part.iter().map(|item| self.put_new(decl, item, deadline))).await?;
        }
        Ok(())
    }

    /// Deletes the old rows of a partition, each as it was read: one that is written or touched
    /// meanwhile stays.
    async fn clean_up(&self, at: At<'_>, old: &Old) -> Answered<u64> {
        let At { table: decl, partition, .. } = at;
        let mut rows = self.rows_at_some_time(decl, partition, self.client().deadline()).await?;
        rows.retain(|row| old.wants(&row.row));
        let mut deleted = 0;
        for part in rows.chunks(TOGETHER) {
            let each = part.iter().map(|row| self.delete_as_read(decl, partition, row, old.column));
            deleted += try_join_all(each).await?.into_iter().map(u64::from).sum::<u64>();
        }
        Ok(deleted)
    }
}
