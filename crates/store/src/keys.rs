//! Grain types, keys and state names as partition and row keys: readable, and two different grains
//! never share one.

use std::str::FromStr;

use emmer_core::hash::stable64_seeded;
use emmer_core::{ClusterId, GrainId, GrainKey, GrainTypeId};

use crate::validate::{PARTITION_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX};

/// `text` with `%`, `/`, `~` and every control character as `%XX` of its UTF-8 bytes; everything
/// else as it stands. Different texts give different results, and no result holds a `/` or `~`.
pub fn escape(text: &str) -> String {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'}') && byte != b'%' && byte != b'/';
    if text.bytes().all(is_plain) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut buffer = [0u8; 4];
    for c in text.chars() {
        if matches!(c, '%' | '/' | '~') || c.is_control() {
            for byte in c.encode_utf8(&mut buffer).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// The partition of a grain's states: `service/type/kind.key`, cut when it is too long for a key.
/// The kind is `u`, `i`, `g` (UUID) or `s` (text), so that the integer 1 and the text "1" are two
/// grains.
pub fn partition(service: &ClusterId, grain_type: &str, key: &GrainKey) -> String {
    partition_of(&partition_prefix(service, grain_type), kind(key), &key_text(key))
}

/// The beginning of the partitions of a grain type.
pub(crate) fn partition_prefix(service: &ClusterId, grain_type: &str) -> String {
    format!("{service}/{}/", escape(grain_type))
}

/// The partition of a grain whose key has this kind and [text](key_text).
pub(crate) fn partition_of(prefix: &str, kind: char, key_text: &str) -> String {
    let mut text = String::with_capacity(prefix.len() + key_text.len() + 2);
    text.push_str(prefix);
    text.push(kind);
    text.push('.');
    text.push_str(key_text);
    fit(text, PARTITION_KEY_BYTES_MAX)
}

/// The row of a grain's state: the state's name, cut when it is too long for a key; `~` for the
/// name without a letter, because a key has one at least.
pub fn row(state: &str) -> String {
    match state {
        "" => "~".to_owned(),
        state => fit(escape(state), ROW_KEY_BYTES_MAX),
    }
}

/// A further row of a state or journal, whose name is escaped: `part` has letters and digits, fewer
/// than a hash.
pub(crate) fn part_row(escaped: &str, part: &str) -> String {
    fit(format!("{escaped}~{part}"), ROW_KEY_BYTES_MAX)
}

/// The letter of a key's kind.
pub const fn kind(key: &GrainKey) -> char {
    match key {
        GrainKey::Uint(_) => 'u',
        GrainKey::Int(_) => 'i',
        GrainKey::Uuid(_) => 'g',
        GrainKey::Text(_) => 's',
    }
}

/// The key as text, escaped.
pub fn key_text(key: &GrainKey) -> String {
    match key {
        GrainKey::Text(text) => escape(text),
        GrainKey::Uint(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// The original of a text that [`escape`] made; None for other texts.
pub fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let [high, low] = [rest.next()?, rest.next()?].map(|digit| char::from(*digit).to_digit(16));
        bytes.push(u8::try_from(high? * 16 + low?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// A grain as text, `type/kind.key`: what the reminders table calls its reference.
pub fn reference(grain_type: &str, key: &GrainKey) -> String {
    format!("{}/{}.{}", escape(grain_type), kind(key), key_text(key))
}

/// The type's name and the key in a text that [`reference()`] made; none for any other.
pub fn parse_reference(text: &str) -> Option<(String, GrainKey)> {
    let (grain_type, rest) = text.split_once('/')?;
    let (kind, key) = rest.split_once('.')?;
    let key = match kind {
        "u" => GrainKey::Uint(key.parse().ok()?),
        "i" => GrainKey::Int(key.parse().ok()?),
        "g" => GrainKey::Uuid(key.parse().ok()?),
        "s" => GrainKey::from(unescape(key)?),
        _ => return None,
    };
    Some((unescape(grain_type)?, key))
}

/// A grain as an operator writes it: `thermostat/s.attic`, as [`reference()`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrainRef(GrainId);

impl GrainRef {
    /// The grain.
    pub const fn id(&self) -> &GrainId {
        &self.0
    }
}

/// The text names no grain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a grain: expected type/kind.key, with the kind s (text), u, i (integers) or g \
     (UUID), as in thermostat/s.attic"
)]
pub struct ParseGrainRefError(String);

impl FromStr for GrainRef {
    type Err = ParseGrainRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = parse_reference(text);
        let (grain_type, key) =
            parsed.ok_or_else(|| ParseGrainRefError(text.chars().take(80).collect()))?;
        Ok(Self(GrainId::new(GrainTypeId::of(&grain_type), key)))
    }
}

/// The row of a reminder: `reference-name`, cut when it is too long for a key. The name's own
/// dashes are escaped, so that the last dash always stands before the name.
pub fn reminder_row(reference: &str, name: &str) -> String {
    fit(format!("{reference}-{}", escape(name).replace('-', "%2D")), ROW_KEY_BYTES_MAX)
}

/// A text longer than `max` keeps its beginning and ends in `~` and 128 bits of hash. No other key
/// ends like that: names that are escaped hold no `~`. Texts that collide in beginning and hash are
/// found by comparing the columns, see [`crate::state`].
fn fit(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let [a, b] = [0, 1].map(|seed| stable64_seeded(text.as_bytes(), seed));
    let mut end = max.saturating_sub(33);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{a:016x}{b:016x}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use emmer_core::limits::GRAIN_KEY_BYTES_MAX;
    use uuid::Uuid;

    use super::*;
    use crate::validate;

    #[test]
    fn different_grains_have_different_rows() {
        let long =
            |last: char| GrainKey::from(format!("{}{last}", "/".repeat(GRAIN_KEY_BYTES_MAX - 1)));
        let keys: Vec<GrainKey> = vec![
            1u64.into(),
            1i64.into(),
            (-1i64).into(),
            u64::MAX.into(),
            Uuid::from_u128(1).into(),
            "1".into(),
            "".into(),
            "a/b".into(),
            "a".into(),
            "a%2Fb".into(),
            "a\0b".into(),
            "a%00b".into(),
            "~".into(),
            "\u{85}".into(),
            "🛫".into(),
            "00000000-0000-0000-0000-000000000001".into(),
            long('x'),
            long('y'),
        ];
        let service: ClusterId = "svc".parse().unwrap();
        let partitions: BTreeSet<_> = keys.iter().map(|k| partition(&service, "T", k)).collect();
        assert_eq!(partitions.len(), keys.len());
        partitions.iter().for_each(|partition| validate::partition_key(partition).unwrap());
    }

    #[test]
    fn different_states_have_different_rows() {
        let long = |last: &str| format!("{}{last}", "ä".repeat(400));
        let (x, y) = (long("x"), long("y"));
        let states = ["total", "", "~", "b/total", "b", "%", "\0", x.as_str(), y.as_str()];
        let rows: BTreeSet<_> = states.iter().map(|state| row(state)).collect();
        assert_eq!(rows.len(), states.len());
        rows.iter().for_each(|row| validate::row_key(row).unwrap());
    }

    #[test]
    fn plain_keys_stay_readable() {
        let service: ClusterId = "svc".parse().unwrap();
        assert_eq!(
            partition(&service, "flights::Airport", &"JFK".into()),
            "svc/flights::Airport/s.JFK"
        );
        assert_eq!(partition(&service, "Airport", &17u64.into()), "svc/Airport/u.17");
        assert_eq!(row("delays"), "delays");
    }

    #[test]
    fn references_are_read_as_they_are_written() {
        let keys: Vec<GrainKey> = vec![
            1u64.into(),
            (-1i64).into(),
            Uuid::from_u128(9).into(),
            "".into(),
            "a/b.c-d%2F\0~🛫".into(),
        ];
        for key in keys {
            let text = reference("flights::Airport/x", &key);
            assert_eq!(parse_reference(&text), Some(("flights::Airport/x".to_owned(), key)));
        }
        for bad in ["", "a", "a/1", "a/u.x", "a/s.%4", "a/s.%zz", "a/s.%FF", "a/q.1", "a%/u.1"] {
            assert_eq!(parse_reference(bad), None, "{bad}");
        }
    }

    #[test]
    fn different_reminders_have_different_rows() {
        let long = "x".repeat(600);
        let rows: BTreeSet<_> = [
            ("t/s.a", "b-c"),
            ("t/s.a-b", "c"),
            ("t/s.a", "b%2Dc"),
            ("t/s.a", "b/c"),
            (&long, "a"),
            (&long, "b"),
        ]
        .into_iter()
        .map(|(reference, name)| reminder_row(reference, name))
        .collect();
        assert_eq!(rows.len(), 6);
        rows.iter().for_each(|row| validate::row_key(row).unwrap());
    }

    #[test]
    fn partitions_fit_and_differ() {
        let service: ClusterId = "svc".parse().unwrap();
        let of = |grain_type: &str, key: &str| partition(&service, grain_type, &key.into());
        let long = |last: &str| format!("{}{last}", "ä".repeat(200));
        let all = [
            of(&long("x"), "k"),
            of(&long("y"), "k"),
            of(&long("x"), "l"),
            of("t", &long("x")),
            of("t", &long("y")),
            of("a/b", "k"),
            of("a%2Fb", "k"),
            of("a", "b/s.k"),
            of("a/s.b", "k"),
        ];
        let different: BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        all.iter().for_each(|partition| validate::partition_key(partition).unwrap());
    }
}
