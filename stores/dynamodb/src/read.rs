//! Reads: queries and gets, all strongly consistent.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::types::{AttributeValue as Attribute, Get, TransactGetItem};
use emmer_store::one_moment::{self, Page, Pages, Unread, Version};
use emmer_store::silos::VERSION_ROW;
use emmer_store::{StoreErrorKind, StoredRow, TableDecl};
use emmer_store_keyvalue::{Answered, At, Fault, Reads, Scan};
use tokio::time::Instant;

use crate::client::Ended;
use crate::commit::{ACTIONS_MAX, Expression};
use crate::item::{self, ETAG, Item};
use crate::store::DynamoDb;

/// Rows of a partition: all, or those in a range of keys.
struct Range<'a> {
    partition: &'a str,
    /// The operator, and the key.
    bound: Option<(&'static str, &'a str)>,
}

impl<'a> Range<'a> {
    fn all(partition: &'a str) -> Self {
        Self { partition, bound: None }
    }

    /// The condition of a query.
    fn condition(&self, decl: &TableDecl) -> (String, Expression) {
        let mut expression = Expression::default();
        let name = expression.name(decl.partition_key);
        let mut text =
            format!("{name} = {}", expression.value(Attribute::S(self.partition.to_owned())));
        if let Some((operator, key)) = self.bound {
            let name = expression.name(decl.row_key);
            let value = expression.value(Attribute::S(key.to_owned()));
            text = format!("{text} AND {name} {operator} {value}");
        }
        (text, expression)
    }
}

/// A partition while it is read.
struct Partition<'a> {
    store: &'a DynamoDb,
    decl: &'static TableDecl,
    partition: &'a str,
    deadline: Instant,
    /// True if it has more than one page.
    is_long: AtomicBool,
}

impl Pages for Partition<'_> {
    type Token = Item;
    type Error = Fault;
    /// A query may see half of a transaction.
    const PAGE_IS_ONE_MOMENT: bool = false;

    async fn page(&self, from: Option<Item>) -> Result<Page<Item>, Fault> {
        let range = Range::all(self.partition);
        let (items, next) =
            self.store.page(self.decl, &range, usize::MAX, from, self.deadline).await?;
        let rows: Result<Vec<_>, Fault> =
            items.iter().map(|item| item::decode(self.decl, item).map(|(_, row)| row)).collect();
        self.is_long.fetch_or(next.is_some(), Ordering::Relaxed);
        Ok(Page { rows: rows?, next })
    }

    async fn version(&self) -> Result<Option<Version>, Fault> {
        self.store.look(self.decl, self.partition, Look::SomeMoment, self.deadline).await
    }

    const TOGETHER_MAX: usize = ACTIONS_MAX - 1;

    async fn rows(
        &self,
        keys: &BTreeSet<String>,
    ) -> Result<(Vec<StoredRow>, Option<Version>), Fault> {
        let (store, decl) = (self.store, self.decl);
        let (mut rows, mut version) = (Vec::new(), None);
        // Twice the same row is refused.
        let others: Vec<&str> =
            keys.iter().map(String::as_str).filter(|key| *key != VERSION_ROW).collect();
        for some in others.chunks(Self::TOGETHER_MAX) {
            let asked: Vec<&str> = some.iter().copied().chain([VERSION_ROW]).collect();
            let found = store.together(decl, self.partition, &asked, self.deadline).await?;
            for item in found.into_iter().flatten() {
                let (_, row) = item::decode(decl, &item)?;
                if row.row.key() == VERSION_ROW {
                    let recent = item::recent(&item, &row.etag);
                    version = Some(Version { etag: row.etag.clone(), row: Some(row), recent });
                } else {
                    rows.push(row);
                }
            }
        }
        // Several questions are several moments.
        Ok((rows, version.filter(|_| others.len() <= Self::TOGETHER_MAX)))
    }
}

/// The version that a look has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The one that is the last at the end: a commit needs it.
    Last,
    /// One that was the last at some moment of the look.
    SomeMoment,
}

