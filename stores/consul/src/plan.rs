//! Mutations as a transaction, or as the record of a large commit.

use std::collections::BTreeMap;

use emmer_store::{CommitOutcome, Etag, Mutation, Row, TableDecl};
use emmer_store_keyvalue::document;
use emmer_store_keyvalue::outcome::committed;
use emmer_store_keyvalue::revisions::{etag_of, holds, revision_of};

use crate::fence::{FENCE, Record};
use crate::guesses::Guess;
use crate::rows::{COMMIT, column_key, key};
use crate::wire::{Error, Operation, Txn};

/// An index no key ever has.
const NO_INDEX: i64 = i64::MAX;

/// Whose operation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// The fence is as believed.
    Fence,
    /// The condition of the mutation at this position.
    Condition(usize),
    /// A guess about the row of a mutation.
    Guess,
    /// Nothing.
    Nothing,
}

/// A commit as one transaction.
pub(crate) struct Plan {
    pub(crate) operations: Vec<Operation>,
    asks: Vec<Asks>,
}

impl Plan {
    /// The transaction of `mutations` in the partition whose keys begin with `prefix`, if it is as
    /// `guess` says.
    pub(crate) fn new(
        decl: &TableDecl,
        partition: &str,
        prefix: &str,
        mutations: &[Mutation],
        guess: &Guess,
        mark: &str,
    ) -> Self {
        let mut plan = Self { operations: Vec::new(), asks: Vec::new() };
        plan.push(Operation::check(&format!("{prefix}{FENCE}"), guess.fence), Asks::Fence);
        for (at, mutation) in mutations.iter().enumerate() {
            plan.mutation(decl, partition, prefix, at, mutation, guess, mark);
        }
        plan
    }

    #[expect(clippy::too_many_arguments, reason = "what a plan is made of")]
    fn mutation(
        &mut self,
        decl: &TableDecl,
        partition: &str,
        prefix: &str,
        at: usize,
        mutation: &Mutation,
        guess: &Guess,
        mark: &str,
    ) {
        let row_key = mutation.row_key();
        let own = format!("{prefix}{}", key(row_key));
        let index = |etag: &Etag| revision_of(etag).unwrap_or(NO_INDEX);
        let document = |row| document::encode(decl, partition, row, Some((COMMIT, mark)));
        match mutation {
            Mutation::Insert { row } => {
                self.push(Operation::cas(&own, &document(row), 0), Asks::Condition(at));
                self.first_columns(decl, prefix, row);
            }
            Mutation::Replace { row, etag } => {
                self.push(Operation::cas(&own, &document(row), index(etag)), Asks::Condition(at));
            }
            Mutation::Upsert { row } => {
                let believed = guess.rows.get(row_key).copied().unwrap_or(0);
                self.push(Operation::cas(&own, &document(row), believed), Asks::Guess);
                if believed == 0 {
                    self.first_columns(decl, prefix, row);
                }
            }
            Mutation::Delete { etag, .. } => {
                match etag {
                    // Not `delete-cas`: Consul does not report the deletion of a missing key as a
                    // failure.
                    Some(etag) => {
                        self.push(Operation::check(&own, index(etag)), Asks::Condition(at));
                    }
                    None => self.push(Operation::get(&own), Asks::Condition(at)),
                }
                self.push(Operation::delete(&own), Asks::Nothing);
                for name in document::volatile_names(decl) {
                    let column = format!("{prefix}{}", column_key(row_key, name));
                    self.push(Operation::delete(&column), Asks::Nothing);
                }
            }
            Mutation::Check { etag, .. } => {
                self.push(Operation::check(&own, index(etag)), Asks::Condition(at));
            }
        }
    }

    /// The volatile columns of a new row. There are no others next to it: a deletion takes them
    /// all.
    fn first_columns(&mut self, decl: &TableDecl, prefix: &str, row: &Row) {
        for (name, value) in document::volatile(decl, row) {
            let column = format!("{prefix}{}", column_key(row.key(), name));
            self.push(Operation::set(&column, &value), Asks::Nothing);
        }
    }

    fn push(&mut self, operation: Operation, asks: Asks) {
        self.operations.push(operation);
        self.asks.push(asks);
    }

    /// About as many bytes as it takes to send it.
    pub(crate) fn bytes(&self) -> usize {
        self.operations.iter().map(Operation::bytes).sum()
    }

    /// The first condition that did not hold, if the refusal is certain to be about that: all
    /// failures are listed, so every guess before it was right, and the fence was idle.
    pub(crate) fn conflict(&self, errors: &[Error]) -> Option<usize> {
        let mut failed: Vec<usize> = errors.iter().map(|error| error.op_index).collect();
        failed.sort_unstable();
        match self.asks.get(*failed.first()?) {
            Some(Asks::Condition(at)) => Some(*at),
            _ => None,
        }
    }
}

/// The first mutation whose condition does not hold for the rows' indexes.
pub(crate) fn first_conflict(
    mutations: &[Mutation],
    rows: &BTreeMap<String, i64>,
) -> Option<usize> {
    mutations.iter().position(|mutation| !holds(mutation, rows.get(mutation.row_key()).copied()))
}

