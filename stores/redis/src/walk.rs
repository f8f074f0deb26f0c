//! Walks over many rows, page by page: scans over all partitions, and the clean-up of one.

use std::collections::{BTreeMap, BTreeSet};

use emmer_store::keys::escape;
use emmer_store::{StoreErrorKind, StoredRow, TableDecl};
use emmer_store_keyvalue::{Answered, At, Failure, Fault, Old, Reads, Scan, document, layout};
use redis::Value as Answer;
use tokio::time::Instant;

use crate::keys;
use crate::requests::score;
use crate::rows;
use crate::scripts::CLEAN_UP;
use crate::store::Redis;

/// The rows a scan reads at once, and about what a clean-up looks at at once.
const PAGE_ROWS: usize = 500;
/// The most rows of one partition that a scan finds in an index.
const INDEX_ROWS_MAX: usize = 500_000;
/// The most partitions a scan reads.
const PARTITIONS_MAX: usize = 1_000_000;

impl Redis {
    /// The fields of a partition's rows that a scan asks for, perhaps a few too many.
    async fn fields_between(
        &self,
        key: &str,
        scan: &Scan,
        deadline: Instant,
    ) -> Result<Vec<String>, Fault> {
        let (start, end) = (*scan.range.start(), *scan.range.end());
        let spans = if start <= end {
            vec![(start, end)]
        } else {
            vec![(start, i64::MAX), (i64::MIN, end)]
        };
        let mut fields = Vec::new();
        for (low, high) in spans {
            let mut find = redis::cmd("ZRANGEBYSCORE");
            let index = keys::index(key, scan.column);
            find.arg(&index).arg(score(low)).arg(score(high));
            find.arg("LIMIT").arg(0).arg(INDEX_ROWS_MAX + 1);
            let found =
                rows::items(self.ask(key, &find, deadline).await?).map_err(Fault::corrupt)?;
            let found: Result<Vec<String>, String> = found.into_iter().map(rows::text).collect();
            fields.extend(found.map_err(Fault::corrupt)?);
        }
        if fields.len() > INDEX_ROWS_MAX {
            let detail = format!(
                "more than {INDEX_ROWS_MAX} rows of one partition in the range: ask for less"
            );
            return Err(Fault::new(StoreErrorKind::Refused, detail));
        }
        Ok(fields)
    }

    /// The rows of some fields; those that are gone meanwhile are left out.
    async fn read_fields(
        &self,
        decl: &TableDecl,
        key: &str,
        fields: &[String],
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
        let mut get = redis::cmd("HMGET");
        get.arg(key);
        let each = 1 + document::volatile_names(decl).count();
        for field in fields {
            get.arg(field);
            document::volatile_names(decl).for_each(|name| {
                get.arg(layout::column(field, name));
            });
        }
        let mut values =
            rows::items(self.ask(key, &get, deadline).await?).map_err(Fault::corrupt)?.into_iter();
        let mut found = Vec::new();
        for field in fields {
            let row = rows::row(decl, field, values.by_ref().take(each).collect());
            found.extend(row.map_err(Fault::corrupt)?);
        }
        Ok(found)
    }

    /// Deletes rows whose field (or column field) is unchanged since the read.
    async fn delete_unchanged(
        &self,
        decl: &TableDecl,
        key: &str,
        old: &[OldRow],
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let indexes: Vec<String> = keys::indexed(decl).map(|c| keys::index(key, c.name)).collect();
        let all: Vec<&str> =
            std::iter::once(key).chain(indexes.iter().map(String::as_str)).collect();
        let volatile: Vec<&str> = document::volatile_names(decl).collect();
        let count = volatile.len().to_string();
        let mut arguments: Vec<&[u8]> = vec![count.as_bytes()];
        arguments.extend(volatile.iter().map(|name| name.as_bytes()));
        for row in old {
            arguments.extend([
                row.field.as_bytes(),
                row.unchanged.as_bytes(),
                row.value.as_slice(),
            ]);
        }
        // Repeated, it finds nothing left to delete, and the count would be too small: that does no
        // harm.
        let answer = self
            .nodes
            .run(&CLEAN_UP, &all, &arguments, deadline, true)
            .await
            .map_err(Failure::fault)?;
        let deleted = rows::integer(&answer).map_err(Fault::corrupt)?;
        Ok(u64::try_from(deleted).unwrap_or(0))
    }
}

/// An old row, and the field that must be unchanged when it is deleted.
struct OldRow {
    field: String,
    unchanged: String,
    value: Vec<u8>,
}

