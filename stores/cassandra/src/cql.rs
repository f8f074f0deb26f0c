//! The statements for one table. Names are in lower case and quoted, so that an operator may write
//! them in any case.

use emmer_store::{ColumnType, TableDecl};

/// The column of a row's etag.
pub(crate) const ETAG: &str = "etag";
/// The table of the tables' shapes.
pub(crate) const META: &str = "emmer_meta";
/// Columns of a partition: the mark of its last commit; of each writer's last commit; those that
/// must no longer happen.
const LAST: &str = "_last_commit";
const COMMITS: &str = "_commits";
const REFUSED: &str = "_refused";
/// The last commits are named together with the marks of the writers, under a name that no writer
/// has.
const RECENT: &str = "recent";
/// Time for which a writer's last commit is remembered, in seconds: longer than its outcome is
/// asked for.
const COMMITS_TTL: u32 = 3_600;
/// Time for which a commit is refused, in seconds: longer than a request can be on its way.
const REFUSED_TTL: u32 = 86_400;

/// Condition of a statement for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum If {
    /// None: the row may exist or not.
    Any,
    /// It is not there.
    Missing,
    /// The row exists.
    There,
    /// The row exists, with this etag.
    Etag,
}

impl If {
    fn text(self) -> String {
        match self {
            Self::Any => String::new(),
            Self::Missing => format!(" IF {ETAG} = null"),
            Self::There => format!(" IF {ETAG} != null"),
            Self::Etag => format!(" IF {ETAG} = ?"),
        }
    }
}

/// A name as the server has it.
pub(crate) fn name(name: &str) -> String {
    format!("\"{}\"", name.to_ascii_lowercase())
}

/// Writes the statements for a table in a keyspace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cql<'a> {
    pub(crate) keyspace: &'a str,
    pub(crate) decl: &'static TableDecl,
}

