//! Commits: one transactional batch each.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_store::recent::Recent;
use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Etag, Mutation, Row, TableDecl};
use emmer_store_keyvalue::azure::Known;
use emmer_store_keyvalue::marks::random;
use emmer_store_keyvalue::{Answered, At, Commits, Failure, Fault, Patience, check_sizes, outcome};
use serde_json::Value as Json;
use tokio::time::{Instant, sleep};

use crate::batch::{Done, Operation};
use crate::document::{encode, id, partition_value, size};
use crate::failure::Ended;
use crate::store::{COMMIT_BYTES_MAX, Cosmos, ROW_BYTES_MAX};

/// The most times that a batch is sent because rows were touched meanwhile, or a guess was wrong.
const ATTEMPTS_MAX: u32 = 64;
/// The attempts that follow each other at once.
const CALM_ATTEMPTS: u32 = 4;
/// The others come after a pause of one to eight times this.
const RIVAL_PAUSE: Duration = Duration::from_millis(2);
/// An etag that the service gives to no item.
const NO_ETAG: &str = "\"none\"";

/// A commit on its way.
struct Commit<'a> {
    table: &'static TableDecl,
    partition: &'a str,
    mutations: &'a [Mutation],
    /// The etag of every row that this commit writes. No other commit has it.
    mark: Etag,
    /// The last commits that the version row names behind it.
    recent: Option<Recent>,
}

impl Commit<'_> {
    fn document(&self, row: &Row) -> Json {
        let recent = self.recent.as_ref().filter(|_| row.key() == VERSION_ROW);
        encode(self.table, self.partition, row, &self.mark, recent)
    }

    /// One operation for each mutation. `documents` are the rows that are checked.
    fn operations(&self, known: &Known, documents: &BTreeMap<String, Json>) -> Vec<Operation> {
        let one = |mutation: &Mutation| {
            let key = mutation.row_key();
            let seen = known.rows.get(key);
            // A row that is not as wanted is not replaced: the service names the row.
            let etag = |wanted: Option<&Etag>| {
                let seen = seen.filter(|seen| wanted.is_none_or(|wanted| seen.etag == *wanted));
                seen.map_or(NO_ETAG, |seen| &seen.service_etag).to_owned()
            };
            match (mutation, seen) {
                (Mutation::Replace { row, etag: wanted }, _) => {
                    let kept = seen.map(|seen| seen.keep_volatile(self.table, row));
                    let document = self.document(kept.as_ref().unwrap_or(row));
                    Operation::Replace(id(key), document, etag(Some(wanted)))
                }
                (Mutation::Upsert { row }, Some(seen)) => {
                    let row = seen.keep_volatile(self.table, row);
                    Operation::Replace(id(key), self.document(&row), etag(None))
                }
                // If it is there after all it is found out, and replaced.
                (Mutation::Insert { row } | Mutation::Upsert { row }, _) => {
                    Operation::Create(self.document(row))
                }
                (Mutation::Delete { etag: None, .. }, _) => Operation::Delete(id(key), None),
                (Mutation::Delete { etag: wanted, .. }, _) => {
                    Operation::Delete(id(key), Some(etag(wanted.as_ref())))
                }
                // The same document: the service's etag changes, the row's does not.
                (Mutation::Check { etag: wanted, .. }, _) => {
                    let document = documents.get(key).cloned();
                    let document = document.unwrap_or_else(|| self.document(&Row::new(key)));
                    Operation::Replace(id(key), document, etag(Some(wanted)))
                }
            }
        };
        self.mutations.iter().map(one).collect()
    }

    /// The etags, as they were seen, of the rows that a batch of this commit replaces or deletes.
    /// The batch changes every one of them.
    fn replaced(&self, known: &Known) -> BTreeMap<String, Etag> {
        let changes = |mutation: &&Mutation| match mutation {
            Mutation::Replace { .. } | Mutation::Upsert { .. } => true,
            Mutation::Delete { etag, .. } => etag.is_some(),
            Mutation::Insert { .. } | Mutation::Check { .. } => false,
        };
        let keys = self.mutations.iter().filter(changes).map(Mutation::row_key);
        keys.filter_map(|key| Some((key.to_owned(), known.rows.get(key)?.etag.clone()))).collect()
    }

    fn checks(&self) -> bool {
        self.mutations.iter().any(|mutation| matches!(mutation, Mutation::Check { .. }))
    }
}

