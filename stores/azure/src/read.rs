//! Reads, all of them queries. Rows that were read are remembered for the next commit.

use std::collections::{BTreeMap, BTreeSet};

use emmer_store::one_moment::{self, Page, Pages, Version};
use emmer_store::silos::VERSION_ROW;
use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::azure::Seen;
use emmer_store_keyvalue::{Answered, At, Fault, Reads, Scan};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::entity::{self, Found};
use crate::keys::{self, literal};
use crate::store::AzureTable;

/// Number of rows of a partition up to which they are read one by one at the same time. Of more the
/// whole range is read.
const ALONE_MAX: usize = 8;

/// Maximum rows that a question names as well as the version row: the service takes 15 comparisons.
const ROWS_IN_FILTER: usize = 13;

/// The key of a row as a filter has it.
fn row(row_key: &str) -> String {
    literal(&keys::encode(row_key).stored)
}

/// The rows of a partition.
fn of_partition(partition: &str) -> String {
    format!("PartitionKey eq {}", literal(&keys::encode(partition).stored))
}

/// The row of a key, or those of a range, by `operator`.
fn and_row(operator: &str, row_key: &str) -> String {
    format!(" and RowKey {operator} {}", row(row_key))
}

/// Facts about the rows that have these keys.
fn wanted(
    table: &'static TableDecl,
    keys: &[&str],
    found: impl Iterator<Item = Found>,
) -> BTreeMap<String, Seen> {
    let wanted = found.filter(|found| keys.contains(&found.stored.row.key()));
    wanted
        .map(|found| {
            let seen = Seen::of(table, &found.stored, &found.service_etag);
            (found.stored.row.key().to_owned(), seen)
        })
        .collect()
}

/// A partition while it is read.
struct Partition<'a> {
    azure: &'a AzureTable,
    table: &'static TableDecl,
    partition: &'a str,
    deadline: Instant,
}

impl Pages for Partition<'_> {
    type Token = String;
    type Error = Fault;

    async fn page(&self, from: Option<String>) -> Result<Page<String>, Fault> {
        let filter = of_partition(self.partition);
        let (found, next) = self
            .azure
            .page(self.table, &filter, usize::MAX, from.as_deref(), self.deadline)
            .await?;
        Ok(Page { rows: self.azure.seen(self.table, self.partition, found)?, next })
    }

    async fn version(&self) -> Result<Option<Version>, Fault> {
        let filter = of_partition(self.partition) + &and_row("eq", VERSION_ROW);
        let found = self.azure.find_all(self.table, &filter, 1, self.deadline).await?;
        let version = found.first().map(version);
        self.azure.seen(self.table, self.partition, found)?;
        Ok(version)
    }

    const TOGETHER_MAX: usize = ROWS_IN_FILTER;

    async fn rows(
        &self,
        keys: &BTreeSet<String>,
    ) -> Result<(Vec<StoredRow>, Option<Version>), Fault> {
        let listed: Vec<&str> = keys.iter().map(String::as_str).collect();
        let questions = listed.chunks(Self::TOGETHER_MAX).map(|some| {
            let each = some.iter().chain([&VERSION_ROW]);
            let each: Vec<String> = each.map(|key| format!("RowKey eq {}", row(key))).collect();
            let filter = format!("{} and ({})", of_partition(self.partition), each.join(" or "));
            async move { self.azure.find_all(self.table, &filter, usize::MAX, self.deadline).await }
        });
        let answers = try_join_all(questions).await?;
        // Several questions are several moments.
        let at_once = answers.len() == 1;
        let found: Vec<Found> = answers.into_iter().flatten().collect();
        let is_version = |found: &&Found| found.stored.row.key() == VERSION_ROW;
        let version = found.iter().find(is_version).filter(|_| at_once).map(version);
        let mut rows = self.azure.seen(self.table, self.partition, found)?;
        rows.retain(|row| keys.contains(row.row.key()));
        Ok((rows, version))
    }
}

fn version(found: &Found) -> Version {
    Version {
        etag: found.stored.etag.clone(),
        row: Some(found.stored.clone()),
        recent: found.recent.clone(),
    }
}

impl AzureTable {
    /// One page of a query, at most `limit` rows.
    async fn page(
        &self,
        table: &'static TableDecl,
        filter: &str,
        limit: usize,
        from: Option<&str>,
        deadline: Instant,
    ) -> Result<(Vec<Found>, Option<String>), Fault> {
        let client = self.client();
        let top = limit.clamp(1, client.address.page_rows);
        let page = client.query(&self.name_of(table), filter, top, from, deadline).await?;
        let found: Result<Vec<Found>, Fault> =
            page.entities.iter().map(|entity| entity::decode(table, entity)).collect();
        Ok((found?, page.next))
    }

