//! The knowledge of the rows of a commit, and the lessons of a commit.

use std::collections::BTreeMap;

use emmer_store::{Etag, Mutation, Row, TableDecl};

use super::seen::{Guesses, Seen, volatile};

/// The knowledge of the rows of a commit.
#[derive(Debug, Default)]
pub struct Known {
    /// The rows by their keys.
    pub rows: BTreeMap<String, Seen>,
    /// True if all rows of the commit were read since it was last sent: those that are not here are
    /// not there.
    pub fresh: bool,
}

impl Known {
    /// The beliefs about the rows of a commit.
    pub fn believed(
        guesses: &Guesses,
        table: &TableDecl,
        partition: &str,
        mutations: &[Mutation],
    ) -> Self {
        let about = |mutation: &Mutation| {
            let key = mutation.row_key();
            Some((key.to_owned(), guesses.about(table, partition, key)?))
        };
        Self { rows: mutations.iter().filter_map(about).collect(), fresh: false }
    }

    /// Returns true if a commit may be sent as it is: every row that a mutation must know is known,
    /// and is as the mutation wants it.
    pub fn is_enough(&self, table: &TableDecl, mutations: &[Mutation]) -> bool {
        mutations.iter().all(|mutation| {
            let seen = self.rows.get(mutation.row_key());
            match mutation {
                Mutation::Insert { .. } | Mutation::Delete { etag: None, .. } => true,
                Mutation::Upsert { .. } => {
                    seen.is_some() || !table.columns.iter().any(|column| column.volatile)
                }
                Mutation::Delete { etag: Some(etag), .. }
                | Mutation::Replace { etag, .. }
                | Mutation::Check { etag, .. } => seen.is_some_and(|seen| seen.etag == *etag),
            }
        })
    }

    /// Returns true if a row has this etag.
    pub fn has(&self, mark: &Etag) -> bool {
        self.rows.values().any(|seen| seen.etag == *mark)
    }

    /// The position of the first condition that does not hold.
    pub fn conflict(&self, mutations: &[Mutation]) -> Option<usize> {
        let now = |mutation: &Mutation| self.rows.get(mutation.row_key()).map(|seen| &seen.etag);
        mutations.iter().position(|mutation| !mutation.holds(now(mutation)))
    }

    /// Remembers the rows of a commit that found the rows like this. `mark` is the etag of the rows
    /// it wrote, `etags` the service's, None for deleted rows.
    pub fn learn_commit(
        &self,
        guesses: &Guesses,
        (table, partition): (&TableDecl, &str),
        mutations: &[Mutation],
        mark: &Etag,
        etags: &[Option<String>],
    ) {
        for (mutation, etag) in mutations.iter().zip(etags) {
            let before = self.rows.get(mutation.row_key());
            let of = |row: &Row| volatile(table, row.columns()).collect();
            let written = |volatile| {
                etag.clone().map(|service_etag| Seen { etag: mark.clone(), service_etag, volatile })
            };
            let seen = match mutation {
                Mutation::Insert { row } => written(of(row)),
                Mutation::Replace { row, .. } | Mutation::Upsert { row } => {
                    written(before.map_or_else(|| of(row), |seen| seen.volatile.clone()))
                }
                Mutation::Check { .. } => etag
                    .clone()
                    .zip(before)
                    .map(|(service_etag, seen)| Seen { service_etag, ..seen.clone() }),
                Mutation::Delete { .. } => None,
            };
            guesses.learn(table, partition, mutation.row_key(), seen);
        }
    }
}