/// The knowledge of the rows of a commit while it is on its way.
#[derive(Default)]
struct Sight {
    known: Known,
    /// The rows that were read and found.
    documents: BTreeMap<String, Json>,
    /// The mutation whose condition did not hold when the commit was last sent.
    failed: Option<usize>,
    /// True if the rows that are written without a condition were read, and none conflicted since.
    upserts_are_known: bool,
    /// The rows that the first attempt without an answer was to replace, as they were.
    doubted: BTreeMap<String, Etag>,
}

impl Sight {
    /// Returns true if a commit in doubt may be sent again: a row that it replaces is unchanged, so
    /// it has not happened, and the service lets one of two attempts pass. A row that was written
    /// since may have been written after this commit, and a second attempt would undo that.
    fn has_not_happened(&self) -> bool {
        let now = |key: &String| self.known.rows.get(key).map(|seen| &seen.etag);
        !self.doubted.is_empty() && self.doubted.iter().all(|(key, was)| now(key) == Some(was))
    }

    /// Position of the first condition that certainly does not hold: the answer names it, or every
    /// row before it was read.
    fn conflict(&self, mutations: &[Mutation]) -> Option<usize> {
        let holds = |mutation: &Mutation| {
            mutation.holds(self.known.rows.get(mutation.row_key()).map(|seen| &seen.etag))
        };
        if let Some(at) = self.failed {
            return mutations.get(at).is_some_and(|mutation| !holds(mutation)).then_some(at);
        }
        let makes = |mutation: &&Mutation| matches!(mutation, Mutation::Insert { .. });
        let looked_at = mutations.iter().take_while(|mutation| !makes(mutation)).count();
        mutations.iter().take(looked_at).position(|mutation| !holds(mutation))
    }
}

