//! A commit as one text: statements that travel together, each after the condition of all.
//!
//! The client may be gone while the server works on a text. The server runs one statement after the
//! other, the `COMMIT` too, and ends early only when a statement fails. So no write may depend on
//! how an earlier write ended: where its answer cannot be sent, `ROW_COUNT()` is -1 whatever was
//! written. The commit is decided before its first write, by reads that lock, in a variable of the
//! session that nothing sets afterwards. Every write obeys the same decision. If one fails, the
//! text ends before its `COMMIT`, and the end of the connection undoes all.

use emmer_store::{Etag, Mutation, Row, StoreErrorKind, TableDecl};
use emmer_store_relational::{Fault, Names, etags, order};

use crate::sql::TableSql;
use crate::values::{integer, literal, text_literal};

/// On what a write depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum If {
    /// On nothing.
    Always,
    /// On the only condition, which [`Commit::holds`] checked.
    Holds,
    /// On the verdict on many conditions.
    Verdict,
}

/// Way in which the end of a commit tells if it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judge {
    /// It did.
    Always,
    /// A statement found its row or did not. The others depend on that.
    Found {
        /// Its number, from 0.
        statement: usize,
        /// The position of its mutation.
        at: usize,
    },
    /// An insert, whose key was taken or free.
    Inserted,
    /// The text answers, before its `COMMIT`, with the position of the first condition that does
    /// not hold, or -1.
    Answered,
}

/// The texts of a commit. Each is sent after the answer to the one before. Most commits are one
/// text.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) texts: Vec<Vec<u8>>,
    /// Number of statements; the last one commits.
    pub(crate) statements: usize,
    pub(crate) judge: Judge,
}

/// State that all parts of a commit share.
pub(crate) struct Commit<'a> {
    pub(crate) sql: &'a TableSql,
    pub(crate) decl: &'a TableDecl,
    pub(crate) partition: &'a str,
    pub(crate) etag: i64,
    /// The most bytes the server takes at once.
    pub(crate) packet_max: usize,
}

/// A session's variables: the single condition's result; the verdict on many; and, numbered, the
/// etags that were found.
const HOLDS: &str = "@emmer_holds";
const VERDICT: &str = "@emmer_verdict";
const FOUND: &str = "@emmer_found";

/// Number of bytes that a text needs besides its statements.
const PACKET_SLACK: usize = 1_024;

type Statement = Vec<u8>;

