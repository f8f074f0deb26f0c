//! Making tables, and whether what is found is what is declared.
//!
//! The table `emmer_meta` (columns `name`, `value`) records the layout number of this crate and the schema version of
//! each table. A database with other numbers was made by another version and is refused rather than guessed at.

use emmer_store::TableDecl;
use emmer_store::validate::{PARTITION_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX};

use crate::dialect::{Dialect, SqlType};
use crate::names::{ETAG, Names, index, quoted};

/// How this crate lays out tables; a database with another number was made by another version.
pub const LAYOUT: i64 = 1;

/// The table that records [`LAYOUT`] and the schema versions. No declaration may begin like this.
pub const META: &str = "emmer_meta";

/// The name [`LAYOUT`] is recorded under.
pub const LAYOUT_NAME: &str = "layout";

/// The longest name recorded in [`META`], in bytes.
const META_NAME_BYTES_MAX: usize = 100;

/// The name the schema version of a table is recorded under.
pub fn version_name(decl: &TableDecl) -> String {
    format!("schema {}", decl.name)
}

/// The statement that makes [`META`].
pub fn create_meta(dialect: &dyn Dialect) -> String {
    let [meta, name, value] = [META, "name", "value"].map(|n| quoted(dialect, n));
    let key = dialect.declared_type(SqlType::Key(META_NAME_BYTES_MAX));
    let number = dialect.declared_type(SqlType::Etag);
    format!("CREATE TABLE {meta} ({name} {key} NOT NULL, {value} {number} NOT NULL, PRIMARY KEY ({name}))")
}

/// The statement that records `value` under `name`, which must be one of this module's names.
pub fn record(dialect: &dyn Dialect, name: &str, value: i64) -> String {
    let [meta, name_column, value_column] = [META, "name", "value"].map(|n| quoted(dialect, n));
    // The names are ours and hold no quote.
    format!("INSERT INTO {meta} ({name_column}, {value_column}) VALUES ('{name}', {value})")
}

/// The statement that forgets what was recorded under `name`: a table that somebody dropped is made and recorded anew.
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
    let create = format!("CREATE TABLE {table} ({columns}PRIMARY KEY ({partition}, {row}))");
    let indexed = decl.columns.iter().filter(|c| c.indexed).map(|column| {
        let index = dialect.quote(&index(dialect, decl, column.name));
        format!("CREATE INDEX {index} ON {table} ({})", quoted(dialect, column.name))
    });
    std::iter::once(create).chain(indexed).collect()
}

/// Everything [`create`] and its records need, as a script for an administrator who lets no application make tables.
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
    columns(decl).map(|(name, sql_type)| (dialect.fold(name), dialect.reported_type(sql_type))).collect()
}

/// What is in a database, as its catalogue tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Name and value of every row of [`META`]; none when there is no such table.
    pub meta: Option<Vec<(String, i64)>>,
    /// The columns of each table asked for, in the same order: folded names and reported types. Empty when there is no
    /// such table.
    pub shapes: Vec<Vec<(String, String)>>,
}

/// Which of `tables` are missing. [`META`] is too when nothing is recorded.
///
/// # Errors
/// In words: the database or one of the tables has another shape or version.
pub fn missing(
    dialect: &dyn Dialect,
    tables: &[&'static TableDecl],
    found: &Found,
) -> Result<Vec<&'static TableDecl>, String> {
    let recorded = |name: &str| {
        let meta = found.meta.as_deref().unwrap_or_default();
        meta.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
    };
    if found.meta.is_some() && recorded(LAYOUT_NAME) != Some(LAYOUT) {
        let layout = recorded(LAYOUT_NAME);
        return Err(format!("the database has layout {layout:?}, this version knows {LAYOUT}"));
    }
    let mut missing = Vec::new();
    for (decl, shape) in tables.iter().zip(&found.shapes) {
        if shape.is_empty() {
            missing.push(*decl);
            continue;
        }
        let version = recorded(&version_name(decl));
        if version != Some(decl.schema_version.into()) {
            return Err(format!(
                "table {} is there with schema version {version:?}, this version knows {}",
                decl.name, decl.schema_version
            ));
        }
        if *shape != self::shape(dialect, decl) {
            return Err(format!("table {} has other columns than declared: {shape:?}", decl.name));
        }
    }
    Ok(missing)
}