impl Cosmos {
    /// Sends a commit until its outcome is known. `doubt` becomes the reason to doubt: an attempt
    /// was sent and not answered.
    async fn attempts(
        &self,
        commit: &Commit<'_>,
        doubt: &mut Option<Fault>,
        deadline: Instant,
    ) -> Result<CommitOutcome, Ended> {
        let Commit { table, partition, mutations, .. } = *commit;
        let place = partition_value(table.name, partition);
        let done = || Ok(outcome::committed(mutations, |_| commit.mark.clone()));
        let known = Known::believed(self.guesses(), table, partition, mutations);
        let mut sight = Sight { known, ..Sight::default() };
        let mut is_known = !commit.checks() && sight.known.is_enough(table, mutations);
        let mut patience = Patience::default();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > CALM_ATTEMPTS {
                // Rivals come back at different times.
                sleep(RIVAL_PAUSE * (u32::try_from(random() % 8).unwrap_or(0) + 1)).await;
            }
            if !is_known {
                self.look(commit, &mut sight, doubt.is_some(), deadline)
                    .await
                    .map_err(Ended::Refused)?;
                if sight.known.has(&commit.mark) {
                    return done();
                }
                if let Some(at) = sight.conflict(mutations) {
                    return Ok(CommitOutcome::Conflict(at));
                }
            }
            if doubt.is_some() && !sight.has_not_happened() {
                break;
            }
            let operations = commit.operations(&sight.known, &sight.documents);
            // There is half of the time left to find out what became of it.
            let limit = deadline.min(Instant::now() + self.client().address.place.timeout / 2);
            is_known = false;
            sight.failed = None;
            let ended = match self.client().transact(&place, &operations, limit).await {
                Ok(Done::All(answers)) => {
                    let etags: Vec<_> = answers.into_iter().map(|(etag, _)| etag).collect();
                    let (at, mark) = ((table, partition), &commit.mark);
                    sight.known.learn_commit(self.guesses(), at, mutations, mark, &etags);
                    if let Some(recent) = &commit.recent {
                        self.recent().learn(table.name, partition, mark, recent.clone());
                    }
                    return done();
                }
                // A row is not as expected: another writer wrote it, or only touched it.
                Ok(Done::Not(at)) => {
                    sight.failed = Some(at);
                    let upserts = matches!(mutations.get(at), Some(Mutation::Upsert { .. }));
                    sight.upserts_are_known &= !upserts;
                    continue;
                }
                Err(ended) => ended,
            };
            match &ended {
                Ended::Uncertain(fault) => {
                    if doubt.is_none() {
                        *doubt = Some(fault.clone());
                        sight.doubted = commit.replaced(&sight.known);
                    }
                    sight.upserts_are_known = false;
                }
                // Nothing happened, and the known rows may still be right.
                Ended::Busy(..) => is_known = doubt.is_none(),
                Ended::Away(_) if doubt.is_some() => {}
                Ended::Away(_) | Ended::Refused(_) => return Err(ended),
            }
            if !patience.wait(ended.pause(), deadline).await {
                return Err(ended);
            }
        }
        Err(Ended::Away(Fault::unavailable("others write the same rows all the time")))
    }

    /// Reads the rows whose etags a commit compares, and the row that was not as expected; in doubt
    /// also a row that it makes.
    async fn look(
        &self,
        commit: &Commit<'_>,
        sight: &mut Sight,
        in_doubt: bool,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let Commit { table, partition, mutations, .. } = *commit;
        let is_made = |mutation: &Mutation| matches!(mutation, Mutation::Insert { .. });
        let made = mutations.iter().position(is_made).filter(|_| in_doubt);
        let compares = |mutation: &Mutation| {
            !matches!(
                mutation,
                Mutation::Insert { .. }
                    | Mutation::Upsert { .. }
                    | Mutation::Delete { etag: None, .. }
            )
        };
        // A conflicting upsert is read with all others.
        let is_upsert = |at: &usize| matches!(mutations.get(*at), Some(Mutation::Upsert { .. }));
        let failed = sight.failed.filter(|at| !is_upsert(at));
        let wanted = mutations
            .iter()
            .enumerate()
            .filter(|(at, mutation)| compares(mutation) || [failed, made].contains(&Some(*at)));
        let keys: Vec<&str> = wanted.map(|(_, mutation)| mutation.row_key()).collect();
        let mut found = self.at_once(table, partition, &keys, deadline).await?;
        let mut looked_at = keys;
        if !sight.upserts_are_known {
            let upserts = mutations.iter().filter(|m| matches!(m, Mutation::Upsert { .. }));
            let upserts: Vec<&str> = upserts.map(Mutation::row_key).collect();
            match upserts.as_slice() {
                [] => {}
                [key] => found.extend(self.row(table, partition, key, deadline).await?),
                // As new as the session, which has seen the conflicting row.
                _ => found.extend(self.some_rows(table, partition, &upserts, deadline).await?),
            }
            looked_at.extend(upserts);
            sight.upserts_are_known = true;
        }
        for key in looked_at {
            sight.known.rows.remove(key);
        }
        for found in found {
            let key = found.stored.row.key().to_owned();
            sight.known.rows.insert(key.clone(), self.seen(table, &found));
            sight.documents.insert(key, found.document);
        }
        Ok(())
    }
}

impl Commits for Cosmos {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table, partition, deadline } = at;
        check_sizes(mutations, ROW_BYTES_MAX, COMMIT_BYTES_MAX, size)?;
        let recent = self.recent().after(table.name, partition, mutations);
        let commit = Commit { table, partition, mutations, mark: self.mark(), recent };
        let mut doubt = None;
        match self.attempts(&commit, &mut doubt, deadline).await {
            Ok(CommitOutcome::Conflict(at)) => match doubt {
                // Perhaps it happened, and another writer wrote over it.
                Some(why) => Err(Failure::Broken(why)),
                None => Ok(CommitOutcome::Conflict(at)),
            },
            Ok(outcome) => Ok(outcome),
            Err(ended) => Err(doubt.map_or_else(|| ended.failure(), Failure::Broken)),
        }
    }
}
