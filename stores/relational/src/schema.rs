//! Making tables, and comparing existing ones with their declarations.
//!
//! The table `emmer_meta` (columns `name`, `value`) records the layout number of this crate and the
//! schema version of each table. A table of an older version gets its missing parts. A database
//! with a newer number, or a table without a record, was made by another program and is refused.

use emmer_store::validate::{PARTITION_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX};
use emmer_store::{Column, Fault, StoreErrorKind, TableDecl};

use crate::dialect::{Dialect, SqlType};
use crate::names::{ETAG, Names, index, quoted};

/// Number of the layout of tables; a database with another number was made by another version.
pub const LAYOUT: i64 = 1;

/// The table that records [`LAYOUT`] and the schema versions. No declaration may begin like this.
pub const META: &str = "emmer_meta";

/// The name [`LAYOUT`] is recorded under.
pub const LAYOUT_NAME: &str = "layout";

/// The name the schema version of a table is recorded under.
pub fn version_name(decl: &TableDecl) -> String {
    format!("schema {}", decl.name)
}

/// The statement that makes [`META`].
pub fn create_meta(dialect: &dyn Dialect) -> String {
    let [meta, name, value] = [META, "name", "value"].map(|n| quoted(dialect, n));
    let key = dialect.meta_name_type();
    let number = dialect.declared_type(SqlType::Etag);
    let options = dialect.table_options(&[]);
    format!(
        "CREATE TABLE {meta} ({name} {key} NOT NULL, {value} {number} NOT NULL, PRIMARY KEY \
         ({name})){options}"
    )
}

/// The statement that records `value` under `name`, which must be one of this module's names.
pub fn record(dialect: &dyn Dialect, name: &str, value: i64) -> String {
    let [meta, name_column, value_column] = [META, "name", "value"].map(|n| quoted(dialect, n));
    // The names are ours and hold no quote.
    format!("INSERT INTO {meta} ({name_column}, {value_column}) VALUES ('{name}', {value})")
}

/// The statement that forgets the record of `name`: a dropped table is made and recorded again.
pub fn forget(dialect: &dyn Dialect, name: &str) -> String {
    let [meta, name_column] = [META, "name"].map(|n| quoted(dialect, n));
    format!("DELETE FROM {meta} WHERE {name_column} = '{name}'")
}

/// The query for every recorded name and value.
pub fn read_meta(dialect: &dyn Dialect) -> String {
    let [meta, name, value] = [META, "name", "value"].map(|n| quoted(dialect, n));
    format!("SELECT {name}, {value} FROM {meta}")
}

/// The statements that make a table and its indexes.
pub fn create(dialect: &dyn Dialect, decl: &TableDecl) -> Vec<String> {
    let Names { table, partition, row, .. } = Names::new(dialect, decl);
    let columns: String = columns(decl)
        .map(|(name, sql_type)| {
            let not_null = if matches!(sql_type, SqlType::Column(_)) { "" } else { " NOT NULL" };
            format!("{} {}{not_null}, ", quoted(dialect, name), dialect.declared_type(sql_type))
        })
        .collect();
    let options = dialect.table_options(decl.columns);
    let create =
        format!("CREATE TABLE {table} ({columns}PRIMARY KEY ({partition}, {row})){options}");
    let indexed = decl.columns.iter().filter(|c| c.indexed).map(|c| create_index(dialect, decl, c));
    std::iter::once(create).chain(indexed).collect()
}

fn create_index(dialect: &dyn Dialect, decl: &TableDecl, column: &Column) -> String {
    let index = dialect.quote(&index(dialect, decl, column.name));
    format!(
        "CREATE INDEX {index} ON {} ({})",
        quoted(dialect, decl.name),
        quoted(dialect, column.name)
    )
}

/// Everything [`create`] and its records need, as a script for an administrator who lets no
/// application make tables.
pub fn script(dialect: &dyn Dialect, tables: &[&TableDecl]) -> String {
    let mut statements = vec![create_meta(dialect), record(dialect, LAYOUT_NAME, LAYOUT)];
    for decl in tables {
        statements.extend(create(dialect, decl));
        statements.push(record(dialect, &version_name(decl), decl.schema_version.into()));
    }
    statements.iter().map(|statement| format!("{statement};\n")).collect()
}

/// Names (before folding) and types of every column, in the order they are made.
fn columns(decl: &TableDecl) -> impl Iterator<Item = (&'static str, SqlType)> {
    let keys = [
        (decl.partition_key, SqlType::Key(PARTITION_KEY_BYTES_MAX)),
        (decl.row_key, SqlType::Key(ROW_KEY_BYTES_MAX)),
        (ETAG, SqlType::Etag),
    ];
    keys.into_iter().chain(decl.columns.iter().map(|c| (c.name, SqlType::Column(c.column_type))))
}

/// The folded names and reported types of a table made by [`create`], in order.
pub fn shape(dialect: &dyn Dialect, decl: &TableDecl) -> Vec<(String, String)> {
    columns(decl)
        .map(|(name, sql_type)| (dialect.fold(name), dialect.reported_type(sql_type)))
        .collect()
}

