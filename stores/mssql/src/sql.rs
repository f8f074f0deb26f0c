//! The statements of one table, and a commit as one batch.

use emmer_store::silos::VERSION_ROW;
use emmer_store::{Mutation, Row, TableDecl};
use emmer_store_relational::{Fault, Names, Statements, etags, names, order};

use crate::dialect::TransactSql;
use crate::values::{bytes_literal, literal};

/// Beginning and end of every batch that writes: any error rolls all of it back. A wait for a lock
/// that takes too long (1222) ends its statement only, and the batch would continue; here it does
/// not.
const BEGIN: &str = "SET XACT_ABORT ON; SET NOCOUNT ON;\nBEGIN TRY\nBEGIN TRANSACTION;\n";
const END: &str =
    "END TRY\nBEGIN CATCH\nIF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;\nTHROW;\nEND CATCH;";

/// Answers with how many rows the statement before it changed.
const COUNT: &str = "SELECT CAST(@@ROWCOUNT AS bigint)";

/// The statements of one table.
#[derive(Debug)]
pub(crate) struct TableSql {
    names: Names,
    shared: Statements,
    pub(crate) read_partition: String,
    pub(crate) read_row: String,
}

impl TableSql {
    pub(crate) fn new(decl: &TableDecl) -> Self {
        let shared = Statements::new(&TransactSql, decl);
        let names = Names::new(&TransactSql, decl);
        Self {
            read_partition: version_first(&names, &shared.read_partition),
            read_row: held(&names, &shared.read_row),
            shared,
            names,
        }
    }

    pub(crate) fn read_some(&self, decl: &TableDecl, before: bool) -> String {
        held(&self.names, &self.shared.read_some(&TransactSql, decl, before))
    }

    pub(crate) fn scan(&self, column: &str, wraps: bool) -> String {
        held(&self.names, &self.shared.scan(&TransactSql, column, wraps))
    }

    /// Deletes at most parameter 3 rows of partition 1 whose time `column` is before parameter 2.
    pub(crate) fn delete_older_than(&self, column: &str) -> String {
        let Names { table, partition, .. } = &self.names;
        let column = names::quoted(&TransactSql, column);
        format!(
            "DELETE TOP (@P3) FROM {table} WHERE {partition} = @P1 AND {column} < CAST(@P2 AS \
             datetime2(3)); {COUNT}"
        )
    }

    /// Sets a time or number `column` of the row with partition 1 and row key 2 to a literal.
    pub(crate) fn touch(&self, column: &str, value: &str) -> String {
        let Names { table, partition, row, .. } = &self.names;
        let column = names::quoted(&TransactSql, column);
        format!(
            "UPDATE {table} SET {column} = {value} WHERE {partition} = @P1 AND {row} = @P2; {COUNT}"
        )
    }
}

/// Rows that a statement reads stay locked until it is done: otherwise a commit in between could be
/// seen in part, even within one row, whose large values are stored elsewhere.
fn held(names: &Names, select: &str) -> String {
    let from = format!(" FROM {}", names.table);
    select.replacen(&from, &format!("{from} WITH (HOLDLOCK)"), 1)
}

/// Reads a partition in the order in which a commit locks it: the version row first, then by key.
/// In the order of the keys alone it would hold the silos' rows and wait for the version row, while
/// a commit waits for theirs.
fn version_first(names: &Names, select: &str) -> String {
    let Names { table, partition, row, etag, .. } = names;
    let mut version = String::new();
    bytes_literal(&mut version, VERSION_ROW.as_bytes());
    format!(
        "SET XACT_ABORT ON; SET NOCOUNT ON; BEGIN TRANSACTION; DECLARE @first bigint; SELECT \
         @first = {etag} FROM {table} WITH (HOLDLOCK) WHERE {partition} = @P1 AND {row} = \
         {version}; {}; COMMIT TRANSACTION",
        held(names, select)
    )
}

