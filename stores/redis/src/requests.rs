//! Mutations as arguments of the commit script.

use emmer_store::keys::escape;
use emmer_store::{Mutation, Row, TableDecl, Value};
use emmer_store_keyvalue::{document, layout};

use crate::keys;
use crate::rows::ETAG;

/// The arguments of [`COMMIT`](crate::scripts::COMMIT).
pub(crate) struct Arguments {
    texts: Vec<Vec<u8>>,
}

impl Arguments {
    /// The mutations of a commit whose rows get `etag`.
    pub(crate) fn of_commit(
        decl: &TableDecl,
        partition: &str,
        mutations: &[Mutation],
        etag: &str,
    ) -> Self {
        let mut arguments = Self::new(decl, mutations.len());
        for mutation in mutations {
            let document = |row| document::encode(decl, partition, row, Some((ETAG, etag)));
            match mutation {
                Mutation::Insert { row } => {
                    arguments.write(decl, "I", "", row, document(row), true);
                }
                Mutation::Upsert { row } => {
                    arguments.write(decl, "U", "", row, document(row), true);
                }
                Mutation::Replace { row, etag } => {
                    arguments.write(decl, "R", etag, row, document(row), false);
                }
                Mutation::Delete { row_key, etag: Some(etag) } => {
                    arguments.delete(decl, "D", row_key, etag);
                }
                Mutation::Delete { row_key, etag: None } => {
                    arguments.delete(decl, "X", row_key, "");
                }
                Mutation::Check { row_key, etag } => arguments.delete(decl, "C", row_key, etag),
            }
        }
        arguments
    }

    /// Rows to add where none exist.
    pub(crate) fn of_append(decl: &TableDecl, partition: &str, rows: &[Row], etag: &str) -> Self {
        let mut arguments = Self::new(decl, rows.len());
        for row in rows {
            let document = document::encode(decl, partition, row, Some((ETAG, etag)));
            arguments.write(decl, "A", "", row, document, true);
        }
        arguments
    }

    fn new(decl: &TableDecl, count: usize) -> Self {
        let kinds = keys::indexed(decl).map(|column| if column.volatile { 'v' } else { 's' });
        Self { texts: vec![kinds.collect::<String>().into_bytes(), count.to_string().into_bytes()] }
    }

    fn push(&mut self, text: impl Into<Vec<u8>>) {
        self.texts.push(text.into());
    }

    fn write(
        &mut self,
        decl: &TableDecl,
        kind: &str,
        etag: &str,
        row: &Row,
        document: String,
        first: bool,
    ) {
        let field = escape(row.key());
        let volatile: Vec<_> =
            if first { document::volatile(decl, row).collect() } else { Vec::new() };
        self.push(kind);
        self.push(field.as_str());
        self.push(etag);
        self.push(document);
        self.push(volatile.len().to_string());
        for (name, value) in volatile {
            self.push(layout::column(&field, name));
            self.push(value);
        }
        for column in keys::indexed(decl) {
            match row.get(column.name) {
                Some(Value::Int(n)) => self.push(score(*n)),
                _ => self.push(""),
            }
        }
    }

    /// A delete, or a check, which has the same arguments.
    fn delete(&mut self, decl: &TableDecl, kind: &str, row_key: &str, etag: &str) {
        let field = escape(row_key);
        let volatile: Vec<_> = document::volatile_names(decl).collect();
        self.push(kind);
        self.push(field.as_str());
        self.push(etag);
        self.push("");
        self.push(volatile.len().to_string());
        for name in volatile {
            self.push(layout::column(&field, name));
            self.push("");
        }
        for _ in keys::indexed(decl) {
            self.push("");
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.texts.iter().map(Vec::len).sum()
    }

    pub(crate) fn as_slices(&self) -> Vec<&[u8]> {
        self.texts.iter().map(Vec::as_slice).collect()
    }
}

/// A number of the index. Doubles: the order of integers is kept, though beyond 2^53 neighbours
/// share one.
#[expect(clippy::cast_precision_loss, reason = "a scan looks at the row itself")]
pub(crate) fn score(n: i64) -> String {
    format!("{:.0}", n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_keep_the_order() {
        let numbers = [i64::MIN, i64::MIN + 1, -5, 0, 3, (1 << 53) + 1, i64::MAX - 1, i64::MAX];
        let scores: Vec<f64> = numbers.iter().map(|n| score(*n).parse().unwrap()).collect();
        assert!(scores.windows(2).all(|pair| pair[0] <= pair[1]), "{scores:?}");
        assert_eq!((score(-5), score(0)), ("-5".to_owned(), "0".to_owned()));
    }
}
