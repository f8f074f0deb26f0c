//! The sizes that a store takes at once, and those that a table needs.
//!
//! Every request keeps the limits of [`crate::validate`]. A server may take less, and its store
//! says so. A table whose rows would not fit is refused when a silo starts, and `emmer doctor`
//! shows the numbers.

use std::fmt;

use emmer_core::limits::COMMIT_MUTATIONS_MAX;

/// The longest partition key, in bytes of UTF-8.
///
/// With [`ROW_KEY_BYTES_MAX`] it fits SQL Server's clustered index keys (900 bytes) and InnoDB's
/// (3,072 bytes at four bytes a character).
pub const PARTITION_KEY_BYTES_MAX: usize = 256;

/// The longest row key, in bytes of UTF-8: 512 UTF-16 units are Azure Table's 1 KiB.
pub const ROW_KEY_BYTES_MAX: usize = 512;

/// The longest text, bytes or list in one column, in bytes. A server may refuse less (DynamoDB's
/// items end at 400 KB), also as [`StoreErrorKind::Invalid`](crate::StoreErrorKind::Invalid).
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// Sizes that a store takes at once, in rows and bytes. Bytes are roughly those of the values.
/// Names of columns, keys and the server's own notation count too, so a commit near the limit may
/// be refused as [`Invalid`](crate::StoreErrorKind::Invalid).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The most mutations in one commit.
    pub mutations: usize,
    /// The most bytes in one commit.
    pub commit_bytes: usize,
    /// The most bytes in one row.
    pub row_bytes: usize,
    /// The longest partition key, in bytes.
    pub partition_key_bytes: usize,
    /// The longest row key, in bytes.
    pub row_key_bytes: usize,
}

impl Default for StoreLimits {
    /// The sizes that the contract requires, and no more.
    fn default() -> Self {
        Self {
            mutations: COMMIT_MUTATIONS_MAX,
            commit_bytes: COMMIT_MUTATIONS_MAX * VALUE_BYTES_MAX,
            row_bytes: VALUE_BYTES_MAX,
            partition_key_bytes: PARTITION_KEY_BYTES_MAX,
            row_key_bytes: ROW_KEY_BYTES_MAX,
        }
    }
}

impl StoreLimits {
    /// The sizes that the contract requires, of a server that takes `commit_bytes` at once.
    pub fn of_commits(commit_bytes: usize) -> Self {
        let whole = Self::default();
        Self { commit_bytes, row_bytes: whole.row_bytes.min(commit_bytes), ..whole }
    }

    /// The first limit that is below the needed one; None when all suffice.
    pub fn lack(&self, needed: &Self) -> Option<Lack> {
        let both = [
            ("mutations in a commit", self.mutations, needed.mutations),
            ("bytes in a commit", self.commit_bytes, needed.commit_bytes),
            ("bytes in a row", self.row_bytes, needed.row_bytes),
            ("bytes in a partition key", self.partition_key_bytes, needed.partition_key_bytes),
            ("bytes in a row key", self.row_key_bytes, needed.row_key_bytes),
        ];
        let lack = both.into_iter().find(|(_, has, needs)| has < needs);
        lack.map(|(what, has, needs)| Lack { what, has, needs })
    }
}

impl fmt::Display for StoreLimits {
    /// `100 rows and 1000000 bytes in a commit, 1000000 bytes in a row, keys of 256 and 512 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutations, commit_bytes, row_bytes, partition_key_bytes, row_key_bytes } = self;
        write!(
            f,
            "{mutations} rows and {commit_bytes} bytes in a commit, {row_bytes} bytes in a row, \
             keys of {partition_key_bytes} and {row_key_bytes} bytes"
        )
    }
}

/// A limit of a store that is below what a table needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    what: &'static str,
    has: usize,
    needs: usize,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, has, needs } = self;
        write!(f, "the store takes {has} {what}, the table needs {needs}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named() {
        let (all, small) = (StoreLimits::default(), StoreLimits::of_commits(1_000));
        assert_eq!((all.lack(&all), all.lack(&small)), (None, None));
        assert_eq!(small.row_bytes, 1_000);
        let words = small.lack(&all).unwrap().to_string();
        assert!(
            words.starts_with("the store takes 1000 bytes in a commit, the table needs "),
            "{words}"
        );
        let few = StoreLimits { mutations: 25, ..all };
        assert_eq!(
            few.lack(&all),
            Some(Lack { what: "mutations in a commit", has: 25, needs: 100 })
        );
        for (field, what) in [
            (StoreLimits { row_bytes: 1, ..all }, "row"),
            (StoreLimits { partition_key_bytes: 1, ..all }, "partition key"),
            (StoreLimits { row_key_bytes: 1, ..all }, "row key"),
        ] {
            assert!(field.lack(&all).unwrap().to_string().contains(what), "{what}");
        }
    }
}
