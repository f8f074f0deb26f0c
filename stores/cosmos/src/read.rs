//! Reads. Rows that were read are remembered for the next commit.

use std::collections::BTreeSet;

use azure_data_cosmos::Query;
use emmer_store::one_moment::{self, Page, Pages, Version};
use emmer_store::silos::VERSION_ROW;
use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::azure::Seen;
use emmer_store_keyvalue::{Answered, At, Fault, Reads, Scan};
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::batch::OPERATIONS_MAX;
use crate::client;
use crate::document::{self, Found, TABLE, id, partition_value};
use crate::store::Cosmos;

/// All items of a partition.
const ALL: &str = "SELECT * FROM c";

/// A query with its parameters.
fn query(text: &str, parameters: &[(&'static str, Json)]) -> Result<Query, Fault> {
    let mut query = Query::from(text.to_owned());
    for (name, value) in parameters {
        query = query
            .with_parameter(*name, value)
            .map_err(|error| Fault::corrupt(format!("a parameter of a query: {error}")))?;
    }
    Ok(query)
}

/// A partition while it is read.
struct Partition<'a> {
    cosmos: &'a Cosmos,
    table: &'static TableDecl,
    partition: &'a str,
    deadline: Instant,
}

impl Pages for Partition<'_> {
    type Token = client::Pages;
    type Error = Fault;

    /// The service does not promise that a page is one moment.
    const PAGE_IS_ONE_MOMENT: bool = false;

    async fn page(&self, from: Option<Self::Token>) -> Result<Page<Self::Token>, Fault> {
        let client = self.cosmos.client();
        let (items, next) = match from {
            None => {
                if !self.table.one_moment {
                    // A batch brings the session up to date; a query gives what the session saw.
                    self.version().await?;
                }
                let place = partition_value(self.table.name, self.partition);
                client.page(&Query::from(ALL), Some(&place), self.deadline).await?
            }
            Some(pages) => client.more(pages, self.deadline).await?,
        };
        let rows = self.cosmos.learnt(self.table, self.partition, items)?;
        Ok(Page { rows: rows.into_iter().map(|found| found.stored).collect(), next })
    }

    async fn version(&self) -> Result<Option<Version>, Fault> {
        let found = self.cosmos.row(self.table, self.partition, VERSION_ROW, self.deadline).await?;
        Ok(found.as_ref().map(version))
    }

    const TOGETHER_MAX: usize = OPERATIONS_MAX - 1;

    async fn rows(
        &self,
        keys: &BTreeSet<String>,
    ) -> Result<(Vec<StoredRow>, Option<Version>), Fault> {
        let all: Vec<&str> = keys.iter().map(String::as_str).collect();
        let chunks: Vec<&[&str]> = all.chunks(Self::TOGETHER_MAX).collect();
        let (mut rows, mut last) = (Vec::new(), None);
        for some in &chunks {
            let with_version: Vec<&str> = some.iter().copied().chain([VERSION_ROW]).collect();
            let found = self
                .cosmos
                .at_once(self.table, self.partition, &with_version, self.deadline)
                .await?;
            last = found.iter().find(|found| found.stored.row.key() == VERSION_ROW).map(version);
            rows.extend(found.into_iter().map(|found| found.stored));
        }
        rows.retain(|row| keys.contains(row.row.key()));
        // Several batches are several moments.
        Ok((rows, last.filter(|_| chunks.len() == 1)))
    }
}

fn version(found: &Found) -> Version {
    Version {
        etag: found.stored.etag.clone(),
        row: Some(found.stored.clone()),
        recent: found.recent.clone(),
    }
}

impl Cosmos {
    /// Remembers a row that was read.
    pub(crate) fn seen(&self, table: &'static TableDecl, found: &Found) -> Seen {
        let (key, partition) = (found.stored.row.key(), &found.partition);
        let seen = Seen::of(table, &found.stored, &found.service_etag);
        self.guesses().learn(table, partition, key, Some(seen.clone()));
        if key == VERSION_ROW {
            let (etag, recent) = (&found.stored.etag, found.recent.clone());
            self.recent().learn(table.name, partition, etag, recent);
        }
        seen
    }

