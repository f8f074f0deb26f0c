//! Versions whose commit is known to be there whole.
//!
//! A query beside a transaction may see its version row and not yet its other rows. Two answers say
//! that a commit is there whole: its own success, and that of a `TransactGetItems` for all of its
//! rows. Nobody is told a version before: so at most one commit of a partition, the next, is ever
//! on its way.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use emmer_store::{Etag, TableDecl};

/// The most partitions that are remembered; all are forgotten when there would be more.
const PARTITIONS_MAX: usize = 1_000;

/// The last version of each partition that was seen whole, by table and partition, which hold no
/// control characters.
#[derive(Debug, Default)]
pub(crate) struct Settled(Mutex<BTreeMap<String, Etag>>);

fn name(table: &TableDecl, partition: &str) -> String {
    format!("{}\n{partition}", table.name)
}

impl Settled {
    /// Whether the commit that gave the version row this etag is known to be there whole. What is
    /// forgotten is asked again.
    pub(crate) fn has(&self, table: &TableDecl, partition: &str, etag: &Etag) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&name(table, partition)).is_some_and(|known| known == etag)
    }

    /// Whether a version of this partition was ever seen.
    pub(crate) fn knows(&self, table: &TableDecl, partition: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&name(table, partition))
    }

    /// The commit that gave the version row this etag is there whole.
    pub(crate) fn learn(&self, table: &TableDecl, partition: &str, etag: &Etag) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PARTITIONS_MAX {
            all.clear();
        }
        all.insert(name(table, partition), etag.clone());
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
    fn versions_are_known_one_for_each_partition() {
        let (settled, e1, e2): (_, Etag, Etag) = (Settled::default(), "e.1".into(), "e.2".into());
        assert!(!settled.has(&DECL, "p", &e1) && !settled.knows(&DECL, "p"));
        settled.learn(&DECL, "p", &e1);
        assert!(settled.has(&DECL, "p", &e1) && !settled.has(&DECL, "q", &e1));
        assert!(settled.knows(&DECL, "p") && !settled.knows(&DECL, "q"));
        settled.learn(&DECL, "p", &e2);
        assert!(settled.has(&DECL, "p", &e2) && !settled.has(&DECL, "p", &e1));
        for n in 0..PARTITIONS_MAX {
            settled.learn(&DECL, &n.to_string(), &e1);
        }
        assert!(!settled.has(&DECL, "p", &e2));
    }
}
