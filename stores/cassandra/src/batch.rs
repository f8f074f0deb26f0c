//! Conditional writes of one partition: all or none of them happen, and a lost answer is looked
//! into.
//!
//! Every write of this store goes this way. A batch notes its mark in the partition, unless the
//! mark was refused before, and as its writer's last one. One more conditional write tells the fate
//! of a batch whose answer was lost: it refuses the mark unless it is its writer's last. If it
//! succeeds, the batch did not happen and will not, not even when a server that stood still takes
//! it up within a day. Otherwise it did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_store::away::AWAY_PAUSE;
use emmer_store::{Etag, TableDecl};
use emmer_store_keyvalue::{Failure, Fault, Patience};
use scylla::response::query_result::QueryResult;
use scylla::statement::batch::{Batch, BatchType};
use scylla::value::{CqlValue, Row as CqlRow};
use tokio::time::{Instant, sleep};

use crate::client::{Client, Connected, Level};
use crate::cql::ETAG;
use crate::failure::{Ended, understood};
use crate::store::Cassandra;
use crate::values::{Bound, text};

/// Longest time to find out the outcome of a batch.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// Number of questions about it that an operation has time for.
const SETTLE_ATTEMPTS: u32 = 6;

/// A statement and its bound values.
pub(crate) type Statement = (String, Vec<Bound>);

/// Outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// All of it happened.
    Yes,
    /// A condition did not hold and nothing happened: the etags of the rows that have conditions
    /// and are there.
    No(BTreeMap<String, Etag>),
}

/// A batch whose answer did not come.
struct Lost<'a> {
    decl: &'static TableDecl,
    partition: &'a str,
    writer: String,
    mark: Etag,
    why: Fault,
}

/// The answer to a conditional write: whether it happened, and the rows its conditions were about.
struct Answer {
    applied: bool,
    rows: Vec<BTreeMap<String, CqlValue>>,
}

fn answer(result: QueryResult) -> Result<Answer, Ended> {
    let unclear = |e: &dyn std::error::Error| {
        Ended::Uncertain(Fault::corrupt(format!("an answer without rows: {e}")))
    };
    let result = result.into_rows_result().map_err(|e| unclear(&e))?;
    let names: Vec<String> =
        result.column_specs().iter().map(|column| column.name().to_owned()).collect();
    let mut rows = Vec::with_capacity(result.rows_num());
    for row in result.rows::<CqlRow>().map_err(|e| unclear(&e))? {
        let row = row.map_err(|e| unclear(&e))?;
        let cells = names.iter().cloned().zip(row.columns);
        rows.push(cells.filter_map(|(name, cell)| Some((name, cell?))).collect::<BTreeMap<_, _>>());
    }
    let is_true = |row: &BTreeMap<_, _>| row.get("[applied]") == Some(&CqlValue::Boolean(true));
    Ok(Answer { applied: rows.first().is_some_and(is_true), rows })
}

impl Client {
    /// Sends one conditional statement once; whether it happened.
    pub(crate) async fn conditional(
        connected: Arc<Connected>,
        (cql, values): Statement,
    ) -> Result<bool, Ended> {
        let statement = connected.prepare(cql, Level::Majority, 1).await?;
        let result = connected.session.execute_unpaged(&statement, &values).await;
        Ok(answer(result.map_err(|error| understood(&error))?)?.applied)
    }

    /// Sends a batch once.
    async fn batch(connected: Arc<Connected>, statements: &[Statement]) -> Result<Answer, Ended> {
        let mut batch = Batch::new(BatchType::Unlogged);
        let mut values = Vec::with_capacity(statements.len());
        for (cql, bound) in statements {
            batch.append_statement(connected.prepare(cql.clone(), Level::Majority, 1).await?);
            values.push(bound);
        }
        let result = connected.session.batch(&batch, values).await;
        answer(result.map_err(|error| understood(&error))?)
    }
}

impl Cassandra {
    /// Does what the statements for rows say, if all conditions hold. `statements` makes them with
    /// the mark of an attempt.
    ///
    /// # Errors
    /// `Broken` where there was no time to find out what became of it.
    pub(crate) async fn apply(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        statements: impl Fn(&Etag) -> Result<Vec<Statement>, Fault>,
        deadline: Instant,
    ) -> Result<(Applied, Etag), Failure> {
        let client = self.client();
        let _lane = client.lanes.enter(decl, partition, deadline).await?;
        let cql = client.cql(decl);
        let mut patience = Patience::default();
        loop {
            let (writer, mark) = (self.writer(), self.mark());
            let begin = (cql.begin(), vec![text(&mark), text(partition), text(&mark)]);
            let remember = (cql.remember(), vec![text(&writer), text(&mark), text(partition)]);
            let all: Vec<Statement> =
                [begin, remember].into_iter().chain(statements(&mark)?).collect();
            let attempt = self.attempt();
            let ended = client.once(deadline, |connected| Client::batch(connected, &all)).await;
            let ended = match ended {
                Err(Ended::Uncertain(why)) => {
                    let lost = Lost { decl, partition, writer, mark: mark.clone(), why };
                    if self.settle(&lost, deadline).await? {
                        Ok(Answer { applied: true, rows: Vec::new() })
                    } else {
                        Err(Ended::Busy(lost.why.detail))
                    }
                }
                ended => ended,
            };
            attempt.ended();
            match ended {
                Ok(answer) if answer.applied => return Ok((Applied::Yes, mark)),
                Ok(answer) => return Ok((Applied::No(etags(decl, &answer)), mark)),
                Err(Ended::Busy(_)) if patience.wait(None, deadline).await => {}
                Err(ended) => return Err(ended.failure()),
            }
        }
    }

    /// Returns true if a batch happened whose answer did not come. If not, it will not.
    async fn settle(&self, lost: &Lost<'_>, deadline: Instant) -> Result<bool, Failure> {
        let client = self.client();
        let (mark, writer) = (text(&lost.mark), text(&lost.writer));
        let values =
            [mark.clone(), text(&lost.why.detail), text(lost.partition), writer, mark].to_vec();
        // It has been away for long when nothing has come by then.
        let limit = deadline.min(Instant::now() + SETTLE_LIMIT);
        let most = client.address.place.timeout / SETTLE_ATTEMPTS;
        while Instant::now() < limit {
            let refuse = (client.cql(lost.decl).refuse(), values.clone());
            let asked =
                client.once_within(limit, most, |connected| Client::conditional(connected, refuse));
            match asked.await {
                Ok(is_refused) => return Ok(!is_refused),
                Err(Ended::Refused(_)) => break,
                Err(_) => {
                    sleep(AWAY_PAUSE.min(limit.saturating_duration_since(Instant::now()))).await;
                }
            }
        }
        Err(Failure::Broken(lost.why.clone()))
    }
}

/// The rows of an answer that are there, and their etags.
fn etags(decl: &TableDecl, answer: &Answer) -> BTreeMap<String, Etag> {
    let key = decl.row_key.to_ascii_lowercase();
    let of = |row: &BTreeMap<String, CqlValue>| match (row.get(&key)?, row.get(ETAG)?) {
        (CqlValue::Text(key), CqlValue::Text(etag)) => Some((key.clone(), etag.as_str().into())),
        _ => None,
    };
    answer.rows.iter().filter_map(of).collect()
}
