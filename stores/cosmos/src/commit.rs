//! Commits: one transactional batch each.

use std::collections::BTreeMap;

use emmer_store::recent::Recent;
use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Etag, Mutation, Row, TableDecl};
use emmer_store_keyvalue::azure::Known;
use emmer_store_keyvalue::{Failure, Fault, Patience, check_sizes, outcome};
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::batch::{Done, OPERATIONS_MAX, Operation};
use crate::document::{encode, id, partition_value, size};
use crate::failure::Ended;
use crate::store::{COMMIT_BYTES_MAX, Cosmos, ROW_BYTES_MAX};

/// How often a batch is sent because rows were touched meanwhile, or a guess was wrong.
const ATTEMPTS_MAX: u32 = 64;
/// An etag that the service gives to no item.
const NO_ETAG: &str = "\"none\"";

/// A commit on its way.
struct Commit<'a> {
    table: &'static TableDecl,
    partition: &'a str,
    mutations: &'a [Mutation],
    /// The etag of every row it writes: no other commit has it.
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
            let etag = || seen.map_or(NO_ETAG, |seen| &seen.service_etag).to_owned();
            match (mutation, seen) {
                (Mutation::Replace { row, .. } | Mutation::Upsert { row }, Some(seen)) => {
                    let row = seen.keep_volatile(self.table, row);
                    Operation::Replace(id(key), self.document(&row), etag())
                }
                (Mutation::Replace { row, .. }, None) => {
                    Operation::Replace(id(key), self.document(row), etag())
                }
                // If it is there after all it is found out, and replaced.
                (Mutation::Insert { row } | Mutation::Upsert { row }, _) => {
                    Operation::Create(self.document(row))
                }
                (Mutation::Delete { etag: None, .. }, _) => Operation::Delete(id(key), None),
                (Mutation::Delete { .. }, _) => Operation::Delete(id(key), Some(etag())),
                // The same document: the service's etag changes, the row's does not.
                (Mutation::Check { .. }, _) => {
                    let document = documents.get(key).cloned().unwrap_or_default();
                    Operation::Replace(id(key), document, etag())
                }
            }
        };
        self.mutations.iter().map(one).collect()
    }

    fn writes(&self) -> bool {
        self.mutations
            .iter()
            .any(|mutation| !matches!(mutation, Mutation::Check { .. } | Mutation::Delete { .. }))
    }

    fn checks(&self) -> bool {
        self.mutations.iter().any(|mutation| matches!(mutation, Mutation::Check { .. }))
    }
}

impl Cosmos {
    pub(crate) async fn run_commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: &[Mutation],
        deadline: Instant,
    ) -> Result<CommitOutcome, Failure> {
        debug_assert!(mutations.len() <= OPERATIONS_MAX, "one operation for each mutation");
        check_sizes(mutations, ROW_BYTES_MAX, COMMIT_BYTES_MAX, size)?;
        let recent = self.recent().after(table.name, partition, mutations);
        let commit = Commit { table, partition, mutations, mark: self.mark(), recent };
        let place = partition_value(table.name, partition);
        let mut known = Known::believed(self.guesses(), table, partition, mutations);
        let mut documents = BTreeMap::new();
        let mut is_known = !commit.checks() && known.is_enough(table, mutations);
        let mut patience = Patience::default();
        // The reason to doubt: an attempt was sent and not answered.
        let mut doubt: Option<Fault> = None;
        for _ in 0..ATTEMPTS_MAX {
            if !is_known {
                match self.look_at(&commit, deadline).await {
                    Ok(found) => (known, documents) = found,
                    Err(fault) => {
                        return Err(doubt.map_or(Failure::Nothing(fault), Failure::Broken));
                    }
                }
                if known.has(&commit.mark) {
                    return Ok(outcome::committed(mutations, |_| commit.mark.clone()));
                }
                if let Some(at) = known.conflict(mutations) {
                    // Perhaps it happened, and somebody wrote over it.
                    return doubt
                        .map_or(Ok(CommitOutcome::Conflict(at)), |why| Err(Failure::Broken(why)));
                }
            }
            let operations = commit.operations(&known, &documents);
            let may_repeat = commit.writes() && operations.iter().any(Operation::compares);
            if doubt.is_some() && !may_repeat {
                // Sent again it could happen twice.
                break;
            }
            // There is half of the time left to find out what became of it.
            let limit = deadline.min(Instant::now() + self.client().address.place.timeout / 2);
            let ended = self.client().transact(&place, &operations, limit).await;
            is_known = false;
            let pause = match ended {
                Ok(Done::All(answers)) => {
                    let etags: Vec<_> = answers.into_iter().map(|(etag, _)| etag).collect();
                    let at = (table, partition);
                    known.learn_commit(self.guesses(), at, mutations, &commit.mark, &etags);
                    if let Some(recent) = &commit.recent {
                        self.recent().learn(table.name, partition, &commit.mark, recent.clone());
                    }
                    return Ok(outcome::committed(mutations, |_| commit.mark.clone()));
                }
                // A row is not as it was believed to be: somebody wrote it, or only touched it.
                Ok(Done::Not(_)) => continue,
                Err(Ended::Busy(words, pause)) => {
                    // Nothing happened, and what is known may still be so.
                    is_known = doubt.is_none();
                    if patience.wait(pause, deadline).await {
                        continue;
                    }
                    let fault = Ended::Busy(words, None).fault();
                    return Err(doubt.map_or(Failure::Nothing(fault), Failure::Broken));
                }
                Err(Ended::Uncertain(fault)) => {
                    doubt.get_or_insert(fault);
                    None
                }
                Err(Ended::Away(_)) if doubt.is_some() => None,
                Err(other) => return Err(doubt.map_or(other.failure(), Failure::Broken)),
            };
            if !patience.wait(pause, deadline).await {
                break;
            }
        }
        let others =
            || Failure::Nothing(Fault::unavailable("others write the same rows all the time"));
        Err(doubt.map_or_else(others, Failure::Broken))
    }

    /// What is there of the rows of a commit, each as it is at some moment, and their documents.
    async fn look_at(
        &self,
        commit: &Commit<'_>,
        deadline: Instant,
    ) -> Result<(Known, BTreeMap<String, Json>), Fault> {
        let keys: Vec<&str> = commit.mutations.iter().map(Mutation::row_key).collect();
        let found = self.some_rows(commit.table, commit.partition, &keys, deadline).await?;
        let (mut known, mut documents) =
            (Known { fresh: true, ..Known::default() }, BTreeMap::new());
        for found in found {
            let key = found.stored.row.key().to_owned();
            known.rows.insert(key.clone(), self.seen(commit.table, &found));
            documents.insert(key, found.document);
        }
        Ok((known, documents))
    }
}
