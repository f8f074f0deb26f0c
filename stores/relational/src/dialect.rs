//! The dialect of one server's SQL.

use emmer_store::{Column, ColumnType};

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlType {
    /// The partition key or the row key: text of at most this many bytes of UTF-8, compared and
    /// ordered by its bytes.
    Key(usize),
    /// The etag: a 64-bit signed integer.
    Etag,
    /// A declared column. Lists are JSON arrays of texts.
    Column(ColumnType),
}

/// One server's SQL.
pub trait Dialect {
    /// The longest name of a table, column or index, in bytes.
    fn name_bytes_max(&self) -> usize;

    /// A declared name in the letters the server keeps it in, so that an administrator need not
    /// quote it: lower case in PostgreSQL, upper case in Oracle, as it stands where names are
    /// compared without case.
    fn fold(&self, name: &str) -> String;

    /// A folded name so that no word is reserved. Declared names hold no quotes (they are checked).
    fn quote(&self, folded: &str) -> String;

    /// Parameter `number`, counted from 1.
    fn parameter(&self, number: usize) -> String;

    /// The type in a `CREATE TABLE`, with what a key needs to be compared by its bytes.
    fn declared_type(&self, sql_type: SqlType) -> String;

    /// The type as the server's catalogue reports it for a column made with
    /// [`declared_type`](Self::declared_type).
    fn reported_type(&self, sql_type: SqlType) -> String;

    /// The type of the name column of `emmer_meta`, which holds plain words.
    fn meta_name_type(&self) -> String {
        self.declared_type(SqlType::Key(100))
    }

    /// Text behind the closing parenthesis of a `CREATE TABLE` of these columns besides keys and
    /// etag, with the space before it.
    fn table_options(&self, columns: &[Column]) -> String {
        let _ = columns;
        String::new()
    }

    /// The clause behind `ORDER BY` that takes at most as many rows as a parameter says.
    fn at_most(&self, parameter: &str) -> String;
}
