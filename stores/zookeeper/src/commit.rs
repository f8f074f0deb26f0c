//! Sending commits: the plan is made from remembered rows, and made again when they are out of
//! date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use emmer_store::{CommitOutcome, Etag, Mutation, StoreErrorKind};
use emmer_store_keyvalue::Failure;
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Acls, Client, Error, MultiWriteError, MultiWriteResult, Stat};

use crate::fault::{Fault, did_nothing};
use crate::plan::{Deletions, Known, Plan, REQUEST_BYTES_MAX, Request, condition, doubtful};
use crate::rows::Written;
use crate::{snapshot, tables};

/// Number of times a commit is planned again because the memory of the partition was out of date.
const ATTEMPTS_MAX: u32 = 16;
/// The most rows whose existence is remembered; all are forgotten when there would be more.
const ROWS_MAX: usize = 50_000;
/// The most partitions whose deletions are remembered; all are forgotten when there would be more.
const PARTITIONS_MAX: usize = 10_000;

/// This store's memory, for commits in one request. It may be out of date: the server checks it.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// Paths of rows that were there.
    rows: BTreeSet<String>,
    /// By path of the deletions' node.
    deletions: BTreeMap<String, Deletions>,
}

impl Memory {
    fn with<T>(&self, work: impl FnOnce(&mut Remembered) -> T) -> T {
        // A panic in between leaves both as they were or one entry shorter.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The row at `path` is there, or is not.
    pub(crate) fn row(&self, path: String, is_there: bool) {
        self.with(|known| {
            if !is_there {
                known.rows.remove(&path);
            } else if known.rows.len() < ROWS_MAX || known.rows.contains(&path) {
                known.rows.insert(path);
            } else {
                known.rows.clear();
            }
        });
    }

    fn is_there(&self, path: &str) -> bool {
        self.with(|known| known.rows.contains(path))
    }

    fn deletions(&self, path: &str) -> Option<Deletions> {
        self.with(|known| known.deletions.get(path).copied())
    }

    fn forget_deletions(&self, path: &str) {
        self.with(|known| known.deletions.remove(path));
    }

    fn keep_deletions(&self, path: &str, found: Deletions) {
        self.with(|known| {
            if known.deletions.len() >= PARTITIONS_MAX {
                known.deletions.clear();
            }
            known.deletions.insert(path.to_owned(), found);
        });
    }
}

/// End of a commit.
pub(crate) enum Ended {
    Committed(Vec<Option<Etag>>),
    Conflict(usize),
    /// Nothing was changed.
    Failed(Fault),
    /// It happened or not.
    Unknown(Fault),
}

impl Ended {
    /// The backend's words for it.
    pub(crate) fn outcome(self) -> Result<CommitOutcome, Failure> {
        match self {
            Self::Committed(etags) => Ok(CommitOutcome::Committed(etags)),
            Self::Conflict(position) => Ok(CommitOutcome::Conflict(position)),
            Self::Failed(fault) => Err(Failure::Nothing(fault.into())),
            Self::Unknown(fault) => Err(Failure::Broken(fault.into())),
        }
    }
}

/// Result of one attempt.
enum Attempt {
    Ended(Ended),
    /// The plan rested on something out of date; it has been looked up.
    Again,
}

/// Commits, over one session.
pub(crate) struct Committer<'c> {
    pub(crate) client: &'c Client,
    pub(crate) memory: &'c Memory,
    pub(crate) acls: Acls<'c>,
    pub(crate) deadline: Instant,
}

