//! Where things are: tables, partitions and rows as nodes whose names an administrator can read.

use emmer_store::{Column, TableDecl};

/// The node under which the store keeps everything that is not a table.
const META: &str = "emmer_meta";

/// `text` as the name of a node: printable ASCII stays, all else becomes `%XX` of its UTF-8 bytes.
/// So do `/`, `%`, quotes, backslashes and blanks, which the path or `zkCli.sh` would take for
/// something else.
pub(crate) fn escape(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    // ZooKeeper gives these two names another meaning.
    let dots = text == "." || text == "..";
    for byte in text.bytes() {
        let plain = byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'"' | b'\'' | b'\\');
        if plain && !dots {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

/// The text that [`escape`] made `name` of; none for any other name.
pub(crate) fn unescape(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(more.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = more.get(2..)?;
        } else {
            bytes.push(*first);
            rest = more;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    (escape(&text) == name).then_some(text)
}

/// A table's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePaths {
    /// The node that holds the declaration, parent of the partitions.
    pub(crate) table: String,
    /// The parent of the partitions' counts of deletions.
    pub(crate) deletions: String,
}

/// A partition's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionPaths {
    pub(crate) table: String,
    /// Written by every commit; parent of the rows.
    pub(crate) partition: String,
    /// Written by every commit that deletes rows.
    pub(crate) deletions: String,
}

/// The parent of everything that is no table, under `root`.
pub(crate) fn meta(root: &str) -> String {
    format!("{root}/{META}")
}

impl TablePaths {
    pub(crate) fn new(root: &str, decl: &TableDecl) -> Self {
        // A declared name has letters, digits and underscores only.
        Self {
            table: format!("{root}/{}", decl.name),
            deletions: format!("{}/{}", meta(root), decl.name),
        }
    }

    pub(crate) fn partition(&self, partition: &str) -> PartitionPaths {
        let name = escape(partition);
        PartitionPaths {
            partition: format!("{}/{name}", self.table),
            deletions: format!("{}/{name}", self.deletions),
            table: self.table.clone(),
        }
    }
}

impl PartitionPaths {
    pub(crate) fn new(root: &str, decl: &TableDecl, partition: &str) -> Self {
        TablePaths::new(root, decl).partition(partition)
    }

    /// The node of the row whose node has this name.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.partition)
    }

    /// The node of a row.
    pub(crate) fn row(&self, row_key: &str) -> String {
        self.named(&escape(row_key))
    }
}

/// The node of a volatile column of the row at `row`.
pub(crate) fn volatile(row: &str, column: &Column) -> String {
    format!("{row}/{}", column.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_are_legal() {
        for text in [
            "10.0.0.1-11111-1795265085000000",
            "2001:db8::7-30000-17",
            ".",
            "..",
            "...",
            "a b",
            "it's \"q\" \\ / % %2F",
            "ä🛫\u{ffff}\u{10ffff}",
            "zookeeper",
        ] {
            let name = escape(text);
            assert_eq!(unescape(&name).as_deref(), Some(text));
            assert!(
                name.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
                    && name != "."
                    && name != ".."
            );
        }
        assert_eq!(escape("10.0.0.1-11111-17"), "10.0.0.1-11111-17");
        assert_eq!((escape("."), escape("..")), ("%2E".to_owned(), "%2E%2E".to_owned()));
    }

    #[test]
    fn foreign_names_are_known() {
        for name in ["a b", "%", "%2", "%zz", "%41", "%2f", "%FF", "ä"] {
            assert_eq!(unescape(name), None, "{name}");
        }
    }
}
