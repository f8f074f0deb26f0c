//! The tables a store has seen on its server, and their shapes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use emmer_store::document::declaration;
use emmer_store::{Fault, TableDecl};

/// The tables that a store has found on its server with the shape it knows. No table must exist on
/// such a server before a key is written, so the store checks: once for each table, and again
/// whenever an answer is empty (a server that lost its data must not look like a cluster without
/// silos).
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<BTreeMap<&'static str, &'static TableDecl>>);

impl Known {
    /// Returns true if `decl` was seen.
    pub(crate) fn has(&self, decl: &'static TableDecl) -> bool {
        // A panic in between leaves the map as it was.
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(decl.name).is_some_and(|found| std::ptr::eq(*found, decl) || *found == decl)
    }

    /// Compares the server's shape of `decl` (None: it has no such table), and remembers it if it
    /// is the same.
    ///
    /// # Errors
    /// `NotFound` when there is nothing, `Corrupt` when it has another shape.
    pub(crate) fn check(
        &self,
        decl: &'static TableDecl,
        found: Option<&[u8]>,
    ) -> Result<(), Fault> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(decl.name);
        match found {
            None => Err(Fault::new(
                emmer_store::StoreErrorKind::NotFound,
                "the table is not there: ensure it first",
            )),
            Some(found) if found == declaration(decl).as_bytes() => {
                known.insert(decl.name, decl);
                Ok(())
            }
            Some(found) => {
                let found = String::from_utf8_lossy(found);
                let found: String = found.chars().take(200).collect();
                Err(Fault::corrupt(format!("the table is there with another shape: {found}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::{Column, ColumnType, StoreErrorKind};

    use super::*;

    static ONE: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("N", ColumnType::Int).indexed(),
            Column::new("At", ColumnType::Time).volatile(),
        ],
        schema_version: 1,
        one_moment: true,
    };
    static TWO: TableDecl = TableDecl { schema_version: 2, ..ONE };

    #[test]
    fn only_the_same_shape_is_known() {
        let known = Known::default();
        assert_eq!(known.check(&ONE, None).unwrap_err().kind, StoreErrorKind::NotFound);
        known.check(&ONE, Some(declaration(&ONE).as_bytes())).unwrap();
        assert!(known.has(&ONE) && !known.has(&TWO));
        assert_eq!(
            known.check(&TWO, Some(declaration(&ONE).as_bytes())).unwrap_err().kind,
            StoreErrorKind::Corrupt
        );
        // Gone from the server.
        known.check(&ONE, None).unwrap_err();
        assert!(!known.has(&ONE));
    }
}