/// The old ones among the rows of a page of fields and values.
fn old_rows(decl: &TableDecl, asked: &Old, page: Vec<Answer>) -> Result<Vec<OldRow>, String> {
    let mut old = Vec::new();
    let mut page = page.into_iter();
    while let (Some(field), Some(value)) = (page.next(), page.next()) {
        let (field, value) = (rows::text(field)?, rows::bytes(value)?.unwrap_or_default());
        let parts = layout::parts(&field);
        let read = || Ok(rows::stored_row(decl, &field, value.clone())?.row);
        if asked.wants_by(decl, parts.column, &value, read)? {
            old.push(OldRow { field: parts.row.to_owned(), unchanged: field, value });
        }
    }
    Ok(old)
}

impl Reads for Redis {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let key = self.partition(table, partition);
        let mut get = redis::cmd("HGETALL");
        get.arg(&key);
        rows::partition(table, self.ask(&key, &get, deadline).await?).map_err(Fault::corrupt)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table, partition, deadline } = at;
        let (key, field) = (self.partition(table, partition), escape(row_key));
        let mut get = redis::cmd("HMGET");
        get.arg(&key).arg(&field);
        for name in document::volatile_names(table) {
            get.arg(layout::column(&field, name));
        }
        let values = rows::items(self.ask(&key, &get, deadline).await?).map_err(Fault::corrupt)?;
        rows::row(table, &field, values).map_err(Fault::corrupt)
    }

    /// Some rows of a partition: a hash has no order, so they are drawn.
    async fn read_some(&self, at: At<'_>, _from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let key = self.partition(decl, partition);
        let mut draw = redis::cmd("HRANDFIELD");
        // This number of different fields are of at least `limit` rows.
        draw.arg(&key).arg(limit * (1 + document::volatile_names(decl).count()));
        let drawn = rows::items(self.ask(&key, &draw, deadline).await?).map_err(Fault::corrupt)?;
        let mut fields: Vec<String> = Vec::new();
        for field in drawn {
            let field = rows::text(field).map_err(Fault::corrupt)?;
            let row = layout::parts(&field).row;
            if fields.len() < limit && !fields.iter().any(|drawn| drawn == row) {
                fields.push(row.to_owned());
            }
        }
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        self.read_fields(decl, &key, &fields, deadline).await
    }

    async fn scan(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let mut members = redis::cmd("SMEMBERS");
        let all = keys::partitions(&self.address.layout, decl);
        members.arg(&all);
        let partitions =
            rows::items(self.ask(&all, &members, deadline).await?).map_err(Fault::corrupt)?;
        if partitions.len() > PARTITIONS_MAX {
            return Err(Fault::new(StoreErrorKind::Refused, "too many partitions to scan"));
        }
        let partitions: Result<BTreeSet<String>, String> =
            partitions.into_iter().map(rows::text).collect();
        let mut found = Vec::new();
        let may_have = |partition: &String| scan.may_be_in(decl, partition);
        for partition in partitions.map_err(Fault::corrupt)?.into_iter().filter(may_have) {
            if found.len() >= scan.limit {
                break;
            }
            let key = self.partition(decl, &partition);
            let fields = self.fields_between(&key, scan, deadline).await?;
            // By row key; the last ones go when there are too many.
            let mut first: BTreeMap<String, StoredRow> = BTreeMap::new();
            for page in fields.chunks(PAGE_ROWS) {
                for row in self.read_fields(decl, &key, page, deadline).await? {
                    if scan.wants(&row.row) {
                        first.insert(row.row.key().to_owned(), row);
                    }
                    if first.len() > scan.limit - found.len() {
                        first.pop_last();
                    }
                }
            }
            found.extend(first.into_values());
        }
        Ok(found)
    }
}

impl Redis {
    pub(crate) async fn delete_old(&self, at: At<'_>, asked: &Old) -> Answered<u64> {
        let At { table: decl, partition, .. } = at;
        let key = self.partition(decl, partition);
        let (mut deleted, mut cursor) = (0, "0".to_owned());
        // Ends: Redis walks through a hash once, whatever is done to it meanwhile.
        loop {
            let deadline = self.nodes.deadline();
            let mut walk = redis::cmd("HSCAN");
            walk.arg(&key).arg(&cursor).arg("COUNT").arg(PAGE_ROWS);
            let page =
                rows::items(self.ask(&key, &walk, deadline).await?).map_err(Fault::corrupt)?;
            let [next, found] =
                <[Answer; 2]>::try_from(page).map_err(|_| Fault::corrupt("an odd HSCAN"))?;
            let found = rows::items(found).map_err(Fault::corrupt)?;
            let old = old_rows(decl, asked, found).map_err(Fault::corrupt)?;
            if !old.is_empty() {
                deleted += self.delete_unchanged(decl, &key, &old, deadline).await?;
            }
            cursor = rows::text(next).map_err(Fault::corrupt)?;
            if cursor == "0" {
                return Ok(deleted);
            }
        }
    }
}
