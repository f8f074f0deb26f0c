//! Keys as Azure's services take them.
//!
//! A key there has no `/`, `\`, `#`, `?` or control character and at most 512 UTF-16 units. Other
//! characters become `%XX`. A key that gets too long by it is cut and ends in `~` and 128 bits of
//! hash, and the row keeps the whole key in a property. No other key holds a `~`.

use std::fmt::Write as _;

use emmer_core::hash::stable64_seeded;

/// The longest key, in UTF-16 units: 1 KiB. The keys of Emmer that fit have at most 852 bytes.
const KEY_UNITS_MAX: usize = 512;
/// The end of a key that was cut: `~` and 32 hexadecimal digits.
const CUT_UNITS: usize = 33;

/// A key as it is stored, and the whole key where that is another thing to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key of the entity.
    pub stored: String,
    /// True if it was cut.
    pub cut: bool,
}

/// The stored form of a key.
pub fn encode(key: &str) -> Key {
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

/// The key that was stored like this; None when it was cut, or has another form.
pub fn decode(stored: &str) -> Option<String> {
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
pub fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
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
}
