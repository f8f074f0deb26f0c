//! Walks over many rows, page by page: scans over all partitions, and the clean-up of one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use emmer_core::Timestamp;
use emmer_store::{Row, StoreErrorKind, StoredRow, TableDecl, Value};
use emmer_store_keyvalue::{Failure, Fault, document, layout};
use redis::Value as Answer;
use tokio::time::Instant;

use crate::keys;
use crate::requests::score;
use crate::rows;
use crate::scripts::CLEAN_UP;
use crate::store::RedisStore;

/// The rows a scan reads at once, and about what a clean-up looks at at once.
const PAGE_ROWS: usize = 500;
/// The most rows of one partition that a scan finds in an index.
const INDEX_ROWS_MAX: usize = 500_000;
/// The most partitions a scan reads.
const PARTITIONS_MAX: usize = 1_000_000;

impl RedisStore {
    /// The fields of a partition's rows whose `column` lies between two numbers, perhaps a few too many.
    async fn fields_between(
        &self,
        key: &str,
        column: &str,
        range: &RangeInclusive<i64>,
        deadline: Instant,
    ) -> Result<Vec<String>, Fault> {
        let (start, end) = (*range.start(), *range.end());
        let spans = if start <= end { vec![(start, end)] } else { vec![(start, i64::MAX), (i64::MIN, end)] };
        let mut fields = Vec::new();
        for (low, high) in spans {
            let mut find = redis::cmd("ZRANGEBYSCORE");
            find.arg(keys::index(key, column)).arg(score(low)).arg(score(high));
            find.arg("LIMIT").arg(0).arg(INDEX_ROWS_MAX + 1);
            let found = rows::items(self.ask(&find, deadline).await?).map_err(Fault::corrupt)?;
            let found: Result<Vec<String>, String> = found.into_iter().map(rows::text).collect();
            fields.extend(found.map_err(Fault::corrupt)?);
        }
        if fields.len() > INDEX_ROWS_MAX {
            let detail =
                format!("more than {INDEX_ROWS_MAX} rows of one partition in the range: ask for less");
            return Err(Fault::new(StoreErrorKind::Refused, detail));
        }
        Ok(fields)
    }