/// The record of a large commit of `mutations` whose conditions hold for these rows.
pub(crate) fn record(
    decl: &TableDecl,
    partition: &str,
    mutations: &[Mutation],
    rows: &BTreeMap<String, i64>,
    mark: &str,
) -> Record {
    let mut record = Record { by: mark.to_owned(), ..Record::default() };
    for mutation in mutations {
        let row_key = mutation.row_key();
        match mutation {
            Mutation::Insert { row } | Mutation::Replace { row, .. } | Mutation::Upsert { row } => {
                if !rows.contains_key(row_key) {
                    // Before their row, without which they cannot be touched.
                    let columns = document::volatile(decl, row);
                    record
                        .writes
                        .extend(columns.map(|(name, value)| (column_key(row_key, name), value)));
                }
                let document = document::encode(decl, partition, row, Some((COMMIT, mark)));
                record.writes.push((key(row_key), document));
            }
            Mutation::Delete { .. } => {
                record.deletes.push(key(row_key));
                record
                    .deletes
                    .extend(document::volatile_names(decl).map(|name| column_key(row_key, name)));
            }
            Mutation::Check { .. } => {}
        }
    }
    record
}

/// The answer to a commit whose writes have these indexes.
pub(crate) fn done(
    mutations: &[Mutation],
    index_of: impl Fn(&str) -> Option<i64>,
) -> CommitOutcome {
    // A row that was written over already gets an etag that no row has: the next conditional write
    // is a conflict, as it must be.
    committed(mutations, |row_key| index_of(row_key).map_or_else(|| "0".into(), etag_of))
}

/// The index of a transaction's writes.
pub(crate) fn index_of(answer: &Txn) -> Option<i64> {
    answer.results.iter().map(|result| result.kv.modify_index).max()
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;
    use emmer_store::Value;
    use emmer_store::silos::SILO_INSTANCES;

    use super::*;

    fn row(key: &str) -> Row {
        Row::new(key).with("IAmAliveTime", Value::Time(Timestamp::from_millis(1)))
    }

    fn failed(at: &[usize]) -> Vec<Error> {
        at.iter().map(|&op_index| Error { op_index, what: "stale".into() }).collect()
    }

    #[test]
    fn a_refusal_is_a_conflict_only_when_no_guess_stands_before_it() {
        let mutations = [
            Mutation::Replace { row: row("v"), etag: "5".into() },
            Mutation::Upsert { row: row("a") },
            Mutation::Check { row_key: "b".into(), etag: "x".into() },
        ];
        let guess = Guess { fence: 0, rows: BTreeMap::new() };
        let plan = Plan::new(&SILO_INSTANCES, "p", "p/", &mutations, &guess, "m.1");
        // The fence, the version row, the upsert and its column, the check.
        assert_eq!(plan.operations.len(), 5);
        assert_eq!(plan.conflict(&failed(&[1, 2, 4])), Some(0));
        assert_eq!(plan.conflict(&failed(&[4])), Some(2));
        for unclear in [&[0, 1][..], &[2, 4], &[2], &[]] {
            assert_eq!(plan.conflict(&failed(unclear)), None, "{unclear:?}");
        }
        let known = Guess { fence: 3, rows: BTreeMap::from([("a".to_owned(), 9)]) };
        let plan = Plan::new(&SILO_INSTANCES, "p", "p/", &mutations, &known, "m.1");
        assert_eq!(plan.operations.len(), 4, "a row that is there keeps its volatile columns");
    }

    #[test]
    fn conditions_are_those_of_the_contract() {
        let rows = BTreeMap::from([("a".to_owned(), 5)]);
        let delete = |key: &str, etag: Option<&str>| Mutation::Delete {
            row_key: key.into(),
            etag: etag.map(Into::into),
        };
        for (mutation, wanted) in [
            (Mutation::Insert { row: row("a") }, Some(0)),
            (Mutation::Insert { row: row("b") }, None),
            (Mutation::Upsert { row: row("a") }, None),
            (Mutation::Replace { row: row("a"), etag: "5".into() }, None),
            (Mutation::Replace { row: row("b"), etag: "5".into() }, Some(0)),
            (Mutation::Replace { row: row("b"), etag: "x".into() }, Some(0)),
            (delete("a", None), None),
            (delete("a", Some("6")), Some(0)),
            (delete("b", None), Some(0)),
        ] {
            assert_eq!(
                first_conflict(std::slice::from_ref(&mutation), &rows),
                wanted,
                "{mutation:?}"
            );
        }
    }

    #[test]
    fn a_record_writes_columns_of_new_rows_only_and_before_their_row() {
        let rows = BTreeMap::from([("a".to_owned(), 5)]);
        let mutations = [
            Mutation::Upsert { row: row("a") },
            Mutation::Upsert { row: row("b") },
            Mutation::Delete { row_key: "c".into(), etag: None },
        ];
        let record = record(&SILO_INSTANCES, "p", &mutations, &rows, "m.1");
        let keys: Vec<&str> = record.writes.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a/.row", "b/IAmAliveTime", "b/.row"]);
        assert_eq!(record.deletes, ["c/.row", "c/IAmAliveTime"]);
        assert_eq!(
            done(&mutations, |key| (key == "a").then_some(7)),
            CommitOutcome::Committed(vec![Some("7".into()), Some("0".into()), None])
        );
    }
}
