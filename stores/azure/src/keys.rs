//! Partition and row keys as Azure takes them, and the names of tables.
//!
//! A key there has no `/`, `\`, `#`, `?` or control character and at most 512 UTF-16 units. What is
//! not allowed is written as the house writes it, `%XX`; a key that gets too long by it is cut and
//! ends in `~` and 128 bits of hash, and the entity keeps the whole of it in a property. No other
//! key holds a `~`.
//!
//! A `%` in the path of a URL is decoded twice by the service, which then looks for another key. So
//! no key of ours is ever in the path of a request: reads are queries, and writes are entity group
//! transactions, whose inner URLs are in the body.

use std::fmt::Write as _;

use emmer_core::hash::stable64_seeded;
use emmer_store::TableDecl;

/// The longest key, in UTF-16 units: 1 KiB.
const KEY_UNITS_MAX: usize = 512;
/// What stands behind the beginning of a key that was cut: `~` and 32 hexadecimal digits.
const CUT_UNITS: usize = 33;
/// The longest and shortest name of a table.
pub(crate) const TABLE_NAME_BYTES_MAX: usize = 63;

/// A key as it is stored, and the whole key where that is another thing to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The key of the entity.
    pub(crate) stored: String,
    /// Whether it was cut.
    pub(crate) cut: bool,
}

/// The stored form of a key.
pub(crate) fn encode(key: &str) -> Key {
    let mut stored = String::with_capacity(key.len());
    for c in emmer_store::keys::escape(key).chars() {
        match c {
            '\\' | '#' | '?' => {
                // A string takes everything.
                let _ = write!(stored, "%{:02X}", u32::from(c));
            }
            other => stored.push(other),
        }
    }
    if units(&stored) <= KEY_UNITS_MAX {
        return Key { stored, cut: false };
    }
    let [a, b] = [0, 1].map(|seed| stable64_seeded(key.as_bytes(), seed));
    let mut room = KEY_UNITS_MAX - CUT_UNITS;
    let fits = |c: &char| {
        let fits = c.len_utf16() <= room;
        room = room.saturating_sub(c.len_utf16());
        fits
    };
    let mut stored: String = stored.chars().take_while(fits).collect();
    let _ = write!(stored, "~{a:016x}{b:016x}");
    Key { stored, cut: true }
}

/// The key that was stored so; none when it was cut, or is nobody's.
pub(crate) fn decode(stored: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(stored.len());
    let mut rest = stored.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    let key = String::from_utf8(bytes).ok()?;
    (encode(&key).stored == stored).then_some(key)
}

/// The length of a text as Azure counts it.
pub(crate) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The name of a table: `emmersiloinstances`. Names have letters and digits only, and mean the same
/// in any case; lower case is what the emulator understands everywhere. Two declarations whose
/// names differ in nothing but underscores are told apart by their shapes.
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
    fn keys_come_back_and_hold_nothing_forbidden() {
        let long = "/".repeat(512);
        for key in [
            "prod",
            "10.0.0.1-11111-7",
            "VersionRow",
            "s.JFK/total",
            "a\\b#c?d%e~f",
            "it's",
            "🛫ä",
            "%2F",
            &long,
        ] {
            let stored = encode(key);
            assert!(!stored.stored.contains(['/', '\\', '#', '?']), "{stored:?}");
            assert!(units(&stored.stored) <= KEY_UNITS_MAX);
            let back = decode(&stored.stored);
            assert_eq!(back.as_deref(), (!stored.cut).then_some(key), "{key}");
        }
        assert_eq!(encode("s.JFK/total").stored, "s.JFK%2Ftotal");
        assert_eq!(encode("VersionRow").stored, "VersionRow");
        assert!(encode(&long).cut && !encode(&"k".repeat(512)).cut);
        assert_ne!(encode(&long), encode(&format!("{}?", "/".repeat(511))));
        assert_eq!(decode("a/b"), None);
    }

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