impl DynamoDb {
    /// One page of a query, at most `limit` items.
    async fn page(
        &self,
        decl: &'static TableDecl,
        range: &Range<'_>,
        limit: usize,
        from: Option<Item>,
        deadline: Instant,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let (client, table) = (self.client(), self.name_of(decl));
        let (condition, expression) = range.condition(decl);
        let (names, values) = expression.values();
        let sent = client.send(deadline, || {
            client
                .sdk
                .query()
                .table_name(&table)
                .consistent_read(true)
                .key_condition_expression(&condition)
                .set_expression_attribute_names(Some(names.clone()))
                .set_expression_attribute_values(values.clone())
                .set_limit(self.page_limit(limit))
                .set_exclusive_start_key(from.clone())
                .send()
        });
        let answer = sent.await.map_err(Ended::fault)?;
        let next = answer.last_evaluated_key.filter(|key| !key.is_empty());
        Ok((answer.items.unwrap_or_default(), next))
    }

    /// Number of items to ask for; None: as many as the service likes.
    fn page_limit(&self, limit: usize) -> Option<i32> {
        let wanted = i32::try_from(limit).ok().map(|limit| limit.max(1));
        match (wanted, self.client().address.page_rows) {
            (Some(wanted), Some(rows)) => Some(wanted.min(rows)),
            (wanted, rows) => wanted.or(rows),
        }
    }

    /// The first `limit` rows of a range, page by page.
    async fn rows(
        &self,
        decl: &'static TableDecl,
        range: &Range<'_>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
        let (mut rows, mut from) = (Vec::new(), None);
        while rows.len() < limit {
            let (items, next) = self.page(decl, range, limit - rows.len(), from, deadline).await?;
            for item in &items {
                rows.push(item::decode(decl, item)?.1);
            }
            match next {
                None => break,
                next => from = next,
            }
        }
        Ok(rows)
    }

    /// All rows of a partition, of no one moment.
    pub(crate) async fn rows_at_some_time(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
        self.rows(decl, &Range::all(partition), usize::MAX, deadline).await
    }

    /// Rows at one moment at which no transaction was writing one of them.
    async fn together(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        keys: &[&str],
        deadline: Instant,
    ) -> Result<Vec<Option<Item>>, Fault> {
        let (client, table) = (self.client(), self.name_of(decl));
        let get = |key: &&str| {
            let get = Get::builder()
                .table_name(&table)
                .set_key(Some(item::key(decl, partition, key)))
                .build();
            get.map(|get| TransactGetItem::builder().get(get).build())
        };
        let gets: Result<Vec<_>, _> = keys.iter().map(get).collect();
        let gets = gets.map_err(|e| Fault::corrupt(e.to_string()))?;
        let sent = client.send(deadline, || {
            client.sdk.transact_get_items().set_transact_items(Some(gets.clone())).send()
        });
        let answers = sent.await.map_err(Ended::fault)?.responses.unwrap_or_default();
        Ok(answers.into_iter().map(|answer| answer.item.filter(|item| !item.is_empty())).collect())
    }

