//! Reads and writes of many grains that share statements.

use std::sync::Arc;

use emmer_store::{Answered, CommitOutcome, Fault, Mutation, Row, StoredRow, TableDecl};

use crate::driver::{Driver, Each, EachAnswer, EachRow, Request};
use crate::etags;
use crate::fault::Failure;
use crate::group::{Group, Unanswered};
use crate::store::{Core, Done, Work, size, strange};

/// The most bytes of values of a row that shares a statement.
const ROW_BYTES_MAX: usize = 64 << 10;

/// The most requests of one statement.
const TOGETHER_MAX: usize = 256;
/// The most partitions that one statement reads: a journal may be long.
const PARTITIONS_TOGETHER_MAX: usize = 16;

/// A row to be read, or a whole partition.
pub(crate) struct Read {
    table: &'static TableDecl,
    partition: String,
    /// The row; none for all of them.
    row_key: Option<String>,
}

impl Read {
    fn request(&self) -> Request<'_> {
        let partition = &*self.partition;
        match &self.row_key {
            Some(row_key) => Request::ReadRow { partition, row_key },
            None => Request::ReadPartition { partition },
        }
    }
}

/// A row to be written.
pub(crate) struct Write {
    table: &'static TableDecl,
    partition: String,
    row: Row,
    /// The etag that it must have now; none for a row that must not exist.
    expected: Option<i64>,
}

impl Write {
    /// The only mutation of a commit, if it is one that can share a statement; else the commit.
    pub(crate) fn of(
        table: &'static TableDecl,
        partition: &str,
        mut mutations: Vec<Mutation>,
    ) -> Result<Self, Vec<Mutation>> {
        let (row, expected) = match mutations.pop() {
            Some(Mutation::Insert { row })
                if mutations.is_empty() && size(&row) <= ROW_BYTES_MAX =>
            {
                (row, None)
            }
            Some(Mutation::Replace { row, etag })
                if mutations.is_empty() && size(&row) <= ROW_BYTES_MAX =>
            {
                match etags::number(&etag) {
                    Some(expected) => (row, Some(expected)),
                    None => return Err(vec![Mutation::Replace { row, etag }]),
                }
            }
            last => {
                mutations.extend(last);
                return Err(mutations);
            }
        };
        Ok(Self { table, partition: partition.to_owned(), row, expected })
    }

    fn mutation(self) -> Mutation {
        match self.expected {
            None => Mutation::Insert { row: self.row },
            Some(etag) => Mutation::Replace { row: self.row, etag: etags::text(etag) },
        }
    }
}

type ReadAnswer = Answered<Vec<StoredRow>>;
type WriteAnswer = Answered<CommitOutcome, emmer_store::Failure>;

/// The requests that share statements, by their kinds.
pub(crate) struct Grouped {
    reads: Arc<Group<Read, ReadAnswer>>,
    partitions: Arc<Group<Read, ReadAnswer>>,
    replaces: Arc<Group<Write, WriteAnswer>>,
    inserts: Arc<Group<Write, WriteAnswer>>,
}

impl Grouped {
    /// For a pool of `pool_max` connections. Requests that share nothing, as those of the
    /// membership, have some of them.
    pub(crate) fn new(pool_max: usize) -> Self {
        let at_once = pool_max / 4;
        let same_row = |a: &Write, b: &Write| {
            !std::ptr::eq(a.table, b.table)
                || (a.row.key() == b.row.key() && a.partition == b.partition)
        };
        let other_table = |a: &Read, b: &Read| !std::ptr::eq(a.table, b.table);
        Self {
            reads: Group::new((at_once, TOGETHER_MAX), other_table),
            partitions: Group::new((at_once / 2, PARTITIONS_TOGETHER_MAX), other_table),
            replaces: Group::new((at_once, TOGETHER_MAX), same_row),
            inserts: Group::new((at_once, TOGETHER_MAX), same_row),
        }
    }
}

/// Returns true if requests for single rows of this table share statements on a server of `D`:
/// nothing reads or writes rows of several partitions at one moment.
pub(crate) const fn may_share<D: Driver>(table: &'static TableDecl) -> bool {
    D::RUNS_EACH && !table.one_moment
}

impl<D: Driver> Core<D> {
    /// The row, if it exists; without a key all rows of the partition.
    pub(crate) async fn read_with_others(
        self: &Arc<Self>,
        table: &'static TableDecl,
        partition: &str,
        row_key: Option<&str>,
    ) -> ReadAnswer {
        let group = match row_key {
            Some(_) => &self.grouped.reads,
            None => &self.grouped.partitions,
        };
        let (partition, row_key) = (partition.to_owned(), row_key.map(ToOwned::to_owned));
        let core = self.clone();
        let run = move |reads| {
            let core = core.clone();
            async move { core.read_each(reads).await }
        };
        let answer = group.run(Read { table, partition, row_key }, run).await;
        answer.unwrap_or_else(|why| Err(unanswered(why)))
    }

