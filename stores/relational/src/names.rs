//! Tables, columns and indexes as the server spells them.

use emmer_core::hash::stable64_seeded;
use emmer_store::TableDecl;

use crate::dialect::Dialect;

/// The name of the etag column before it is folded. No declaration may use it.
pub const ETAG: &str = "etag";

/// The quoted names of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The table.
    pub table: String,
    /// The partition key column.
    pub partition: String,
    /// The row key column.
    pub row: String,
    /// The etag column.
    pub etag: String,
    /// The declared columns, in order.
    pub columns: Vec<String>,
}

impl Names {
    /// The names of `decl` in a dialect.
    pub fn new(dialect: &dyn Dialect, decl: &TableDecl) -> Self {
        let name = |name: &str| quoted(dialect, name);
        Self {
            table: name(decl.name),
            partition: name(decl.partition_key),
            row: name(decl.row_key),
            etag: name(ETAG),
            columns: decl.columns.iter().map(|c| name(c.name)).collect(),
        }
    }
}

/// One declared name, folded and quoted.
pub fn quoted(dialect: &dyn Dialect, name: &str) -> String {
    dialect.quote(&dialect.fold(name))
}

/// The folded name of the index on `column`: `table_by_column`. Where the server takes no such long
/// name it is cut and ends in a hash (PostgreSQL would cut it silently, and two indexes could share
/// a name).
pub fn index(dialect: &dyn Dialect, decl: &TableDecl, column: &str) -> String {
    let whole = dialect.fold(&format!("{}_by_{column}", decl.name));
    if whole.len() <= dialect.name_bytes_max() {
        return whole;
    }
    let hash = dialect.fold(&format!("_{:016x}", stable64_seeded(whole.as_bytes(), 0)));
    let end = dialect.name_bytes_max().saturating_sub(hash.len());
    // Declared names are ASCII (they are checked): every byte is a boundary.
    format!("{}{hash}", whole.get(..end).unwrap_or_default())
}