    /// The version row of a partition whose commit is there whole: later reads see all of it.
    pub(crate) async fn version(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> Result<Option<StoredRow>, Fault> {
        let found = self.look(decl, partition, Look::Last, deadline).await?;
        Ok(found.and_then(|version| version.row))
    }

    /// The version row with the last commits, as [`version`](Self::version) has it.
    async fn look(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        look: Look,
        deadline: Instant,
    ) -> Result<Option<Version>, Fault> {
        let mut before: Option<Version> = None;
        // Behind the version row the rows of its last commit, then those of the commits before.
        let (mut keys, mut last) = (vec![VERSION_ROW.to_owned()], 0);
        while Instant::now() < deadline {
            let wanted: Vec<&str> = keys.iter().map(String::as_str).collect();
            let found = match self.together(decl, partition, &wanted, deadline).await {
                // Several commits may be more than a transaction takes; one is not.
                Err(fault) if fault.kind == StoreErrorKind::Invalid && keys.len() > last + 1 => {
                    keys.truncate(last + 1);
                    continue;
                }
                found => found?,
            };
            let Some(item) = found.into_iter().next().flatten() else { return Ok(None) };
            let (_, row) = item::decode(decl, &item)?;
            let (written, recent) = (item::written(&item), item::recent(&item, &row.etag));
            let now = Version { etag: row.etag.clone(), row: Some(row), recent };
            // A commit has the version from a look that has found it whole, or made it.
            let before_is_whole = |before: &Version| {
                now.recent.since(&before.etag).is_some_and(|_| look == Look::SomeMoment)
            };
            if let Some(before) = before.take().filter(before_is_whole) {
                return Ok(Some(before));
            }
            let whole = written.is_empty()
                || self.is_settled(decl, partition, Some(&now.etag))
                || written.iter().all(|key| keys.contains(key));
            if whole {
                self.settle(decl, partition, &now.etag);
                self.recent().learn(decl.name, partition, &now.etag, now.recent.clone());
                return Ok(Some(now));
            }
            before = Some(now);
            // All of its rows at once. A newer version may exist by then. The rows of earlier
            // versions are read too, because racing writers write the same ones again.
            let earlier = keys.drain(1..).filter(|key| !written.contains(key)).collect::<Vec<_>>();
            last = written.len();
            keys.extend(written.into_iter().chain(earlier).take(ACTIONS_MAX - 1));
        }
        Err(Unread::Overtaken.into())
    }
}

impl Reads for DynamoDb {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        if !decl.one_moment {
            return self.rows_at_some_time(decl, partition, deadline).await;
        }
        let is_long = AtomicBool::new(false);
        let pages = Partition { store: self, decl, partition, deadline, is_long };
        if !self.is_settled(decl, partition, None) {
            let first = pages.page(None).await?;
            let has_version = first.rows.iter().any(|row| row.row.key() == VERSION_ROW);
            // Without a version row a page is the only evidence. The version row of a first commit
            // may be about to come.
            if first.next.is_none()
                && !has_version
                && (first.rows.is_empty() || pages.version().await?.is_none())
            {
                return Ok(first.rows);
            }
        }
        loop {
            match one_moment::read(decl, &pages).await {
                Ok(rows) => return Ok(rows),
                // One request elsewhere is three here, and other writers come between more easily:
                // the few rows of a cluster are read until there is no time left.
                Err(Unread::Overtaken)
                    if Instant::now() < deadline && !pages.is_long.load(Ordering::Relaxed) => {}
                Err(unread) => return Err(unread.into()),
            }
        }
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        if decl.one_moment && row_key == VERSION_ROW {
            return self.version(decl, partition, deadline).await;
        }
        let (client, table) = (self.client(), self.name_of(decl));
        let key = item::key(decl, partition, row_key);
        let sent = client.send(deadline, || {
            let get = client.sdk.get_item().table_name(&table).consistent_read(true);
            get.set_key(Some(key.clone())).send()
        });
        let item = sent.await.map_err(Ended::fault)?.item;
        item.map(|item| item::decode(decl, &item).map(|(_, row)| row)).transpose()
    }

    /// At most `limit` rows from the key `from` on, and around.
    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let range = |operator| Range { partition, bound: Some((operator, from)) };
        let mut rows = self.rows(decl, &range(">="), limit, deadline).await?;
        if rows.len() < limit {
            rows.extend(self.rows(decl, &range("<"), limit - rows.len(), deadline).await?);
        }
        // No reader gets a version whose commit is not there whole.
        let version = rows.iter().position(|row| decl.one_moment && row.row.key() == VERSION_ROW);
        if let Some(at) = version {
            rows.remove(at);
            rows.extend(self.version(decl, partition, deadline).await?);
        }
        Ok(rows)
    }

    /// The rows a scan asks for. The service reads every row of the table.
    async fn scan(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        let (client, table) = (self.client(), self.name_of(decl));
        let mut expression = Expression::default();
        let (name, etag) = (expression.name(scan.column), expression.name(ETAG));
        let [start, end] =
            [scan.range.start(), scan.range.end()].map(|n| Attribute::N(n.to_string()));
        let (start, end) = (expression.value(start), expression.value(end));
        let joined = if scan.range.start() <= scan.range.end() { "AND" } else { "OR" };
        let filter =
            format!("attribute_exists({etag}) AND ({name} >= {start} {joined} {name} <= {end})");
        let (names, values): (HashMap<String, String>, _) = expression.values();
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let sent = client.send(deadline, || {
                client
                    .sdk
                    .scan()
                    .table_name(&table)
                    .consistent_read(true)
                    .filter_expression(&filter)
                    .set_expression_attribute_names(Some(names.clone()))
                    .set_expression_attribute_values(values.clone())
                    .set_limit(self.page_limit(usize::MAX))
                    .set_exclusive_start_key(from.clone())
                    .send()
            });
            let answer = sent.await.map_err(Ended::fault)?;
            for item in answer.items.unwrap_or_default() {
                found.push(item::decode(decl, &item)?);
            }
            match answer.last_evaluated_key.filter(|key| !key.is_empty()) {
                None => break,
                next => from = next,
            }
        }
        found.retain(|(_, row)| scan.wants(&row.row));
        found.sort_by_cached_key(|(partition, row)| (partition.clone(), row.row.key().to_owned()));
        found.truncate(scan.limit);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }
}
