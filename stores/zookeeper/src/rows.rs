//! Rows as nodes: the contents of a row's node and of its volatile columns' nodes, and its etag.

use emmer_core::hash::{stable64, stable64_seeded};
use emmer_store::document;
use emmer_store::{Column, Etag, Row, StoredRow, TableDecl};
use zookeeper_client::Stat;

use crate::fault::Fault;
use crate::paths::PartitionPaths;

/// An etag taken apart: the commit (zxid) that wrote the row, and the version of its node then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) zxid: i64,
    pub(crate) version: i32,
}

impl Written {
    pub(crate) const fn of(stat: &Stat) -> Self {
        Self { zxid: stat.mzxid, version: stat.version }
    }

    /// As an etag of this row. The server compares versions of nodes, which other rows share: so
    /// the etag names its row.
    pub(crate) fn etag(self, nodes: &PartitionPaths, row_key: &str) -> Etag {
        format!("{:x}-{}-{:08x}", self.zxid, self.version, owner(nodes, row_key)).into()
    }

    /// None for a text that is not an etag of this row.
    pub(crate) fn parse(etag: &str, nodes: &PartitionPaths, row_key: &str) -> Option<Self> {
        let mut parts = etag.splitn(3, '-');
        let (zxid, version) = (parts.next()?, parts.next()?);
        let found =
            Self { zxid: i64::from_str_radix(zxid, 16).ok()?, version: version.parse().ok()? };
        // A version below 0 means "any" to the server.
        (found.version >= 0 && found.etag(nodes, row_key).as_ref() == etag).then_some(found)
    }
}

/// Identity of a row, in 32 bits.
fn owner(nodes: &PartitionPaths, row_key: &str) -> u32 {
    (stable64_seeded(row_key.as_bytes(), stable64(nodes.partition.as_bytes())) >> 32) as u32
}

/// The volatile columns of a table, each a node of its own under every row.
pub(crate) fn volatile_columns(decl: &TableDecl) -> impl Iterator<Item = &'static Column> {
    decl.columns.iter().filter(|column| column.volatile)
}

/// The content of a row's node.
pub(crate) fn encode(decl: &TableDecl, partition: &str, row: &Row) -> Vec<u8> {
    document::encode(decl, partition, row, |column| !column.volatile).into_bytes()
}

/// The content of a volatile column's node: the row's keys and this column, so that it explains
/// itself. A null is a node too: a touch finds it.
pub(crate) fn encode_volatile(
    decl: &TableDecl,
    partition: &str,
    row: &Row,
    column: &Column,
) -> Vec<u8> {
    document::encode(decl, partition, row, |other| other.name == column.name).into_bytes()
}

/// A row as it was read: its node, and the nodes of its volatile columns in declared order.
pub(crate) struct FoundRow {
    pub(crate) row_key: String,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
    pub(crate) volatile: Vec<(Vec<u8>, Stat)>,
}

impl FoundRow {
    /// Returns true if all nodes were made by one commit. Otherwise the row was deleted and made
    /// again in between.
    pub(crate) fn is_one_row(&self) -> bool {
        self.volatile.iter().all(|(_, stat)| stat.czxid == self.stat.czxid)
    }

    pub(crate) fn into_stored(
        self,
        decl: &TableDecl,
        nodes: &PartitionPaths,
    ) -> Result<StoredRow, Fault> {
        let mut row = document::decode(decl, &self.row_key, &self.data).map_err(Fault::corrupt)?;
        for (column, (data, _)) in volatile_columns(decl).zip(&self.volatile) {
            let own = document::decode(decl, &self.row_key, data)
                .map_err(|why| Fault::corrupt(format!("{}: {why}", column.name)))?;
            if let Some(value) = own.get(column.name) {
                row.set(column.name, value.clone());
            }
        }
        let etag = Written::of(&self.stat).etag(nodes, &self.row_key);
        Ok(StoredRow { row, etag })
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::silos::SILO_INSTANCES;

    use super::*;

    #[test]
    fn only_our_own_etags_are_understood() {
        let written = Written { zxid: 0x1_0000_002a, version: 3 };
        let [one, other] =
            ["p", "q"].map(|name| PartitionPaths::new("/emmer", &SILO_INSTANCES, name));
        let etag = written.etag(&one, "r");
        assert_eq!(etag.as_ref(), format!("10000002a-3-{:08x}", owner(&one, "r")));
        assert_eq!(Written::parse(&etag, &one, "r"), Some(written));
        assert_eq!(
            (Written::parse(&etag, &one, "s"), Written::parse(&etag, &other, "r")),
            (None, None)
        );
        for other in [
            "",
            "x",
            "1",
            "no etag at all",
            "10000002A-3",
            "+1-3",
            "1-03",
            "1--1",
            "1-3 ",
            "1-99999999999",
        ] {
            for other in [other.to_owned(), format!("{other}-{:08x}", owner(&one, "r"))] {
                assert_eq!(Written::parse(&other, &one, "r"), None, "{other:?}");
            }
        }
    }
}
