//! Reads: of one partition, each page of them serial.

use std::sync::Arc;

use emmer_store::one_moment::{self, Page, Pages};
use emmer_store::{Etag, StoredRow, TableDecl};
use emmer_store_keyvalue::{Fault, Scan};
use scylla::response::{PagingState, PagingStateResponse};
use scylla::value::{CqlValue, Row as CqlRow};
use tokio::time::Instant;

use crate::batch::Statement;
use crate::client::{Client, Connected, Level};
use crate::failure::{Ended, understood};
use crate::store::Cassandra;
use crate::values::{decode, text};

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
    async fn version(&self) -> Result<Option<Etag>, Fault> {
        let client = self.store.client();
        let statement = (client.cql(self.decl).last(), vec![text(self.partition)]);
        Ok(one_text(client, statement, Level::Serial, self.deadline).await?.map(Etag::from))
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

    pub(crate) async fn read_all(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
        let pages = Partition { store: self, decl, partition, deadline };
        let read = {
            let _lane = self.client().lanes.enter(decl, partition, deadline).await?;
            one_moment::read(decl, &pages).await?
        };
        read.ok_or_else(|| Fault::unavailable("others change the partition all the time"))
    }

    pub(crate) async fn read_one(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        row_key: &str,
        deadline: Instant,
    ) -> Result<Option<StoredRow>, Fault> {
        let _lane = self.client().lanes.enter(decl, partition, deadline).await?;
        let statement =
            (self.client().cql(decl).select_row(), vec![text(partition), text(row_key)]);
        let rows = self.rows(&Self::serial(decl, deadline), statement, 1).await?;
        Ok(rows.into_iter().next().map(|(_, row)| row))
    }

    /// At most `limit` rows from the key `from` on, and around.
    pub(crate) async fn sample(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
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
    pub(crate) async fn find(
        &self,
        decl: &'static TableDecl,
        scan: &Scan,
        deadline: Instant,
    ) -> Result<Vec<StoredRow>, Fault> {
        // No question about several partitions is serial; what was acknowledged a majority has.
        let ask = Ask { decl, level: Level::Majority, deadline };
        let (start, end) = (*scan.range.start(), *scan.range.end());
        let ranges = if start <= end {
            vec![(start, end)]
        } else {
            vec![(start, i64::MAX), (i64::MIN, end)]
        };
        let mut found = Vec::new();
        for (start, end) in ranges {
            let number = |n| crate::values::bound(Some(&emmer_store::Value::Int(n)));
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

/// What a question is answered with that has one answer: the first column of the first row.
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

/// The same for a text.
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