/// State that the parts of a batch share.
pub(crate) struct Batch<'a> {
    pub(crate) sql: &'a TableSql,
    pub(crate) decl: &'a TableDecl,
    pub(crate) partition: &'a str,
    pub(crate) etag: i64,
}

impl Batch<'_> {
    /// The whole commit. It answers with the position of the first condition that does not hold, or
    /// -1.
    pub(crate) fn commit(&self, mutations: &[Mutation]) -> Result<String, Fault> {
        // Two commits that meet on several rows then wait for each other in one order.
        let order = order::mutations(mutations);
        let Names { table, etag, .. } = &self.sql.names;
        let mut out = format!("{BEGIN}DECLARE @verdict int = -1, @found bigint;\n");
        for (at, mutation) in &order {
            // A row that is not there is locked too (its place in the index is), and leaves the
            // variable as it is.
            out += &format!(
                "SET @found = NULL; SELECT @found = {etag} FROM {table} WITH (UPDLOCK, HOLDLOCK)"
            );
            self.at(&mut out, mutation.row_key());
            out.push_str(";\n");
            if let Some(fails) = fails(mutation) {
                out += &format!(
                    "IF {fails} AND (@verdict < 0 OR @verdict > {at}) SET @verdict = {at};\n"
                );
            }
        }
        out.push_str("IF @verdict >= 0 ROLLBACK TRANSACTION;\nELSE BEGIN\n");
        for (_, mutation) in &order {
            self.write(&mut out, mutation)?;
        }
        out.push_str("COMMIT TRANSACTION;\nEND;\nSELECT @verdict;\n");
        out.push_str(END);
        Ok(out)
    }

    /// Adds rows that are not there, in the order of locks.
    pub(crate) fn append(&self, rows: &[Row]) -> Result<String, Fault> {
        let mut out = BEGIN.to_owned();
        for row in order::rows(rows) {
            out += &format!(
                "IF NOT EXISTS (SELECT 1 FROM {} WITH (UPDLOCK, HOLDLOCK)",
                self.sql.names.table
            );
            self.at(&mut out, row.key());
            out.push_str(")\n");
            self.insert(&mut out, row)?;
        }
        out.push_str("COMMIT TRANSACTION;\n");
        out.push_str(END);
        Ok(out)
    }

    fn write(&self, out: &mut String, mutation: &Mutation) -> Result<(), Fault> {
        match mutation {
            Mutation::Insert { row } => self.insert(out, row)?,
            Mutation::Replace { row, .. } => self.update(out, row)?,
            Mutation::Upsert { row } => {
                self.update(out, row)?;
                out.push_str("IF @@ROWCOUNT = 0\n");
                self.insert(out, row)?;
            }
            Mutation::Delete { row_key, .. } => {
                *out += &format!("DELETE FROM {}", self.sql.names.table);
                self.at(out, row_key);
                out.push_str(";\n");
            }
            Mutation::Check { .. } => {}
        }
        Ok(())
    }

    fn insert(&self, out: &mut String, row: &Row) -> Result<(), Fault> {
        let Names { table, partition, row: row_column, etag, columns } = &self.sql.names;
        let listed: String = columns.iter().map(|name| format!(", {name}")).collect();
        *out +=
            &format!("INSERT INTO {table} ({partition}, {row_column}, {etag}{listed}) VALUES (");
        bytes_literal(out, self.partition.as_bytes());
        out.push_str(", ");
        bytes_literal(out, row.key().as_bytes());
        *out += &format!(", {}", self.etag);
        for column in self.decl.columns {
            out.push_str(", ");
            literal(out, row.get(column.name))?;
        }
        out.push_str(");\n");
        Ok(())
    }

    fn update(&self, out: &mut String, row: &Row) -> Result<(), Fault> {
        let Names { table, etag, columns, .. } = &self.sql.names;
        *out += &format!("UPDATE {table} SET {etag} = {}", self.etag);
        for (name, column) in columns.iter().zip(self.decl.columns).filter(|(_, c)| !c.volatile) {
            *out += &format!(", {name} = ");
            literal(out, row.get(column.name))?;
        }
        self.at(out, row.key());
        out.push_str(";\n");
        Ok(())
    }

    /// ` WHERE` the row's key.
    fn at(&self, out: &mut String, row_key: &str) {
        let Names { partition, row, .. } = &self.sql.names;
        *out += &format!(" WHERE {partition} = ");
        bytes_literal(out, self.partition.as_bytes());
        *out += &format!(" AND {row} = ");
        bytes_literal(out, row_key.as_bytes());
    }
}