impl Cql<'_> {
    fn table(&self) -> String {
        format!("{}.{}", self.keyspace, name(self.decl.name))
    }

    fn of_partition(&self) -> String {
        format!("WHERE {} = ?", name(self.decl.partition_key))
    }

    fn of_row(&self) -> String {
        format!("{} AND {} = ?", self.of_partition(), name(self.decl.row_key))
    }

    /// Makes the table.
    pub(crate) fn create(&self) -> String {
        let (partition, row) = (name(self.decl.partition_key), name(self.decl.row_key));
        let column = |column: &emmer_store::Column| {
            let column_type = match column.column_type {
                ColumnType::Text => "text",
                ColumnType::Int => "bigint",
                ColumnType::Time => "timestamp",
                ColumnType::Bytes => "blob",
                ColumnType::List => "frozen<list<text>>",
            };
            format!("  {} {column_type},\n", name(column.name))
        };
        let columns: String = self.decl.columns.iter().map(column).collect();
        format!(
            "CREATE TABLE IF NOT EXISTS {} (\n  {partition} text,\n  {row} text,\n  {ETAG} \
             text,\n{columns}  \
             \"{LAST}\" text static,\n  \"{COMMITS}\" map<text, text> static,\n  \"{REFUSED}\" \
             map<text, text> static,\n  PRIMARY KEY ({partition}, {row})\n)",
            self.table()
        )
    }

    /// Partition, key, etag and all declared columns of rows; what follows says of which.
    fn select_where(&self, rest: &str) -> String {
        let own = [self.decl.partition_key, self.decl.row_key, ETAG];
        let all = own.into_iter().chain(self.decl.columns.iter().map(|column| column.name));
        let all: Vec<String> = all.map(name).collect();
        format!("SELECT {} FROM {} {rest}", all.join(", "), self.table())
    }

    /// All rows of a partition.
    pub(crate) fn select(&self) -> String {
        self.select_where(&self.of_partition())
    }

    /// One row.
    pub(crate) fn select_row(&self) -> String {
        self.select_where(&self.of_row())
    }

    /// Rows of a partition whose key compares so.
    pub(crate) fn select_range(&self, operator: &str) -> String {
        self.select_where(&format!(
            "{} AND {} {operator} ?",
            self.of_partition(),
            name(self.decl.row_key)
        ))
    }

    /// Rows of all partitions whose column lies between two numbers. The server reads the whole
    /// table.
    pub(crate) fn scan(&self, column: &str) -> String {
        let column = name(column);
        self.select_where(&format!("WHERE {column} >= ? AND {column} <= ? ALLOW FILTERING"))
    }

    /// The mark of a partition's last commit.
    pub(crate) fn last(&self) -> String {
        format!("SELECT \"{LAST}\" FROM {} {} LIMIT 1", self.table(), self.of_partition())
    }

    /// The mark of a partition's last commit, and what the last ones wrote.
    fn version(&self) -> String {
        format!("\"{LAST}\", \"{COMMITS}\"['{RECENT}']")
    }

    /// Some rows of a partition, and behind their columns the mark of its last commit and the keys
    /// that the last commits wrote. Parameters: partition, keys.
    pub(crate) fn select_some(&self) -> String {
        let rows = format!("{} AND {} IN ?", self.of_partition(), name(self.decl.row_key));
        let select = self.select_where(&rows);
        let (columns, rest) = select.split_once(" FROM ").unwrap_or((&select, ""));
        format!("{columns}, {} FROM {rest}", self.version())
    }

    /// Notes what the last commits wrote: text, partition.
    pub(crate) fn note_recent(&self) -> String {
        let table = self.table();
        format!("UPDATE {table} SET \"{COMMITS}\"['{RECENT}'] = ? {}", self.of_partition())
    }

    /// Notes a commit's mark as the last one of the partition, unless it was refused. Parameters:
    /// mark, partition, mark. Where no reader asks for the last mark, it expires: a grain's
    /// partition whose states are cleared must not stay for good.
    pub(crate) fn begin(&self) -> String {
        let ttl =
            if self.decl.one_moment { String::new() } else { format!(" USING TTL {COMMITS_TTL}") };
        format!(
            "UPDATE {}{ttl} SET \"{LAST}\" = ? {} IF \"{REFUSED}\"[?] = null",
            self.table(),
            self.of_partition()
        )
    }

    /// Notes a commit's mark as its writer's last one: writer, mark, partition.
    pub(crate) fn remember(&self) -> String {
        let table = self.table();
        format!(
            "UPDATE {table} USING TTL {COMMITS_TTL} SET \"{COMMITS}\"[?] = ? {}",
            self.of_partition()
        )
    }

    /// Refuses a commit for a day, unless it happened: mark, reason, partition, writer, mark.
    pub(crate) fn refuse(&self) -> String {
        let table = self.table();
        format!(
            "UPDATE {table} USING TTL {REFUSED_TTL} SET \"{REFUSED}\"[?] = ? {} \
             IF \"{COMMITS}\"[?] != ?",
            self.of_partition()
        )
    }

    /// Writes a row: etag, the columns (all, or those that are not volatile), partition, key, and
    /// the etag of the condition.
    pub(crate) fn write(&self, with_volatile: bool, condition: If) -> String {
        let columns = self.decl.columns.iter().filter(|column| with_volatile || !column.volatile);
        let set: Vec<String> = std::iter::once(ETAG)
            .chain(columns.map(|column| column.name))
            .map(|n| format!("{} = ?", name(n)))
            .collect();
        format!(
            "UPDATE {} SET {} {}{}",
            self.table(),
            set.join(", "),
            self.of_row(),
            condition.text()
        )
    }

    /// Writes the etag of a row alone: etag, partition, key, and the etag of the condition.
    pub(crate) fn check(&self) -> String {
        format!("UPDATE {} SET {ETAG} = ? {}{}", self.table(), self.of_row(), If::Etag.text())
    }

    /// Deletes a row: partition, key, and the etag of the condition.
    pub(crate) fn delete(&self, condition: If) -> String {
        format!("DELETE FROM {} {}{}", self.table(), self.of_row(), condition.text())
    }

    /// Deletes a row as it was read: partition, key, etag, and the column's value.
    pub(crate) fn delete_as_read(&self, column: &str) -> String {
        format!("{} AND {} = ?", self.delete(If::Etag), name(column))
    }

    /// Sets a column of a row that is there: value, partition, key.
    pub(crate) fn touch(&self, column: &str) -> String {
        format!(
            "UPDATE {} SET {} = ? {}{}",
            self.table(),
            name(column),
            self.of_row(),
            If::There.text()
        )
    }
}