    /// The first `limit` rows that a query finds, page by page. A page may be empty and not the
    /// last.
    pub(crate) async fn find_all(
        &self,
        table: &'static TableDecl,
        filter: &str,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Found>, Fault> {
        let (mut all, mut from) = (Vec::new(), None::<String>);
        while all.len() < limit {
            let (found, next) =
                self.page(table, filter, limit - all.len(), from.as_deref(), deadline).await?;
            all.extend(found);
            match next {
                None => break,
                next => from = next,
            }
        }
        Ok(all)
    }

    /// Remembers rows of a partition.
    fn seen(
        &self,
        table: &'static TableDecl,
        partition: &str,
        found: Vec<Found>,
    ) -> Result<Vec<StoredRow>, Fault> {
        let row = |found: Found| {
            if found.partition != partition {
                return Err(Fault::corrupt(format!(
                    "rows of {:?} are in its place",
                    found.partition
                )));
            }
            let seen = Seen::of(table, &found.stored, &found.service_etag);
            self.guesses().learn(table, partition, found.stored.row.key(), Some(seen));
            if found.stored.row.key() == VERSION_ROW {
                self.recent().learn(table.name, partition, &found.stored.etag, found.recent);
            }
            Ok(found.stored)
        };
        found.into_iter().map(row).collect()
    }

    /// Reads some rows; missing ones are not in it. Each is as it was at some moment.
    pub(crate) async fn look_at(
        &self,
        table: &'static TableDecl,
        partition: &str,
        keys: &[&str],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Seen>, Fault> {
        if keys.len() <= ALONE_MAX {
            let each = keys.iter().map(|key| {
                let filter = of_partition(partition) + &and_row("eq", key);
                async move { self.find_all(table, &filter, 1, deadline).await }
            });
            let found = try_join_all(each).await?.into_iter().flatten();
            return Ok(wanted(table, keys, found));
        }
        let mut stored: Vec<String> = keys.iter().map(|key| keys::encode(key).stored).collect();
        stored.sort_unstable_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
        let ends = stored.first().zip(stored.last());
        let range = ends.map(|(first, last)| {
            format!(" and RowKey ge {} and RowKey le {}", literal(first), literal(last))
        });
        let filter = of_partition(partition) + &range.unwrap_or_default();
        let found = self.find_all(table, &filter, usize::MAX, deadline).await?;
        Ok(wanted(table, keys, found.into_iter()))
    }
}

impl Reads for AzureTable {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let pages = Partition { azure: self, table, partition, deadline };
        let mut rows = one_moment::read(table, &pages).await?;
        // By the keys themselves: escaped they may have another order.
        rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
        Ok(rows)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table, partition, deadline } = at;
        let filter = of_partition(partition) + &and_row("eq", row_key);
        let found = self.find_all(table, &filter, 1, deadline).await?;
        let rows = self.seen(table, partition, found)?;
        match rows.into_iter().next() {
            Some(row) if row.row.key() != row_key => Err(Fault::corrupt(format!(
                "row {:?} is in the place of {row_key:?}",
                row.row.key()
            ))),
            row => Ok(row),
        }
    }

    /// At most `limit` rows from the key `from` on, and around.
    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let filter = |operator: &str| of_partition(partition) + &and_row(operator, from);
        let mut found = self.find_all(table, &filter("ge"), limit, deadline).await?;
        if found.len() < limit {
            found.extend(self.find_all(table, &filter("lt"), limit - found.len(), deadline).await?);
        }
        // A row that was made meanwhile may be in both; it is not, for one is below the key and one
        // is not.
        self.seen(table, partition, found)
    }

    /// The rows a scan asks for. The service compares the column of every row of the table.
    async fn scan(
        &self,
        table: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let (column, start, end) = (scan.column, scan.range.start(), scan.range.end());
        let joined = if start <= end { "and" } else { "or" };
        let filter = format!("{column} ge {start}L {joined} {column} le {end}L");
        let mut found = self.find_all(table, &filter, usize::MAX, deadline).await?;
        found.retain(|found| scan.wants(&found.stored.row));
        let place = |found: &Found| (found.partition.clone(), found.stored.row.key().to_owned());
        found.sort_by_cached_key(place);
        found.truncate(scan.limit);
        Ok(found.into_iter().map(|found| found.stored).collect())
    }
}