impl Commit<'_> {
    pub(crate) fn script(&self, mutations: &[Mutation]) -> Result<Script, Fault> {
        if let [mutation] = mutations {
            let (judge, statement) = self.alone(mutation)?;
            return Ok(Script { texts: self.packed(vec![statement])?, statements: 1, judge });
        }
        // Two commits that meet on several rows then wait for each other in one order.
        let order = order::mutations(mutations);
        let is_free = |m: &Mutation| matches!(m, Mutation::Upsert { .. });
        let mut statements = vec![b"BEGIN".to_vec()];
        let judge = match order.as_slice() {
            all if all.iter().all(|(_, m)| is_free(m)) => {
                for (_, mutation) in all {
                    statements.push(self.write(mutation, If::Always)?);
                }
                Judge::Always
            }
            // A membership commit: one condition, that of the version row, which is locked first.
            [(at, first @ Mutation::Replace { row, etag }), others @ ..]
                if others.iter().all(|(_, m)| is_free(m)) =>
            {
                statements.push(self.holds(row.key(), etag));
                let judge = Judge::Found { statement: statements.len(), at: *at };
                statements.push(self.write(first, If::Holds)?);
                for (_, mutation) in others {
                    statements.push(self.write(mutation, If::Holds)?);
                }
                judge
            }
            all => {
                statements.extend(self.look(all));
                statements.push(verdict(mutations));
                for (_, mutation) in all {
                    if !matches!(mutation, Mutation::Check { .. }) {
                        statements.push(self.write(mutation, If::Verdict)?);
                    }
                }
                Judge::Answered
            }
        };
        if judge == Judge::Answered {
            statements.push(format!("SELECT {VERDICT}").into_bytes());
        }
        statements.push(b"COMMIT".to_vec());
        let count = statements.len();
        Ok(Script { texts: self.packed(statements)?, statements: count, judge })
    }

    /// A commit of one mutation: one statement, which is a transaction.
    fn alone(&self, mutation: &Mutation) -> Result<(Judge, Statement), Fault> {
        let Names { table, etag: etag_column, .. } = &self.sql.names;
        Ok(match mutation {
            Mutation::Insert { row } => (Judge::Inserted, self.insert(row, "VALUES (", ")")?),
            Mutation::Upsert { .. } => (Judge::Always, self.write(mutation, If::Always)?),
            Mutation::Replace { row, etag } => {
                let mut out = self.update(row)?;
                self.and_etag(&mut out, etag);
                (Judge::Found { statement: 0, at: 0 }, out)
            }
            Mutation::Delete { row_key, etag } => {
                let mut out = format!("DELETE FROM {table}").into_bytes();
                self.at(&mut out, row_key);
                if let Some(etag) = etag {
                    self.and_etag(&mut out, etag);
                }
                (Judge::Found { statement: 0, at: 0 }, out)
            }
            // Answered by a row as a verdict is.
            Mutation::Check { row_key, etag } => {
                let mut out =
                    format!("SELECT IF(EXISTS(SELECT {etag_column} FROM {table}").into_bytes();
                self.at(&mut out, row_key);
                self.and_etag(&mut out, etag);
                out.extend_from_slice(b"), -1, 0)");
                (Judge::Answered, out)
            }
        })
    }

    /// Locks a row if it has this etag, and keeps in a variable whether it has.
    fn holds(&self, row_key: &str, etag: &Etag) -> Statement {
        // Counted, so that there is an answer, and the variable is set, whatever is found.
        let mut out =
            format!("SELECT COUNT(*) INTO {HOLDS} FROM {}", self.sql.names.table).into_bytes();
        self.at(&mut out, row_key);
        self.and_etag(&mut out, etag);
        out.extend_from_slice(b" FOR UPDATE");
        out
    }

    /// Locks the row of each mutation and keeps its etag in a variable.
    fn look(&self, order: &[(usize, &Mutation)]) -> Vec<Statement> {
        let Names { table, etag, .. } = &self.sql.names;
        // A row that is not there leaves its variable as it is.
        let nulls: Vec<String> =
            order.iter().map(|(at, _)| format!("{FOUND}{at} = NULL")).collect();
        let reset = format!("SET {}", nulls.join(", ")).into_bytes();
        let locks = order.iter().map(|(at, mutation)| {
            let mut out = format!("SELECT {etag} INTO {FOUND}{at} FROM {table}").into_bytes();
            self.at(&mut out, mutation.row_key());
            out.extend_from_slice(b" FOR UPDATE");
            out
        });
        std::iter::once(reset).chain(locks).collect()
    }

    /// Statement of a mutation, whatever the row's etag; `on` is its condition.
    fn write(&self, mutation: &Mutation, on: If) -> Result<Statement, Fault> {
        let condition = match on {
            If::Always => "TRUE".to_owned(),
            If::Holds => format!("{HOLDS} > 0"),
            If::Verdict => format!("{VERDICT} < 0"),
        };
        let (before, after) = match on {
            If::Always => ("VALUES (", ")".to_owned()),
            If::Holds | If::Verdict => ("SELECT ", format!(" FROM DUAL WHERE {condition}")),
        };
        Ok(match mutation {
            Mutation::Insert { row } => self.insert(row, before, &after)?,
            Mutation::Upsert { row } => {
                let mut out = self.insert(row, before, &after)?;
                out.extend_from_slice(self.sql.or_update.as_bytes());
                out
            }
            Mutation::Replace { row, .. } => {
                let mut out = self.update(row)?;
                out.extend_from_slice(format!(" AND {condition}").as_bytes());
                out
            }
            Mutation::Delete { row_key, .. } => {
                let mut out = format!("DELETE FROM {}", self.sql.names.table).into_bytes();
                self.at(&mut out, row_key);
                out.extend_from_slice(format!(" AND {condition}").as_bytes());
                out
            }
            Mutation::Check { .. } => Vec::new(),
        })
    }

    fn insert(&self, row: &Row, before: &str, after: &str) -> Result<Statement, Fault> {
        let mut out = self.sql.insert.clone().into_bytes();
        out.extend_from_slice(before.as_bytes());
        self.values(&mut out, row)?;
        out.extend_from_slice(after.as_bytes());
        Ok(out)
    }

    /// Keys, etag and every column, with commas between.
    fn values(&self, out: &mut Vec<u8>, row: &Row) -> Result<(), Fault> {
        text_literal(out, self.partition.as_bytes());
        out.push(b',');
        text_literal(out, row.key().as_bytes());
        out.push(b',');
        integer(out, self.etag);
        for column in self.decl.columns {
            out.push(b',');
            literal(out, row.get(column.name))?;
        }
        Ok(())
    }

    /// `UPDATE t SET` every column but the volatile ones `WHERE` the row's key.
    fn update(&self, row: &Row) -> Result<Statement, Fault> {
        let Names { table, etag, columns, .. } = &self.sql.names;
        let mut out = format!("UPDATE {table} SET {etag} = ").into_bytes();
        integer(&mut out, self.etag);
        for (name, column) in columns.iter().zip(self.decl.columns).filter(|(_, c)| !c.volatile) {
            out.extend_from_slice(format!(", {name} = ").as_bytes());
            literal(&mut out, row.get(column.name))?;
        }
        self.at(&mut out, row.key());
        Ok(out)
    }

    /// ` WHERE` the row's key.
    fn at(&self, out: &mut Vec<u8>, row_key: &str) {
        let Names { partition, row, .. } = &self.sql.names;
        out.extend_from_slice(format!(" WHERE {partition} = ").as_bytes());
        text_literal(out, self.partition.as_bytes());
        out.extend_from_slice(format!(" AND {row} = ").as_bytes());
        text_literal(out, row_key.as_bytes());
    }

    /// A foreign etag belongs to no row.
    fn and_etag(&self, out: &mut Vec<u8>, etag: &Etag) {
        let condition = match etags::number(etag) {
            Some(number) => format!(" AND {} = {number}", self.sql.names.etag),
            None => " AND FALSE".to_owned(),
        };
        out.extend_from_slice(condition.as_bytes());
    }

    /// The rows of an append, in as many texts as needed.
    pub(crate) fn append(&self, rows: &[Row]) -> Result<Vec<Vec<u8>>, Fault> {
        let mut texts = Vec::new();
        let mut text = Vec::new();
        for row in order::rows(rows) {
            let mut values = vec![b'('];
            self.values(&mut values, row)?;
            values.push(b')');
            if !text.is_empty() && text.len() + values.len() + PACKET_SLACK > self.packet_max {
                texts.push(self.keeping(std::mem::take(&mut text)));
            }
            if text.is_empty() {
                text = format!("{}VALUES ", self.sql.insert).into_bytes();
            } else {
                text.push(b',');
            }
            text.extend_from_slice(&values);
        }
        texts.push(self.keeping(text));
        texts.iter().try_for_each(|text| self.fits(text))?;
        Ok(texts)
    }

    fn keeping(&self, mut text: Vec<u8>) -> Vec<u8> {
        text.extend_from_slice(self.sql.or_keep.as_bytes());
        text
    }

    fn fits(&self, text: &[u8]) -> Result<(), Fault> {
        if text.len() < self.packet_max {
            return Ok(());
        }
        let (bytes, most) = (text.len(), self.packet_max);
        let detail = format!(
            "a row of {bytes} bytes, the server takes {most} at once: raise max_allowed_packet"
        );
        Err(Fault::new(StoreErrorKind::Invalid, detail))
    }

    /// Statements as texts, as few as the server takes.
    fn packed(&self, statements: Vec<Statement>) -> Result<Vec<Vec<u8>>, Fault> {
        let mut texts: Vec<Vec<u8>> = Vec::new();
        for statement in statements {
            self.fits(&statement)?;
            match texts.last_mut() {
                Some(text) if text.len() + statement.len() + PACKET_SLACK < self.packet_max => {
                    text.extend_from_slice(b"; ");
                    text.extend_from_slice(&statement);
                }
                _ => texts.push(statement),
            }
        }
        Ok(texts)
    }
}

/// The position of the first condition that does not hold, or -1, from what [`Commit::look`] found.
fn verdict(mutations: &[Mutation]) -> Statement {
    let fails = |(at, mutation): (usize, &Mutation)| {
        let found = format!("{FOUND}{at}");
        let condition = match mutation {
            Mutation::Upsert { .. } => return None,
            Mutation::Insert { .. } => format!("{found} IS NOT NULL"),
            Mutation::Delete { etag: None, .. } => format!("{found} IS NULL"),
            Mutation::Replace { etag, .. }
            | Mutation::Delete { etag: Some(etag), .. }
            | Mutation::Check { etag, .. } => match etags::number(etag) {
                Some(number) => format!("NOT ({found} <=> {number})"),
                None => "TRUE".to_owned(),
            },
        };
        Some(format!(" WHEN {condition} THEN {at}"))
    };
    let cases: String = mutations.iter().enumerate().filter_map(fails).collect();
    format!("SET {VERDICT} = CASE{cases} ELSE -1 END").into_bytes()
}
