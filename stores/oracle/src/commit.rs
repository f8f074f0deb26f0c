//! A commit up to its end: locks, conditions, writes.
//!
//! Existing rows are locked before anything is judged; a missing row cannot be locked on this
//! server. If another writer adds it in between, adding it here is refused as a duplicate,
//! everything is rolled back, and the store begins again.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_store::silos::VERSION_ROW;
use emmer_store::{Mutation, Row, TableDecl};
use emmer_store_relational::{Fault, etags, order};

use crate::fault::{DUPLICATE, Trouble};
use crate::session::Session;
use crate::sql::TableSql;
use crate::values::{Bound, Kind};

/// Etags by row key, of rows that are there.
type Found = BTreeMap<String, i64>;

/// A commit, or rows to append.
pub(crate) struct Writer {
    pub(crate) sql: Arc<TableSql>,
    pub(crate) decl: &'static TableDecl,
    pub(crate) partition: String,
    pub(crate) etag: i64,
}

/// A statement that changes one row.
#[derive(Debug, PartialEq)]
struct Write {
    text: String,
    values: Vec<Bound>,
}

impl Writer {
    /// Does everything except the `COMMIT`. None when only that is missing; otherwise nothing was
    /// done, and this is the position of the first mutation whose condition does not hold.
    pub(crate) fn prepare(
        &self,
        session: &mut Session,
        mutations: &[Mutation],
    ) -> Result<Option<usize>, Trouble> {
        session.transact(|session| {
            let mut found = Found::new();
            for keys in locks(mutations) {
                self.lock(session, &keys, &mut found)?;
            }
            if let Some(at) = verdict(mutations, &found) {
                session.rollback()?;
                return Ok(Some(at));
            }
            for write in self.writes(mutations, &found)? {
                if session.execute(&write.text, &write.values)? != 1 {
                    return Err(Fault::corrupt("a locked row is gone").into());
                }
            }
            Ok(None)
        })
    }

    /// Adds rows that are not there; everything but the `COMMIT`. In the order of locks, so that
    /// two appends of the same rows wait for each other instead of each for the other.
    pub(crate) fn append(&self, session: &mut Session, rows: &[Row]) -> Result<(), Trouble> {
        session.transact(|session| {
            for row in order::rows(rows) {
                let write = self.insert(row)?;
                match session.execute(&write.text, &write.values) {
                    // The statement is undone, the transaction continues.
                    Err(trouble) if trouble.code == Some(DUPLICATE) => {}
                    ended => drop(ended?),
                }
            }
            Ok(())
        })
    }

    fn lock(&self, session: &mut Session, keys: &[&str], found: &mut Found) -> Result<(), Trouble> {
        // Texts of a few lengths only, so that the server knows them again: the last key is named
        // more than once.
        let count = keys.len().next_power_of_two();
        let last = keys.last().copied().unwrap_or_default();
        let padded = keys.iter().copied().chain(std::iter::repeat(last)).take(count);
        let values: Vec<Bound> =
            std::iter::once(self.partition.as_str()).chain(padded).map(Bound::key).collect();
        for row in session.query(&self.sql.lock(count), &values, &[Kind::Text, Kind::Int])? {
            found.insert(row.word(0)?.to_owned(), row.number(1)?);
        }
        Ok(())
    }

    /// The statements of a commit whose conditions hold.
    fn writes(&self, mutations: &[Mutation], found: &Found) -> Result<Vec<Write>, Fault> {
        let written =
            order::mutations(mutations).into_iter().filter_map(|(_, mutation)| match mutation {
                Mutation::Insert { row } => Some(self.insert(row)),
                Mutation::Replace { row, .. } => Some(self.update(row)),
                Mutation::Upsert { row } if found.contains_key(row.key()) => Some(self.update(row)),
                Mutation::Upsert { row } => Some(self.insert(row)),
                Mutation::Delete { row_key, .. } => Some(Ok(self.delete(row_key))),
                Mutation::Check { .. } => None,
            });
        written.collect()
    }

    fn insert(&self, row: &Row) -> Result<Write, Fault> {
        let mut values =
            vec![Bound::key(&self.partition), Bound::key(row.key()), Bound::int(self.etag)];
        for column in self.decl.columns {
            values.push(Bound::column(column.column_type, row.get(column.name))?);
        }
        Ok(Write { text: self.sql.insert.clone(), values })
    }

    fn update(&self, row: &Row) -> Result<Write, Fault> {
        let mut values = vec![Bound::int(self.etag)];
        for column in self.decl.columns.iter().filter(|column| !column.volatile) {
            values.push(Bound::column(column.column_type, row.get(column.name))?);
        }
        values.extend([Bound::key(&self.partition), Bound::key(row.key())]);
        Ok(Write { text: self.sql.update.clone(), values })
    }