/// Content of a database, as its catalogue tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Name and value of every row of [`META`]; none when there is no such table.
    pub meta: Option<Vec<(String, i64)>>,
    /// Each table asked for, in the same order.
    pub tables: Vec<FoundTable>,
}

/// A table as the catalogue tells; without columns when there is no such table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundTable {
    /// Folded names and reported types of the columns.
    pub columns: Vec<(String, String)>,
    /// Folded names of the indexes, at least of those made by [`create`].
    pub indexes: Vec<String>,
}

/// The statements that make missing parts of `tables`, or upgrade them to the declared schema
/// version: missing tables, columns and indexes are added, nothing is removed. None when nothing is
/// missing.
///
/// On a server whose `CREATE` cannot be rolled back, this order lets the next process complete the
/// work of one that died: a new table is recorded before it is made, a new version after its
/// columns exist.
///
/// # Errors
/// In words: the database or one of the tables has another shape, or a version newer than this
/// program knows.
pub fn missing(
    dialect: &dyn Dialect,
    tables: &[&'static TableDecl],
    found: &Found,
) -> Result<Vec<String>, String> {
    let recorded = |name: &str| {
        let meta = found.meta.as_deref().unwrap_or_default();
        meta.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
    };
    let mut script = Vec::new();
    match (&found.meta, recorded(LAYOUT_NAME)) {
        (Some(_), Some(LAYOUT)) => {}
        // Made a moment ago by a process that died.
        (Some(meta), None) if meta.is_empty() => script.push(record(dialect, LAYOUT_NAME, LAYOUT)),
        (Some(_), layout) => {
            let layout =
                layout.map_or_else(|| "no layout".to_owned(), |layout| format!("layout {layout}"));
            return Err(format!(
                "the database has {layout}, this program knows layout {LAYOUT}: another version or \
                 another program made it"
            ));
        }
        (None, _) => script.extend([create_meta(dialect), record(dialect, LAYOUT_NAME, LAYOUT)]),
    }
    for (decl, table) in tables.iter().zip(&found.tables) {
        let name = version_name(decl);
        if table.columns.is_empty() {
            script.extend([
                forget(dialect, &name),
                record(dialect, &name, decl.schema_version.into()),
            ]);
            script.extend(create(dialect, decl));
            continue;
        }
        let (version, known) = (recorded(&name), i64::from(decl.schema_version));
        match version {
            Some(version) if version <= known => {
                script.extend(forward(dialect, decl, table, version < known)?);
            }
            Some(version) => {
                return Err(format!(
                    "table {} has schema version {version}, this program knows {known}: run a \
                     newer program",
                    decl.name
                ));
            }
            None => {
                return Err(format!(
                    "table {} is there and {META} holds no schema version for it: another program \
                     made it",
                    decl.name
                ));
            }
        }
    }
    Ok(script)
}

/// Returns true if a look without the lock for making tables found all of them.
///
/// A look is several queries. When another process upgrades a table in between, old columns meet a
/// new version, which looks like another program's table. So a refusal counts only when it is found
/// again under the lock.
///
/// # Errors
/// The look failed.
pub fn is_all_there(look: Result<Vec<String>, Fault>) -> Result<bool, Fault> {
    match look {
        Ok(script) => Ok(script.is_empty()),
        Err(fault) if fault.kind == StoreErrorKind::Corrupt => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// The statements that upgrade an existing table to its declaration. None are needed, or it is an
/// error, unless its version `is_older`.
fn forward(
    dialect: &dyn Dialect,
    decl: &TableDecl,
    found: &FoundTable,
    is_older: bool,
) -> Result<Vec<String>, String> {
    let wanted = shape(dialect, decl);
    let table = quoted(dialect, decl.name);
    let other =
        || Err(format!("table {} has other columns than declared: {:?}", decl.name, found.columns));
    if found.columns.iter().any(|column| !wanted.contains(column)) {
        return other();
    }
    let mut statements = Vec::new();
    for ((name, sql_type), folded) in columns(decl).zip(&wanted) {
        if found.columns.contains(folded) {
            continue;
        }
        // Keys and etags are there from the first version on.
        if !is_older || !matches!(sql_type, SqlType::Column(_)) {
            return other();
        }
        let declared = dialect.declared_type(sql_type);
        statements.push(format!("ALTER TABLE {table} ADD {} {declared}", quoted(dialect, name)));
    }
    if is_older {
        let is_there =
            |column: &&Column| found.indexes.contains(&index(dialect, decl, column.name));
        let indexed = decl.columns.iter().filter(|c| c.indexed);
        statements.extend(indexed.filter(|c| !is_there(c)).map(|c| create_index(dialect, decl, c)));
        let name = version_name(decl);
        statements
            .extend([forget(dialect, &name), record(dialect, &name, decl.schema_version.into())]);
    }
    Ok(statements)
}
