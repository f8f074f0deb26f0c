//! Reads: of one partition, each page of them serial.

use std::collections::BTreeSet;
use std::sync::Arc;

use emmer_store::one_moment::{self, Page, Pages, Version};
use emmer_store::recent::Recent;
use emmer_store::silos::VERSION_ROW;
use emmer_store::{Etag, StoredRow, TableDecl, Value};
use emmer_store_keyvalue::{Answered, At, Fault, Reads, Scan};
use scylla::response::{PagingState, PagingStateResponse};
use scylla::value::{CqlValue, Row as CqlRow};
use tokio::time::Instant;

use crate::batch::Statement;
use crate::client::{Client, Connected, Level};
use crate::failure::{Ended, understood};
use crate::store::Cassandra;
use crate::values::{bound, decode, text};

/// A partition while it is read.
struct Partition<'a> {
    store: &'a Cassandra,
    decl: &'static TableDecl,
    partition: &'a str,
    deadline: Instant,
}

impl Pages for Partition<'_> {
    type Token = PagingState;
    type Error = Fault;

    async fn page(&self, from: Option<PagingState>) -> Result<Page<PagingState>, Fault> {
        let cql = self.store.client().cql(self.decl).select();
        let ask = Ask { decl: self.decl, level: Level::Serial, deadline: self.deadline };
        let (rows, next) =
            self.store.page(&ask, (cql, vec![text(self.partition)]), i32::MAX, from).await?;
        Ok(Page { rows: rows.into_iter().map(|(_, row)| row).collect(), next })
    }

    /// The mark of the partition's last commit, whatever that wrote.
    async fn version(&self) -> Result<Option<Version>, Fault> {
        let (_, version) = self.rows(&[VERSION_ROW.to_owned()].into()).await?;
        if version.is_some() {
            return Ok(version);
        }
        let client = self.store.client();
        let last = (client.cql(self.decl).last(), vec![text(self.partition)]);
        let last = one_text(client, last, Level::Serial, self.deadline).await?;
        let row =
            |last: String| Version { etag: last.into(), row: None, recent: Recent::default() };
        Ok(last.map(row))
    }

    const TOGETHER_MAX: usize = 99;

    async fn rows(
        &self,
        keys: &BTreeSet<String>,
    ) -> Result<(Vec<StoredRow>, Option<Version>), Fault> {
        let client = self.store.client();
        let keys: Vec<Arc<str>> = keys.iter().map(|key| key.as_str().into()).collect();
        let (mut rows, mut version) = (Vec::new(), None);
        for some in keys.chunks(Self::TOGETHER_MAX) {
            let mut asked = some.to_vec();
            asked.push(VERSION_ROW.into());
            let asked = bound(Some(&Value::List(asked)));
            let statement =
                (client.cql(self.decl).select_some(), vec![text(self.partition), asked]);
            let request = |connected| single(connected, statement.clone(), Level::Serial);
            for mut columns in client.send(self.deadline, request).await? {
                let found = self.version_in(&mut columns);
                let Some((_, row)) = decode(self.decl, columns)? else { continue };
                if row.row.key() == VERSION_ROW {
                    version = found.map(|found| Version { row: Some(row.clone()), ..found });
                }
                if some.iter().any(|key| **key == *row.row.key()) {
                    rows.push(row);
                }
            }
        }
        // Several questions are several moments.
        Ok((rows, version.filter(|_| keys.len() <= Self::TOGETHER_MAX)))
    }
}

impl Partition<'_> {
    /// The version in the last two columns of an answer, which are taken off.
    fn version_in(&self, columns: &mut Vec<Option<CqlValue>>) -> Option<Version> {
        let (recent, last) = (columns.pop().flatten(), columns.pop().flatten());
        let Some(CqlValue::Text(last)) = last else { return None };
        let etag = Etag::from(last);
        let texts: Option<Vec<String>> = match recent {
            Some(CqlValue::Text(text)) => serde_json::from_str(&text).ok(),
            _ => None,
        };
        let recent = Recent::of_texts(&etag, texts.unwrap_or_default());
        self.store.recent().learn(self.decl.name, self.partition, &etag, recent.clone());
        Some(Version { etag, row: None, recent })
    }
}

/// The rows of a question that has few.
pub(crate) async fn single(
    connected: Arc<Connected>,
    statement: Statement,
    level: Level,
) -> Result<Vec<Vec<Option<CqlValue>>>, Ended> {
    let (rows, _) = paged(connected, statement, level, FEW_ROWS, PagingState::start()).await?;
    Ok(rows)
}

/// The most rows of a question that has few.
const FEW_ROWS: i32 = 1_000;

async fn paged(
    connected: Arc<Connected>,
    (cql, values): Statement,
    level: Level,
    page_rows: i32,
    from: PagingState,
) -> Result<(Vec<Vec<Option<CqlValue>>>, PagingStateResponse), Ended> {
    let mut statement = connected.prepare(cql, level, page_rows).await?;
    statement.set_page_size(page_rows);
    let page = connected.session.execute_single_page(&statement, &values, from).await;
    let (result, next) = page.map_err(|error| understood(&error))?;
    let unclear = |e: &dyn std::error::Error| {
        Ended::Refused(Fault::corrupt(format!("an answer without rows: {e}")))
    };
    let result = result.into_rows_result().map_err(|e| unclear(&e))?;
    let rows = result.rows::<CqlRow>().map_err(|e| unclear(&e))?;
    let rows: Result<Vec<_>, _> = rows.map(|row| row.map(|row| row.columns)).collect();
    Ok((rows.map_err(|e| unclear(&e))?, next))
}