    fn delete(&self, row_key: &str) -> Write {
        Write {
            text: self.sql.delete.clone(),
            values: vec![Bound::key(&self.partition), Bound::key(row_key)],
        }
    }
}

/// The keys to lock, in groups that are locked one after the other: the version row, which a
/// statement for several rows would not lock first; then all others.
fn locks(mutations: &[Mutation]) -> Vec<Vec<&str>> {
    let keys = order::mutations(mutations).into_iter().map(|(_, mutation)| mutation.row_key());
    let groups: (Vec<&str>, Vec<&str>) = keys.partition(|key| *key == VERSION_ROW);
    [groups.0, groups.1].into_iter().filter(|keys| !keys.is_empty()).collect()
}

/// The position of the first mutation whose condition does not hold.
fn verdict(mutations: &[Mutation], found: &Found) -> Option<usize> {
    mutations.iter().position(|mutation| {
        let now = found.get(mutation.row_key());
        !mutation.holds_where(now, |now, etag| etags::number(etag) == Some(*now))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use emmer_store::{Column, ColumnType, Value};

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[Column::new("A", ColumnType::Int), Column::new("B", ColumnType::Int).volatile()],
        schema_version: 1,
        one_moment: true,
    };

    fn row(key: &str) -> Row {
        Row::new(key).with("A", Value::Int(1)).with("B", Value::Int(2))
    }

    fn some() -> [Mutation; 4] {
        [
            Mutation::Replace { row: row(VERSION_ROW), etag: "5".into() },
            Mutation::Upsert { row: row("c") },
            Mutation::Delete { row_key: "a".to_owned(), etag: None },
            Mutation::Insert { row: row("b") },
        ]
    }

    #[test]
    fn the_version_row_is_locked_first_and_the_others_by_key() {
        let mut all = some();
        for _ in 0..all.len() {
            all.rotate_left(1);
            assert_eq!(locks(&all), [vec![VERSION_ROW], vec!["a", "b", "c"]]);
        }
        assert_eq!(locks(&some()[..1]), [vec![VERSION_ROW]]);
        assert_eq!(locks(&some()[1..]), [vec!["a", "b", "c"]]);
    }

    #[test]
    fn conditions_are_judged_on_what_is_there() {
        let found = |pairs: &[(&str, i64)]| {
            let there: Found = pairs.iter().map(|(key, etag)| ((*key).to_owned(), *etag)).collect();
            verdict(&some(), &there)
        };
        assert_eq!(found(&[(VERSION_ROW, 5), ("a", 1)]), None);
        assert_eq!(found(&[(VERSION_ROW, 5), ("a", 1), ("c", 1)]), None);
        assert_eq!(found(&[(VERSION_ROW, 6), ("b", 1)]), Some(0));
        assert_eq!(found(&[("a", 1)]), Some(0));
        assert_eq!(found(&[(VERSION_ROW, 5)]), Some(2));
        assert_eq!(found(&[(VERSION_ROW, 5), ("a", 1), ("b", 1)]), Some(3));
        let check = [Mutation::Check { row_key: "v".to_owned(), etag: "05".into() }];
        assert_eq!(verdict(&check, &Found::from([("v".to_owned(), 5)])), Some(0));
    }

    #[test]
    fn writes_go_by_key_behind_the_version_row_and_spare_volatile_columns() {
        let sql = Arc::new(TableSql::new(&DECL, Duration::from_secs(4)));
        let writer = Writer { sql: sql.clone(), decl: &DECL, partition: "p".to_owned(), etag: 9 };
        let writes = writer.writes(&some(), &Found::from([("c".to_owned(), 1)])).unwrap();
        let texts: Vec<&str> = writes.iter().map(|write| write.text.as_str()).collect();
        assert_eq!(texts, [&sql.update, &sql.delete, &sql.insert, &sql.update]);
        let (int, key) = (Bound::int, Bound::key);
        assert_eq!(writes[0].values, [int(9), int(1), key("p"), key(VERSION_ROW)]);
        assert_eq!(writes[1].values, [key("p"), key("a")]);
        assert_eq!(writes[2].values, [key("p"), key("b"), int(9), int(1), int(2)]);
        let writes = writer.writes(&some(), &Found::new()).unwrap();
        assert_eq!(writes[3].text, sql.insert);
    }

    #[test]
    fn every_statement_gets_as_many_values_as_it_has_parameters() {
        let sql = Arc::new(TableSql::new(&DECL, Duration::from_secs(4)));
        let writer = Writer { sql, decl: &DECL, partition: "p".to_owned(), etag: 9 };
        for write in writer.writes(&some(), &Found::new()).unwrap() {
            assert_eq!(write.text.matches(':').count(), write.values.len(), "{}", write.text);
        }
    }
}
