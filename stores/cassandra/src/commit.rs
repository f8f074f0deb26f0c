//! Commits: one batch each.

use std::collections::BTreeMap;

use emmer_store::{CommitOutcome, Etag, Mutation, Row, TableDecl};
use emmer_store_keyvalue::{Answered, At, Commits, Failure, Fault, check_sizes, outcome};
use tokio::time::Instant;

use crate::batch::{Applied, Statement};
use crate::cql::{Cql, If};
use crate::store::{COMMIT_BYTES_MAX, Cassandra, ROW_BYTES_MAX};
use crate::values::{self, Bound, bound, bound_if_any, text};

/// A commit while its statements are written.
struct Commit<'a> {
    cql: Cql<'a>,
    partition: &'a str,
    mutations: &'a [Mutation],
}

impl Commit<'_> {
    /// One statement for each mutation. `is_there` guesses of an upsert's row.
    fn statements(&self, mark: &Etag, is_there: impl Fn(&str) -> bool) -> Vec<Statement> {
        let one = |mutation: &Mutation| match mutation {
            Mutation::Insert { row } => self.write(row, mark, If::Missing, None),
            Mutation::Replace { row, etag } => self.write(row, mark, If::Etag, Some(etag)),
            Mutation::Upsert { row } => self.write(row, mark, self.upsert(row, &is_there), None),
            Mutation::Delete { row_key, etag } => {
                let condition = if etag.is_some() { If::Etag } else { If::There };
                let mut values = vec![text(self.partition), text(row_key)];
                values.extend(etag.iter().map(|etag| text(etag)));
                (self.cql.delete(condition), values)
            }
            // The existing value is written once more.
            Mutation::Check { row_key, etag } => (
                self.cql.check(),
                vec![text(etag), text(self.partition), text(row_key), text(etag)],
            ),
        };
        self.mutations.iter().map(one).collect()
    }

    /// The condition of an upsert; none where it is the same for an existing and a missing row.
    fn upsert(&self, row: &Row, is_there: impl Fn(&str) -> bool) -> If {
        let brings_volatile =
            self.cql.decl.columns.iter().any(|c| c.volatile && row.get(c.name).is_some());
        match (brings_volatile, is_there(row.key())) {
            (false, _) => If::Any,
            (true, true) => If::There,
            (true, false) => If::Missing,
        }
    }

    fn write(&self, row: &Row, mark: &Etag, condition: If, etag: Option<&Etag>) -> Statement {
        let is_new = condition == If::Missing;
        let columns = self.cql.decl.columns.iter().filter(|column| is_new || !column.volatile);
        // In a new row there is nothing to clear.
        let of = |name| if is_new { bound_if_any(row.get(name)) } else { bound(row.get(name)) };
        let mut values: Vec<Bound> = vec![text(mark)];
        values.extend(columns.map(|column| of(column.name)));
        values.extend([text(self.partition), text(row.key())]);
        values.extend(etag.map(|etag| text(etag)));
        (self.cql.write(is_new, condition), values)
    }
}

/// The first mutation whose condition did not hold.
fn conflict(mutations: &[Mutation], found: &BTreeMap<String, Etag>) -> Option<usize> {
    mutations.iter().position(|mutation| !mutation.holds(found.get(mutation.row_key())))
}

impl Cassandra {
    /// Inserts rows, all or none.
    pub(crate) async fn insert_all(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        inserts: &[Mutation],
        deadline: Instant,
    ) -> Result<Applied, Fault> {
        check_sizes(inserts, ROW_BYTES_MAX, COMMIT_BYTES_MAX, values::size)?;
        let commit = Commit { cql: self.client().cql(decl), partition, mutations: inserts };
        let statements = |mark: &Etag| Ok(commit.statements(mark, |_| false));
        let applied = self.apply(decl, partition, statements, deadline).await;
        applied.map(|(applied, _)| applied).map_err(Failure::fault)
    }
}

impl Commits for Cassandra {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table: decl, partition, deadline } = at;
        check_sizes(mutations, ROW_BYTES_MAX, COMMIT_BYTES_MAX, values::size)?;
        let commit = Commit { cql: self.client().cql(decl), partition, mutations };
        let is_there = |key: &str| self.guesses().about(decl, partition, key).is_some();
        loop {
            let recent = self.recent().after(decl.name, partition, mutations);
            let statements = |mark: &Etag| {
                let mut statements = commit.statements(mark, is_there);
                if let Some(recent) = &recent {
                    let said = serde_json::to_string(&recent.to_texts(mark)).unwrap_or_default();
                    statements.push((commit.cql.note_recent(), vec![text(&said), text(partition)]));
                }
                Ok(statements)
            };
            let (applied, mark) = self.apply(decl, partition, statements, deadline).await?;
            match applied {
                Applied::Yes => {
                    if let Some(recent) = recent {
                        self.recent().learn(decl.name, partition, &mark, recent);
                    }
                    for mutation in mutations {
                        let is_there = !matches!(mutation, Mutation::Delete { .. });
                        self.guesses().learn(
                            decl,
                            partition,
                            mutation.row_key(),
                            is_there.then_some(()),
                        );
                    }
                    return Ok(outcome::committed(mutations, |_| mark.clone()));
                }
                Applied::No(found) => {
                    // Of an upsert that has a condition too, which was a guess.
                    for mutation in mutations {
                        let key = mutation.row_key();
                        self.guesses().learn(
                            decl,
                            partition,
                            key,
                            found.contains_key(key).then_some(()),
                        );
                    }
                    if let Some(at) = conflict(mutations, &found) {
                        return Ok(CommitOutcome::Conflict(at));
                    }
                    if Instant::now() >= deadline {
                        let why = "others make and delete the same rows all the time";
                        return Err(Failure::Nothing(Fault::unavailable(why)));
                    }
                }
            }
        }
    }
}