/// Of which table something is asked, and how.
struct Ask {
    decl: &'static TableDecl,
    level: Level,
    deadline: Instant,
}

impl Cassandra {
    /// One page, at most `limit` rows, and their partitions.
    async fn page(
        &self,
        ask: &Ask,
        statement: Statement,
        limit: i32,
        from: Option<PagingState>,
    ) -> Result<(Vec<(String, StoredRow)>, Option<PagingState>), Fault> {
        let client = self.client();
        let page_rows = client.page_rows(ask.decl).min(limit);
        let from = from.unwrap_or_else(PagingState::start);
        let request =
            |connected| paged(connected, statement.clone(), ask.level, page_rows, from.clone());
        let (found, next) = client.send(ask.deadline, request).await?;
        let mut rows = Vec::with_capacity(found.len());
        for columns in found {
            rows.extend(decode(ask.decl, columns)?);
        }
        let next = match next {
            PagingStateResponse::HasMorePages { state } => Some(state),
            PagingStateResponse::NoMorePages => None,
        };
        Ok((rows, next))
    }

    /// The first `limit` rows of a question, page by page, and their partitions.
    async fn rows(
        &self,
        ask: &Ask,
        statement: Statement,
        limit: usize,
    ) -> Result<Vec<(String, StoredRow)>, Fault> {
        let (mut rows, mut from) = (Vec::new(), None);
        while rows.len() < limit {
            let left = i32::try_from(limit - rows.len()).unwrap_or(i32::MAX);
            let (found, next) = self.page(ask, statement.clone(), left, from).await?;
            rows.extend(found);
            match next {
                None => break,
                next => from = next,
            }
        }
        rows.truncate(limit);
        Ok(rows)
    }

    fn serial(decl: &'static TableDecl, deadline: Instant) -> Ask {
        Ask { decl, level: Level::Serial, deadline }
    }

    /// All rows of a partition, of no one moment.
    pub(crate) async fn rows_at_some_time(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
        let statement = (self.client().cql(decl).select(), vec![text(partition)]);
        let rows = self.rows(&Self::serial(decl, deadline), statement, usize::MAX).await?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}

/// The answer to a question that has one answer: the first column of the first row.
pub(crate) async fn one(
    client: &Client,
    statement: Statement,
    level: Level,
    deadline: Instant,
) -> Result<Option<CqlValue>, Fault> {
    let request = |connected| single(connected, statement.clone(), level);
    let found = client.send(deadline, request).await?;
    Ok(found.into_iter().next().and_then(|columns| columns.into_iter().next().flatten()))
}

/// As [`one`], for a text.
pub(crate) async fn one_text(
    client: &Client,
    statement: Statement,
    level: Level,
    deadline: Instant,
) -> Result<Option<String>, Fault> {
    Ok(match one(client, statement, level, deadline).await? {
        Some(CqlValue::Text(text)) => Some(text),
        _ => None,
    })
}

impl Reads for Cassandra {
    async fn read_partition(&self, at: At<'_>) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let pages = Partition { store: self, decl, partition, deadline };
        let _lane = self.client().lanes.enter(decl, partition, deadline).await?;
        Ok(one_moment::read(decl, &pages).await?)
    }

    async fn read_row(&self, at: At<'_>, row_key: &str) -> Answered<Option<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let _lane = self.client().lanes.enter(decl, partition, deadline).await?;
        if decl.one_moment && row_key == VERSION_ROW {
            // With what the last commits wrote: the next commit continues from there.
            let pages = Partition { store: self, decl, partition, deadline };
            let (rows, _) = pages.rows(&[VERSION_ROW.to_owned()].into()).await?;
            return Ok(rows.into_iter().next());
        }
        let statement =
            (self.client().cql(decl).select_row(), vec![text(partition), text(row_key)]);
        let rows = self.rows(&Self::serial(decl, deadline), statement, 1).await?;
        Ok(rows.into_iter().next().map(|(_, row)| row))
    }

    /// At most `limit` rows from the key `from` on, and around.
    async fn read_some(&self, at: At<'_>, from: &str, limit: usize) -> Answered<Vec<StoredRow>> {
        let At { table: decl, partition, deadline } = at;
        let _lane = self.client().lanes.enter(decl, partition, deadline).await?;
        let ask = Self::serial(decl, deadline);
        let range = |operator| {
            (self.client().cql(decl).select_range(operator), vec![text(partition), text(from)])
        };
        let mut rows = self.rows(&ask, range(">="), limit).await?;
        if rows.len() < limit {
            rows.extend(self.rows(&ask, range("<"), limit - rows.len()).await?);
        }
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// The rows a scan asks for. The server reads every row of the table.
    async fn scan(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Answered<Vec<StoredRow>> {
        // No question about several partitions is serial; a majority has every acknowledged commit.
        let ask = Ask { decl, level: Level::Majority, deadline };
        let (start, end) = (*scan.range.start(), *scan.range.end());
        let ranges = if start <= end {
            vec![(start, end)]
        } else {
            vec![(start, i64::MAX), (i64::MIN, end)]
        };
        let mut found = Vec::new();
        for (start, end) in ranges {
            let number = |n| bound(Some(&Value::Int(n)));
            let statement =
                (self.client().cql(decl).scan(scan.column), vec![number(start), number(end)]);
            found.extend(self.rows(&ask, statement, usize::MAX).await?);
        }
        found.retain(|(_, row)| scan.wants(&row.row));
        found.sort_by(|(one, a), (other, b)| (one, a.row.key()).cmp(&(other, b.row.key())));
        found.truncate(scan.limit);
        Ok(found.into_iter().map(|(_, row)| row).collect())
    }
}
