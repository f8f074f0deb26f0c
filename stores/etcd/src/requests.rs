//! Mutations as one transaction.

use emmer_store::{CommitOutcome, Mutation, Row, TableDecl};
use emmer_store_keyvalue::outcome::committed;
use emmer_store_keyvalue::revisions::{etag_of, holds, revision_of};
use emmer_store_keyvalue::{document, layout};
use serde_json::Value as Json;

use crate::wire::{
    Txn, delete, delete_all, get_revision, has_revision, inner_txn, is_missing, is_there, put, txn,
};

/// A modification revision no key ever has.
const NO_REVISION: i64 = -1;

/// The transaction of a commit.
pub(crate) struct Commit {
    pub(crate) body: Json,
    /// Positions of the mutations with a condition, in the order of the transaction's answer when
    /// it does nothing.
    conditions: Vec<usize>,
}

impl Commit {
    /// The transaction of `mutations` in the partition whose keys begin with `prefix`.
    pub(crate) fn new(
        decl: &TableDecl,
        partition: &str,
        prefix: &str,
        mutations: &[Mutation],
    ) -> Self {
        let (mut compare, mut success, mut failure) = (Vec::new(), Vec::new(), Vec::new());
        let mut conditions = Vec::new();
        for (at, mutation) in mutations.iter().enumerate() {
            let key = layout::row(prefix, mutation.row_key());
            if let Some(condition) = condition(mutation, &key) {
                compare.push(condition);
                failure.push(get_revision(&key));
                conditions.push(at);
            }
            match mutation {
                Mutation::Insert { row } => success.push(one(create(decl, partition, &key, row))),
                Mutation::Replace { row, .. } => success.push(write(decl, partition, &key, row)),
                Mutation::Upsert { row } => {
                    let written = [write(decl, partition, &key, row)];
                    success.push(match create(decl, partition, &key, row) {
                        // The row alone, which may exist or not.
                        created if created.len() == 1 => one(created),
                        created => inner_txn(&[is_missing(&key)], &created, &written),
                    });
                }
                Mutation::Delete { .. } => success.push(one(remove(decl, &key))),
                Mutation::Check { .. } => {}
            }
        }
        Self { body: txn(&compare, &success, &failure), conditions }
    }

    /// The outcome in the answer.
    ///
    /// # Errors
    /// In words: it is no answer to this transaction.
    pub(crate) fn outcome(
        &self,
        mutations: &[Mutation],
        answer: &Txn,
    ) -> Result<CommitOutcome, String> {
        if answer.succeeded {
            let etag = etag_of(answer.header.revision);
            return Ok(committed(mutations, |_| etag.clone()));
        }
        for (&at, found) in self.conditions.iter().zip(&answer.responses) {
            let found =
                found.response_range.as_ref().ok_or("no revisions in the answer to a commit")?;
            let now = found.kvs.first().map(|kv| kv.mod_revision);
            if mutations.get(at).is_some_and(|mutation| !holds(mutation, now)) {
                return Ok(CommitOutcome::Conflict(at));
            }
        }
        Err("a commit was refused whose conditions hold".to_owned())
    }
}

/// The comparison that must hold.
fn condition(mutation: &Mutation, key: &str) -> Option<Json> {
    match mutation {
        Mutation::Insert { .. } => Some(is_missing(key)),
        Mutation::Upsert { .. } => None,
        Mutation::Delete { etag: None, .. } => Some(is_there(key)),
        Mutation::Replace { etag, .. }
        | Mutation::Delete { etag: Some(etag), .. }
        | Mutation::Check { etag, .. } => {
            Some(has_revision(key, revision_of(etag).unwrap_or(NO_REVISION)))
        }
    }
}

/// Adds a row unless it exists.
pub(crate) fn add(decl: &TableDecl, partition: &str, prefix: &str, row: &Row) -> Json {
    let key = layout::row(prefix, row.key());
    inner_txn(&[is_missing(&key)], &create(decl, partition, &key, row), &[])
}

/// Deletes a row if the key `unchanged` still has this revision.
pub(crate) fn remove_unchanged(
    decl: &TableDecl,
    key: &str,
    unchanged: &str,
    revision: i64,
) -> Json {
    inner_txn(&[has_revision(unchanged, revision)], &remove(decl, key), &[])
}

fn write(decl: &TableDecl, partition: &str, key: &str, row: &Row) -> Json {
    put(key, &document::encode(decl, partition, row, None))
}

/// A new row with its volatile columns. A deletion takes all columns, so there are no others.
fn create(decl: &TableDecl, partition: &str, key: &str, row: &Row) -> Vec<Json> {
    let volatile = document::volatile(decl, row);
    let columns = volatile.map(|(name, value)| put(&layout::column(key, name), &value));
    std::iter::once(write(decl, partition, key, row)).chain(columns).collect()
}

fn remove(decl: &TableDecl, key: &str) -> Vec<Json> {
    let mut all = vec![delete(key)];
    if document::volatile_names(decl).next().is_some() {
        all.push(delete_all(&format!("{key}/")));
    }
    all
}

/// Several operations as one, for the limit of operations counts each level by itself.
fn one(mut operations: Vec<Json>) -> Json {
    match operations.len() {
        1 => operations.swap_remove(0),
        _ => inner_txn(&[], &operations, &[]),
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;
    use emmer_store::Value;
    use emmer_store::silos::SILO_INSTANCES;

    use super::*;
    use crate::wire::{Range, Response};

    #[test]
    fn a_hundred_mutations_fit_the_limit_of_operations() {
        let at = Value::Time(Timestamp::from_millis(1));
        let row = |n: usize| Row::new(format!("r{n}")).with("IAmAliveTime", at.clone());
        for kind in 0..3 {
            let mutation = |n| match kind {
                0 => Mutation::Insert { row: row(n) },
                1 => Mutation::Upsert { row: row(n) },
                _ => Mutation::Delete { row_key: format!("r{n}"), etag: None },
            };
            let mutations: Vec<_> = (0..100).map(mutation).collect();
            let commit = Commit::new(&SILO_INSTANCES, "p", "emmer/silo_instances/p/", &mutations);
            for part in ["compare", "success", "failure"] {
                assert!(commit.body[part].as_array().unwrap().len() <= 100, "{part}");
            }
        }
    }

    #[test]
    fn a_refused_commit_names_the_first_condition_that_did_not_hold() {
        let check = |etag: &str| Mutation::Check { row_key: "r".into(), etag: etag.into() };
        let mutations =
            [Mutation::Upsert { row: Row::new("u") }, check("5"), check("7"), check("x")];
        let commit = Commit::new(&SILO_INSTANCES, "p", "p/", &mutations);
        let found = |revision| Response {
            response_range: Some(Range {
                kvs: vec![crate::wire::KeyValue { mod_revision: revision, ..Default::default() }],
                ..Range::default()
            }),
            ..Response::default()
        };
        let answer =
            |revisions: [i64; 3]| Txn { responses: revisions.map(found).into(), ..Txn::default() };
        assert_eq!(commit.outcome(&mutations, &answer([6, 7, 1])), Ok(CommitOutcome::Conflict(1)));
        assert_eq!(commit.outcome(&mutations, &answer([5, 8, 1])), Ok(CommitOutcome::Conflict(2)));
        assert_eq!(commit.outcome(&mutations, &answer([5, 7, 1])), Ok(CommitOutcome::Conflict(3)));
        assert!(commit.outcome(&mutations[..3], &answer([5, 7, 1])).is_err());
    }
}