    /// All of them are rows, or all are partitions.
    async fn read_each(&self, reads: Vec<Read>) -> Vec<ReadAnswer> {
        let Some(first) = reads.first().filter(|_| reads.len() > 1) else {
            return self.read_one_by_one(&reads).await;
        };
        let partitions: Vec<&str> = reads.iter().map(|read| &*read.partition).collect();
        let keys: Vec<&str> = reads.iter().filter_map(|read| read.row_key.as_deref()).collect();
        let each = match first.row_key {
            Some(_) => Each::Read { partitions: &partitions, keys: &keys },
            None => Each::ReadPartition(&partitions),
        };
        match self.work(first.table, Work::Each(&each), true, self.deadline()).await {
            Ok(Done::Each(EachAnswer::Rows(found))) if found.len() == reads.len() => {
                found.into_iter().map(Ok).collect()
            }
            Ok(_) => reads.iter().map(|_| Err(strange())).collect(),
            // One may be too long for the time, or what cannot be read.
            Err(Failure::Nothing(_)) => self.read_one_by_one(&reads).await,
            Err(failure) => {
                let fault = failure.fault();
                reads.iter().map(|_| Err(fault.clone())).collect()
            }
        }
    }

    async fn read_one_by_one(&self, reads: &[Read]) -> Vec<ReadAnswer> {
        let mut answers = Vec::with_capacity(reads.len());
        for read in reads {
            answers.push(self.rows(read.table, &read.request(), self.deadline()).await);
        }
        answers
    }

    pub(crate) async fn write_with_others(self: &Arc<Self>, write: Write) -> WriteAnswer {
        let group = match write.expected {
            None => &self.grouped.inserts,
            Some(_) => &self.grouped.replaces,
        };
        let core = self.clone();
        let run = move |writes| {
            let core = core.clone();
            async move { core.write_each(writes).await }
        };
        let answer = group.run(write, run).await;
        answer.unwrap_or_else(|why| match why {
            Unanswered::TooMany => Err(unanswered(why).into()),
            Unanswered::Abandoned => Err(emmer_store::Failure::Broken(unanswered(why))),
        })
    }

    async fn write_each(&self, writes: Vec<Write>) -> Vec<WriteAnswer> {
        if writes.len() <= 1 {
            return self.write_one_by_one(writes).await;
        }
        let Some(first) = writes.first() else { return Vec::new() };
        let etags: Vec<i64> = writes.iter().map(|_| self.etags.next()).collect();
        let rows: Vec<_> = writes
            .iter()
            .zip(&etags)
            .map(|(write, etag)| EachRow {
                partition: &write.partition,
                row: &write.row,
                expected: write.expected.unwrap_or_default(),
                etag: *etag,
            })
            .collect();
        let each =
            if first.expected.is_some() { Each::Replace(&rows) } else { Each::Insert(&rows) };
        match self.work(first.table, Work::Each(&each), false, self.deadline()).await {
            Ok(Done::Each(EachAnswer::Done(done))) if done.len() == writes.len() => {
                let outcome = |(done, etag): (bool, &i64)| {
                    Ok(if done {
                        CommitOutcome::Committed(vec![Some(etags::text(*etag))])
                    } else {
                        CommitOutcome::Conflict(0)
                    })
                };
                done.into_iter().zip(&etags).map(outcome).collect()
            }
            Ok(_) => in_doubt(writes.len(), &strange()),
            Err(Failure::Broken(fault)) => in_doubt(writes.len(), &fault),
            // Nothing was written, and one row may be what the server refuses.
            Err(Failure::Nothing(_)) => self.write_one_by_one(writes).await,
            Err(failure) => {
                let fault = failure.fault();
                writes.iter().map(|_| Err(fault.clone().into())).collect()
            }
        }
    }

    async fn write_one_by_one(&self, writes: Vec<Write>) -> Vec<WriteAnswer> {
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            let (table, partition) = (write.table, write.partition.clone());
            answers.push(self.commit_alone(table, &partition, vec![write.mutation()]).await);
        }
        answers
    }
}

fn in_doubt(count: usize, fault: &Fault) -> Vec<WriteAnswer> {
    (0..count).map(|_| Err(emmer_store::Failure::Broken(fault.clone()))).collect()
}

fn unanswered(why: Unanswered) -> Fault {
    match why {
        Unanswered::TooMany => Fault::unavailable("too many requests wait for this store"),
        Unanswered::Abandoned => Fault::unavailable("the statement ended without an answer"),
    }
}
