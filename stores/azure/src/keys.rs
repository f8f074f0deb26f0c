//! The names of tables, and keys as requests have them.
//!
//! A `%` in the path of a URL is decoded twice by the service, which then looks for another key. So
//! no key of ours is ever in the path of a request: reads are queries, and writes are entity group
//! transactions, whose inner URLs are in the body.

use std::fmt::Write as _;

use emmer_store::TableDecl;
pub(crate) use emmer_store_keyvalue::azure::keys::{decode, encode, units};

/// The longest and shortest name of a table.
pub(crate) const TABLE_NAME_BYTES_MAX: usize = 63;

/// The name of a table: `emmersiloinstances`. Names have letters and digits only, and ignore case;
/// the emulator understands lower case everywhere. Two declarations whose names differ only in
/// underscores differ in their shapes.
pub(crate) fn table_name(prefix: &str, decl: &TableDecl) -> String {
    format!("{prefix}{}", decl.name.replace('_', "")).to_ascii_lowercase()
}

/// A key or another text inside the quotes of an OData expression, as part of a URL.
pub(crate) fn in_url(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A text as an OData literal.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_names_of_letters() {
        let decl = TableDecl {
            name: "silo_instances",
            partition_key: "P",
            row_key: "R",
            columns: &[],
            schema_version: 1,
            one_moment: true,
        };
        assert_eq!(table_name("emmer", &decl), "emmersiloinstances");
    }

    #[test]
    fn texts_in_urls_mean_themselves() {
        assert_eq!(in_url(&literal("it's a/b%")), "%27it%27%27s%20a%2Fb%25%27");
    }
}
