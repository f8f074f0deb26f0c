//! The names of keys on servers with one flat space of keys.
//!
//! ```text
//! emmer/.tables/silo_instances                              the shape of the table
//! emmer/silo_instances/prod/10.0.0.1-11111-7                the row
//! emmer/silo_instances/prod/10.0.0.1-11111-7/IAmAliveTime   its volatile column
//! ```
//!
//! Partition and row keys are escaped ([`emmer_store::keys::escape`]), so that a `/` always is a
//! separator, and `a` never is the beginning of `ab`'s keys. No escaped key holds a `~`: names that
//! begin with it are free for a store's own use.

use emmer_store::keys::escape;
use emmer_store::url::percent_decode;
use emmer_store::{Address, Parameter, Result, TableDecl};

/// The parameter of a URL that is the prefix of all keys.
pub const PREFIX_PARAMETER: Parameter = Parameter::text("prefix");
/// The prefix of all keys, where the URL does not say.
const PREFIX: &str = "emmer";
/// The longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 100;

/// Makes names of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
}

impl Layout {
    /// Names below `prefix`; none when it is no prefix this store can take: letters, digits, `-`,
    /// `_`, `.` and `/` in between.
    pub fn new(prefix: &str) -> Option<Self> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let parts_are_named =
            prefix.split('/').all(|part| !part.is_empty() && !part.starts_with('.'));
        let fits = prefix.len() <= PREFIX_BYTES_MAX && prefix.chars().all(legal) && parts_are_named;
        fits.then(|| Self { prefix: prefix.to_owned() })
    }

    /// Names below the prefix of an address.
    ///
    /// # Errors
    /// `Invalid`: the prefix is not valid.
    pub fn of(address: &Address) -> Result<Self> {
        const RULE: &str = "prefix is not made of letters, digits, '-', '_', '.' and single '/'";
        Self::new(address.text("prefix").unwrap_or(PREFIX)).ok_or_else(|| address.invalid(RULE))
    }

    /// The prefix itself.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Where the shape of a table is kept. No table's name begins with a dot.
    pub fn shape(&self, decl: &TableDecl) -> String {
        format!("{}/.tables/{}", self.prefix, decl.name)
    }

    /// Prefix of all keys of a table.
    pub fn table(&self, decl: &TableDecl) -> String {
        format!("{}/{}/", self.prefix, decl.name)
    }

    /// Prefix of all keys of a partition.
    pub fn partition(&self, decl: &TableDecl, partition: &str) -> String {
        format!("{}/{}/{}/", self.prefix, decl.name, escape(partition))
    }
}

/// A key as it was before [`escape`]; none when no key is escaped to this.
pub fn unescape(text: &str) -> Option<String> {
    let unescaped = percent_decode(text)?;
    (escape(&unescaped) == text).then_some(unescaped)
}

/// The key of a row in a partition whose keys begin with `partition`.
pub fn row(partition: &str, row_key: &str) -> String {
    format!("{partition}{}", escape(row_key))
}

/// The key of a volatile column of the row under `row`.
pub fn column(row: &str, column: &str) -> String {
    format!("{row}/{column}")
}

/// Contents of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The row it belongs to, escaped.
    pub row: &'a str,
    /// The volatile column, none for the row itself.
    pub column: Option<&'a str>,
}

/// Reads what follows the partition's prefix in a key.
pub fn parts(rest: &str) -> Parts<'_> {
    match rest.split_once('/') {
        None => Parts { row: rest, column: None },
        Some((row, column)) => Parts { row, column: Some(column) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[],
        schema_version: 1,
        one_moment: true,
    };

    #[test]
    fn names_are_readable_and_partitions_apart() {
        let layout = Layout::new("emmer").unwrap();
        assert_eq!(layout.shape(&DECL), "emmer/.tables/t");
        assert_eq!(row(&layout.partition(&DECL, "prod"), "a/b~"), "emmer/t/prod/a%2Fb%7E");
        assert!(!layout.partition(&DECL, "prod2").starts_with(&layout.partition(&DECL, "prod")));
        assert_ne!(layout.partition(&DECL, "a/b"), layout.partition(&DECL, "a%2Fb"));
        let key = column(&row(&layout.partition(&DECL, "p"), "r"), "At");
        let rest = key.strip_prefix(&layout.partition(&DECL, "p")).unwrap();
        assert_eq!(parts(rest), Parts { row: "r", column: Some("At") });
        assert_eq!(parts("r"), Parts { row: "r", column: None });
    }

    #[test]
    fn keys_are_unescaped() {
        for key in ["a", "a/b", "%", "%2F", "~", "🛫\u{85}", ""] {
            assert_eq!(unescape(&escape(key)).as_deref(), Some(key));
        }
        for other in ["%", "%2", "%2f", "%61", "%ff", "a/b", "a~"] {
            assert_eq!(unescape(other), None, "{other}");
        }
    }

    #[test]
    fn only_plain_prefixes_are_taken() {
        for good in ["emmer", "teams/a-1", "A_b.c"] {
            assert!(Layout::new(good).is_some(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "a b", ".a", "a/../b", "ä", &"x".repeat(101)] {
            assert!(Layout::new(bad).is_none(), "{bad}");
        }
    }
}