/// The condition under which a mutation's own condition does not hold.
fn fails(mutation: &Mutation) -> Option<String> {
    Some(match mutation {
        Mutation::Upsert { .. } => return None,
        Mutation::Insert { .. } => "@found IS NOT NULL".to_owned(),
        Mutation::Delete { etag: None, .. } => "@found IS NULL".to_owned(),
        Mutation::Replace { etag, .. }
        | Mutation::Delete { etag: Some(etag), .. }
        | Mutation::Check { etag, .. } => match etags::number(etag) {
            Some(number) => format!("(@found IS NULL OR @found <> {number})"),
            None => "1 = 1".to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use emmer_store::silos::{SILO_INSTANCES, VERSION_ROW};
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

    #[test]
    fn a_commit_locks_judges_and_writes() {
        let sql = TableSql::new(&DECL);
        let batch = Batch { sql: &sql, decl: &DECL, partition: "p", etag: 9 };
        let row = |key: &str| Row::new(key).with("A", Value::Int(1));
        let text = batch
            .commit(&[
                Mutation::Upsert { row: row("b") },
                Mutation::Replace { row: row(VERSION_ROW), etag: "5".into() },
                Mutation::Delete { row_key: "a".to_owned(), etag: None },
            ])
            .unwrap();
        // Locks: the version row, then by key. Conflicts: as the caller counts.
        let locks: Vec<&str> =
            text.lines().filter(|line| line.contains("UPDLOCK, HOLDLOCK")).collect();
        assert!(
            locks[0].contains("[R] = 0x56657273696f6e526f77")
                && locks[1].contains("0x61")
                && locks[2].contains("0x62"),
            "{text}"
        );
        assert!(text.contains(
            "IF (@found IS NULL OR @found <> 5) AND (@verdict < 0 OR @verdict > 1) SET @verdict = \
             1;"
        ));
        assert!(
            text.contains("IF @found IS NULL AND (@verdict < 0 OR @verdict > 2) SET @verdict = 2;"),
            "{text}"
        );
        let update = "UPDATE [t] SET [etag] = 9, [A] = CAST(1 AS bigint) WHERE [P] = 0x70 AND [R] \
            = 0x62;\nIF @@ROWCOUNT = 0";
        assert!(text.contains(update), "{text}");
        assert!(
            text.ends_with(&format!("COMMIT TRANSACTION;\nEND;\nSELECT @verdict;\n{END}")),
            "{text}"
        );
        assert!(text.starts_with(BEGIN), "{text}");
    }

    #[test]
    fn a_read_of_a_partition_holds_its_rows_and_the_version_row_first() {
        let sql = TableSql::new(&SILO_INSTANCES);
        let held = "FROM [silo_instances] WITH (HOLDLOCK) WHERE [PartitionKey] = @P1";
        // The bytes of `VersionRow`.
        let first = format!("{held} AND [RowKey] = 0x56657273696f6e526f77;");
        let all = format!("{held} ORDER BY [RowKey]; COMMIT TRANSACTION");
        let (read, at) = (&sql.read_partition, |text: &str| sql.read_partition.find(text));
        assert!(read.starts_with("SET XACT_ABORT ON;") && read.ends_with(&all), "{read}");
        assert!(at("BEGIN TRANSACTION") < at(&first) && at(&first) < at(&all), "{read}");
    }
}
