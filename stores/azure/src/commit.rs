//! Commits: one entity group transaction each.

use emmer_store::recent::Recent;
use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Etag, Mutation, Row, TableDecl};
use emmer_store_keyvalue::azure::{Known, Seen};
use emmer_store_keyvalue::{Answered, At, Commits, Failure, Fault, outcome};
use tokio::time::Instant;

use crate::batch::{Done, OPERATIONS_MAX, Operation, Verb};
use crate::entity::Entity;
use crate::keys;
use crate::store::AzureTable;

/// Number of times that a transaction is sent because rows were touched meanwhile, or a guess was
/// wrong.
const ATTEMPTS_MAX: u32 = 64;

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
    fn operation(
        &self,
        verb: Verb,
        row_key: &str,
        if_match: Option<&str>,
        body: String,
    ) -> Operation {
        let (partition, row) = (keys::encode(self.partition).stored, keys::encode(row_key).stored);
        Operation::new(verb, &partition, &row, if_match, body)
    }

    fn write(&self, verb: Verb, row: &Row, if_match: Option<&str>) -> Result<Operation, Fault> {
        let mut entity = Entity::of(self.partition, row, &self.mark);
        if let Some(recent) = self.recent.as_ref().filter(|_| row.key() == VERSION_ROW) {
            entity.recent(recent, &self.mark);
        }
        Ok(self.operation(verb, row.key(), if_match, entity.json()?))
    }

    /// One operation for each mutation.
    fn operations(&self, known: &Known) -> Result<Vec<Operation>, Fault> {
        self.mutations
            .iter()
            .map(|mutation| self.one(mutation, known.rows.get(mutation.row_key())))
            .collect()
    }

    fn one(&self, mutation: &Mutation, seen: Option<&Seen>) -> Result<Operation, Fault> {
        // A row that is not known has no etag of the service: one that no row has stands for it.
        let service_etag = seen.map_or("W/\"none\"", |seen| seen.service_etag.as_str());
        Ok(match (mutation, seen) {
            (Mutation::Insert { row }, _) => self.write(Verb::Insert, row, None)?,
            (Mutation::Replace { row, .. } | Mutation::Upsert { row }, Some(seen)) => {
                self.write(Verb::Put, &seen.keep_volatile(self.table, row), Some(service_etag))?
            }
            (Mutation::Replace { row, .. }, None) => {
                self.write(Verb::Put, row, Some(service_etag))?
            }
            (Mutation::Upsert { row }, None) => {
                let has_volatile = self.table.columns.iter().any(|column| column.volatile);
                self.write(if has_volatile { Verb::Insert } else { Verb::Put }, row, None)?
            }
            (Mutation::Delete { row_key, etag: None }, _) => {
                self.operation(Verb::Delete, row_key, Some("*"), String::new())
            }
            (Mutation::Delete { row_key, .. }, _) => {
                self.operation(Verb::Delete, row_key, Some(service_etag), String::new())
            }
            // Nothing is merged: the service's etag changes, the row's does not.
            (Mutation::Check { row_key, .. }, _) => {
                let body = Entity::new(self.partition, row_key).json()?;
                self.operation(Verb::Merge, row_key, Some(service_etag), body)
            }
        })
    }
}

impl AzureTable {
    /// The rows of a commit as they are.
    async fn known(&self, commit: &Commit<'_>, deadline: Instant) -> Result<Known, Fault> {
        let keys: Vec<&str> = commit.mutations.iter().map(Mutation::row_key).collect();
        let rows = self.look_at(commit.table, commit.partition, &keys, deadline).await?;
        Ok(Known { rows, fresh: true })
    }
}

impl Commits for AzureTable {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table, partition, deadline } = at;
        debug_assert!(mutations.len() <= OPERATIONS_MAX, "one operation for each mutation");
        let recent = self.recent().after(table.name, partition, mutations);
        let commit = Commit { table, partition, mutations, mark: self.mark(), recent };
        let mut known = Known::believed(self.guesses(), table, partition, mutations);
        for _ in 0..ATTEMPTS_MAX {
            if !known.fresh && !known.is_enough(table, mutations) {
                known = self.known(&commit, deadline).await?;
            }
            if known.fresh {
                // A transaction of ours that was refused and happened all the same.
                if known.has(&commit.mark) {
                    return Ok(outcome::committed(mutations, |_| commit.mark.clone()));
                }
                if let Some(at) = known.conflict(mutations) {
                    return Ok(CommitOutcome::Conflict(at));
                }
            }
            let operations = commit.operations(&known)?;
            match self.client().transact(&self.name_of(table), &operations, deadline, false).await?
            {
                Done::All(etags) => {
                    known.learn_commit(
                        self.guesses(),
                        (table, partition),
                        mutations,
                        &commit.mark,
                        &etags,
                    );
                    if let Some(recent) = &commit.recent {
                        self.recent().learn(table.name, partition, &commit.mark, recent.clone());
                    }
                    return Ok(outcome::committed(mutations, |_| commit.mark.clone()));
                }
                // A row is not as expected: another writer wrote it, or only touched it.
                Done::Not(_) => known = self.known(&commit, deadline).await?,
            }
        }
        Err(Failure::Nothing(Fault::unavailable("others write the same rows all the time")))
    }
}