impl Committer<'_> {
    /// Applies all mutations, or none.
    pub(crate) async fn commit(&self, request: &Request<'_>) -> Ended {
        let mut known = Known::default();
        for _ in 0..ATTEMPTS_MAX {
            // Only the last request writes; everything before it changes nothing.
            match timeout_at(self.deadline, self.learn(request, &mut known)).await {
                Err(_) => return Ended::Failed(Fault::too_late()),
                Ok(Err(fault)) => return Ended::Failed(fault),
                Ok(Ok(())) => {}
            }
            let plan = request.plan(&known, |path| self.memory.is_there(path));
            if plan.bytes() > REQUEST_BYTES_MAX {
                let detail = format!(
                    "a commit of {} bytes, at most {REQUEST_BYTES_MAX} fit into one request \
                     (ZooKeeper's jute.maxbuffer)",
                    plan.bytes()
                );
                return Ended::Failed(Fault::new(StoreErrorKind::Invalid, detail));
            }
            match self.send(request, &plan, &mut known).await {
                Attempt::Ended(ended) => return ended,
                Attempt::Again => {}
            }
            if Instant::now() >= self.deadline {
                break;
            }
        }
        Ended::Failed(Fault::unavailable(
            "others change the partition faster than this commit can be made",
        ))
    }

    /// Looks up what the conditions of the request need to know and is not remembered.
    async fn learn(&self, request: &Request<'_>, known: &mut Known) -> Result<(), Fault> {
        if !request.mutations.iter().any(|mutation| condition(mutation).is_some()) {
            return Ok(());
        }
        let path = &request.nodes.deletions;
        if known.deletions.is_none() {
            known.deletions = self.memory.deletions(path);
        }
        for _ in 0..ATTEMPTS_MAX {
            let rows =
                known.deletions.map(|found| doubtful(request.nodes, request.mutations, found));
            if rows
                .as_ref()
                .is_some_and(|rows| rows.iter().all(|row| known.verified.contains_key(row)))
            {
                return Ok(());
            }
            // The deletions are read before the rows, and the commit checks them: the rows are
            // unchanged until then.
            let rows = rows.unwrap_or_default();
            let nodes: Vec<String> = rows.iter().map(|row| request.nodes.row(row)).collect();
            let all: Vec<&str> = [path].into_iter().chain(&nodes).map(String::as_str).collect();
            let mut stats = snapshot::stats(self.client, request.nodes, &all).await?.into_iter();
            match stats.next().flatten() {
                None => tables::make_partition(self.client, request.nodes, self.acls).await?,
                Some(found) => {
                    let found = Deletions { version: found.version, zxid: found.mzxid };
                    self.memory.keep_deletions(path, found);
                    known.deletions = Some(found);
                    known.verified = rows
                        .into_iter()
                        .zip(stats.map(|stat| stat.as_ref().map(Written::of)))
                        .collect();
                }
            }
        }
        Err(Fault::unavailable("rows are deleted faster than this commit can be made"))
    }

    async fn send(&self, request: &Request<'_>, plan: &Plan, known: &mut Known) -> Attempt {
        let mut writer = match plan.writer(self.client, self.acls) {
            Ok(writer) => writer,
            Err(error) => return Attempt::Ended(Ended::Failed(error.into())),
        };
        let Ok(answer) = timeout_at(self.deadline, writer.commit()).await else {
            return Attempt::Ended(Ended::Unknown(Fault::too_late()));
        };
        match answer {
            Ok(results) => Attempt::Ended(self.committed(request, plan, &results)),
            Err(MultiWriteError::OperationFailed { index, source }) => {
                self.refused(request, plan, known, index, source).await
            }
            Err(MultiWriteError::RequestFailed { source }) if did_nothing(&source) => {
                Attempt::Ended(Ended::Failed(source.into()))
            }
            Err(MultiWriteError::RequestFailed { source }) => {
                Attempt::Ended(Ended::Unknown(source.into()))
            }
        }
    }

    /// The server applied nothing, because of the operation at `index`.
    async fn refused(
        &self,
        request: &Request<'_>,
        plan: &Plan,
        known: &mut Known,
        index: usize,
        error: Error,
    ) -> Attempt {
        let failed = |fault: Fault| Attempt::Ended(Ended::Failed(fault));
        let condition_failed =
            matches!(error, Error::NoNode | Error::NodeExists | Error::BadVersion);
        if !condition_failed {
            return failed(error.into());
        }
        let looked_up = async {
            match plan.owners.get(index).copied().flatten() {
                // The partition was never written.
                None if error == Error::NoNode => {
                    tables::make_partition(self.client, request.nodes, self.acls).await?;
                }
                // Rows were deleted meanwhile: the memory of them is void.
                None => {
                    let path = &request.nodes.deletions;
                    self.memory.forget_deletions(path);
                    *known = Known::default();
                }
                Some(at) => match request.mutations.get(at) {
                    // The guess was wrong: ask for all of them.
                    Some(Mutation::Upsert { .. }) => self.look_up(request).await?,
                    _ => return Ok(Attempt::Ended(Ended::Conflict(at))),
                },
            }
            Ok(Attempt::Again)
        };
        match timeout_at(self.deadline, looked_up).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(fault)) => failed(fault),
            Err(_) => failed(Fault::too_late()),
        }
    }

    /// Finds out which rows of upserts are there.
    async fn look_up(&self, request: &Request<'_>) -> Result<(), Fault> {
        let upserts = request.mutations.iter().filter(|m| matches!(m, Mutation::Upsert { .. }));
        let paths: Vec<String> =
            upserts.map(|mutation| request.nodes.row(mutation.row_key())).collect();
        let asked: Vec<&str> = paths.iter().map(String::as_str).collect();
        let stats = snapshot::stats(self.client, request.nodes, &asked).await?;
        for (path, stat) in paths.into_iter().zip(stats) {
            self.memory.row(path, stat.is_some());
        }
        Ok(())
    }

    fn committed(&self, request: &Request<'_>, plan: &Plan, results: &[MultiWriteResult]) -> Ended {
        let stat = |at: usize| -> Option<Stat> {
            match results.get(at) {
                Some(MultiWriteResult::SetData { stat }) => Some(*stat),
                _ => None,
            }
        };
        // The partition's node was written by the same commit as the rows.
        let Some(commit) = stat(0) else {
            return Ended::Unknown(Fault::corrupt(
                "the server answered a commit with something else",
            ));
        };
        let mut etags = Vec::with_capacity(plan.writes.len());
        for (mutation, at) in request.mutations.iter().zip(&plan.writes) {
            let path = request.nodes.row(mutation.row_key());
            match at {
                Some(at) => {
                    // A node that was made is at version 0.
                    let version = stat(*at).map_or(0, |stat| stat.version);
                    etags.push(Some(
                        Written { zxid: commit.mzxid, version }
                            .etag(request.nodes, mutation.row_key()),
                    ));
                    self.memory.row(path, true);
                }
                None => {
                    etags.push(None);
                    if matches!(mutation, Mutation::Delete { .. }) {
                        self.memory.row(path, false);
                    }
                }
            }
        }
        if let Some(deleted) = stat(1)
            && plan.owners.get(1) == Some(&None)
        {
            let found = Deletions { version: deleted.version, zxid: deleted.mzxid };
            self.memory.keep_deletions(&request.nodes.deletions, found);
        }
        Ended::Committed(etags)
    }
}
