//! The names of keys and fields.

use emmer_store::TableDecl;
use emmer_store::keys::escape;
use emmer_store_keyvalue::Layout;

/// The hash of a partition. The braces choose the slot: everything of a partition is in one.
pub(crate) fn partition(layout: &Layout, decl: &TableDecl, partition: &str) -> String {
    format!("{}:{{{}/{}}}", layout.prefix(), decl.name, escape(partition))
}

/// The sorted set of the row fields of a partition by an indexed column.
pub(crate) fn index(partition: &str, column: &str) -> String {
    format!("{partition}:by:{column}")
}

/// The set of the partitions of a table.
pub(crate) fn partitions(layout: &Layout, decl: &TableDecl) -> String {
    format!("{}:partitions:{}", layout.prefix(), decl.name)
}

/// The hash of the shapes of the tables.
pub(crate) fn tables(layout: &Layout) -> String {
    format!("{}:tables", layout.prefix())
}

/// The indexed columns of a table, in order.
pub(crate) fn indexed(
    decl: &TableDecl,
) -> impl Iterator<Item = &'static emmer_store::Column> + use<> {
    decl.columns.iter().filter(|column| column.indexed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_of_a_partition_has_one_tag() {
        let decl = &emmer_store::silos::SILO_INSTANCES;
        let layout = Layout::new("emmer").unwrap_or_else(|| unreachable!());
        assert_eq!(partition(&layout, decl, "prod"), "emmer:{silo_instances/prod}");
        // The tag ends at the first closing brace, which is the same one in all keys of a
        // partition.
        let odd = partition(&layout, decl, "a}b{c/d");
        let tag = |key: &str| {
            key.split_once('{').and_then(|(_, k)| k.split_once('}')).map(|(t, _)| t.to_owned())
        };
        assert_eq!(tag(&odd).as_deref(), Some("silo_instances/a"));
        assert_eq!(tag(&odd), tag(&index(&odd, "N")));
    }
}