    pub(crate) async fn scan_all(
        &self,
        decl: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<Vec<StoredRow>, Fault> {
        let deadline = self.link.deadline();
        self.must_know(decl, deadline).await?;
        let mut members = redis::cmd("SMEMBERS");
        members.arg(keys::partitions(&self.address.place.layout, decl));
        let partitions = rows::items(self.ask(&members, deadline).await?).map_err(Fault::corrupt)?;
        if partitions.len() > PARTITIONS_MAX {
            return Err(Fault::new(StoreErrorKind::Refused, "too many partitions to scan"));
        }
        let partitions: Result<BTreeSet<String>, String> = partitions.into_iter().map(rows::text).collect();
        let inside = |n: i64| {
            let (start, end) = (*range.start(), *range.end());
            if start <= end { range.contains(&n) } else { n >= start || n <= end }
        };
        let mut found = Vec::new();
        for partition in partitions.map_err(Fault::corrupt)? {
            if found.len() >= limit {
                break;
            }
            let key = self.partition(decl, &partition);
            let fields = self.fields_between(&key, column, &range, deadline).await?;
            // By row key; the last ones go when there are too many.
            let mut first: BTreeMap<String, StoredRow> = BTreeMap::new();
            for page in fields.chunks(PAGE_ROWS) {
                for row in self.read_fields(decl, &key, page, deadline).await? {
                    if matches!(row.row.get(column), Some(Value::Int(n)) if inside(*n)) {
                        first.insert(row.row.key().to_owned(), row);
                    }
                    if first.len() > limit - found.len() {
                        first.pop_last();
                    }
                }
            }
            found.extend(first.into_values());
        }
        Ok(found)
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
        let mut values = rows::items(self.ask(&get, deadline).await?).map_err(Fault::corrupt)?.into_iter();
        let mut found = Vec::new();
        for field in fields {
            let row = rows::row(decl, field, values.by_ref().take(each).collect());
            found.extend(row.map_err(Fault::corrupt)?);
        }
        Ok(found)
    }

    pub(crate) async fn clean_up(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> Result<u64, Fault> {
        self.must_know(decl, self.link.deadline()).await?;
        let key = self.partition(decl, partition);
        let is_volatile = decl.column(column).is_some_and(|(_, c)| c.volatile);
        let (mut deleted, mut cursor) = (0, "0".to_owned());
        // Ends: Redis walks through a hash once, whatever is done to it meanwhile.
        loop {
            let deadline = self.link.deadline();
            let mut walk = redis::cmd("HSCAN");
            walk.arg(&key).arg(&cursor).arg("COUNT").arg(PAGE_ROWS);
            let page = rows::items(self.ask(&walk, deadline).await?).map_err(Fault::corrupt)?;
            let [next, found] = <[Answer; 2]>::try_from(page).map_err(|_| Fault::corrupt("an odd HSCAN"))?;
            let old =
                old_rows(decl, column, is_volatile, cutoff, rows::items(found).map_err(Fault::corrupt)?);
            let old = old.map_err(Fault::corrupt)?;
            if !old.is_empty() {
                deleted += self.delete_unchanged(decl, &key, &old, deadline).await?;
            }
            cursor = rows::text(next).map_err(Fault::corrupt)?;
            if cursor == "0" {
                return Ok(deleted);
            }
        }
    }

    /// Deletes rows whose field (or column field) still holds what was read.
    async fn delete_unchanged(
        &self,
        decl: &TableDecl,
        key: &str,
        old: &[OldRow],
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let indexes: Vec<String> = keys::indexed(decl).map(|c| keys::index(key, c.name)).collect();
        let all: Vec<&str> = std::iter::once(key).chain(indexes.iter().map(String::as_str)).collect();
        let volatile: Vec<&str> = document::volatile_names(decl).collect();
        let count = volatile.len().to_string();
        let mut arguments: Vec<&[u8]> = vec![count.as_bytes()];
        arguments.extend(volatile.iter().map(|name| name.as_bytes()));
        for row in old {
            arguments.extend([row.field.as_bytes(), row.unchanged.as_bytes(), row.value.as_slice()]);
        }
        // Repeated, it finds nothing to delete any more, and the count would be too small: that does no harm.
        let answer =
            self.link.run(&CLEAN_UP, &all, &arguments, deadline, true).await.map_err(Failure::fault)?;
        let deleted = rows::integer(&answer).map_err(Fault::corrupt)?;
        Ok(u64::try_from(deleted).unwrap_or(0))
    }
}

/// A row that is old, and what must be as it was when it is deleted.
struct OldRow {
    field: String,
    unchanged: String,
    value: Vec<u8>,
}

/// The rows of a page of fields and values whose `column` is before `cutoff`.
fn old_rows(
    decl: &TableDecl,
    column: &str,
    is_volatile: bool,
    cutoff: Timestamp,
    page: Vec<Answer>,
) -> Result<Vec<OldRow>, String> {
    let is_old = |row: &Row| matches!(row.get(column), Some(Value::Time(at)) if *at < cutoff);
    let mut old = Vec::new();
    let mut page = page.into_iter();
    while let (Some(field), Some(value)) = (page.next(), page.next()) {
        let (field, value) = (rows::text(field)?, rows::bytes(value)?.unwrap_or_default());
        let parts = layout::parts(&field);
        let found = match parts.column {
            None if !is_volatile => rows::stored_row(decl, &field, value.clone())?.row,
            Some(name) if is_volatile && name == column => {
                let mut row = Row::new("");
                document::set_volatile(decl, &mut row, name, &value)?;
                row
            }
            _ => continue,
        };
        if is_old(&found) {
            old.push(OldRow { field: parts.row.to_owned(), unchanged: field, value });
        }
    }
    Ok(old)
}