    /// Understands and remembers items of a partition.
    fn learnt(
        &self,
        table: &'static TableDecl,
        partition: &str,
        items: Vec<Json>,
    ) -> Result<Vec<Found>, Fault> {
        let one = |item: Json| {
            let found = document::decode(table, item)?;
            if found.partition != partition {
                let detail = format!("rows of {:?} are in its place", found.partition);
                return Err(Fault::corrupt(detail));
            }
            self.seen(table, &found);
            Ok(found)
        };
        items.into_iter().map(one).collect()
    }

    /// All rows that a query finds, page by page, until there are `limit`.
    pub(crate) async fn find_all(
        &self,
        table: &'static TableDecl,
        query: &Query,
        partition: Option<&str>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Found>, Fault> {
        let place = partition.map(|partition| partition_value(table.name, partition));
        let mut all = Vec::new();
        let (mut items, mut next) = self.client().page(query, place.as_deref(), deadline).await?;
        loop {
            for item in items {
                all.push(document::decode(table, item)?);
            }
            let Some(pages) = next.filter(|_| all.len() < limit) else { break };
            (items, next) = self.client().more(pages, deadline).await?;
        }
        all.truncate(limit);
        Ok(all)
    }

    /// One row.
    pub(crate) async fn row(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        deadline: Instant,
    ) -> Result<Option<Found>, Fault> {
        Ok(self.at_once(table, partition, &[row_key], deadline).await?.pop())
    }

    /// Reads the rows that are there, all as they are at one moment: at most a hundred.
    pub(crate) async fn at_once(
        &self,
        table: &'static TableDecl,
        partition: &str,
        keys: &[&str],
        deadline: Instant,
    ) -> Result<Vec<Found>, Fault> {
        let place = partition_value(table.name, partition);
        let ids = keys.iter().map(|key| id(key)).collect();
        let items = self.client().read(&place, ids, deadline).await?;
        self.learnt(table, partition, items)
    }

    /// Reads the rows that are there, each at some moment that this client's session has seen.
    pub(crate) async fn some_rows(
        &self,
        table: &'static TableDecl,
        partition: &str,
        keys: &[&str],
        deadline: Instant,
    ) -> Result<Vec<Found>, Fault> {
        let ids: Vec<String> = keys.iter().map(|key| id(key)).collect();
        let text = "SELECT * FROM c WHERE ARRAY_CONTAINS(@ids, c.id)";
        let query = query(text, &[("@ids", ids.into())])?;
        self.find_all(table, &query, Some(partition), usize::MAX, deadline).await
    }
}

impl Reads for Cosmos {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let pages = Partition { cosmos: self, table, partition, deadline };
        let mut rows = one_moment::read(table, &pages).await?;
        rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
        Ok(rows)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table, partition, deadline } = at;
        let found = self.row(table, partition, row_key, deadline).await?;
        Ok(found.map(|found| found.stored))
    }

    /// At most `limit` rows from the key `from` on, and around.
    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table, partition, deadline } = at;
        let mut found: Vec<Found> = Vec::new();
        for operator in [">=", "<"] {
            if found.len() < limit {
                let text = format!("SELECT * FROM c WHERE c.id {operator} @from");
                let (query, left) =
                    (query(&text, &[("@from", id(from).into())])?, limit - found.len());
                found.extend(self.find_all(table, &query, Some(partition), left, deadline).await?);
            }
        }
        Ok(found.into_iter().map(|found| found.stored).collect())
    }

    /// The rows a scan asks for, of all partitions.
    async fn scan(
        &self,
        table: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let (column, start, end) = (scan.column, *scan.range.start(), *scan.range.end());
        let joined = if start <= end { "AND" } else { "OR" };
        // A number beyond the service's own is text, and is compared here.
        let text = format!(
            "SELECT * FROM c WHERE c.{TABLE} = @table AND (IS_STRING(c.{column}) OR \
             (c.{column} >= @start {joined} c.{column} <= @end))"
        );
        let parameters =
            [("@table", table.name.into()), ("@start", start.into()), ("@end", end.into())];
        let query = query(&text, &parameters)?;
        let mut found = self.find_all(table, &query, None, usize::MAX, deadline).await?;
        found.retain(|found| scan.wants(&found.stored.row));
        let place = |found: &Found| (found.partition.clone(), found.stored.row.key().to_owned());
        found.sort_by_cached_key(place);
        found.truncate(scan.limit);
        Ok(found.into_iter().map(|found| found.stored).collect())
    }
}
