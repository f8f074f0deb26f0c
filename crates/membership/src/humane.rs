//! Durations as people write them: `"200ms"`, `"10s"`, `"3m"`, `"2h"`, `"7d"`.
//!
//! Used for every duration in [`Config`](crate::Config), so that a TOML file and an environment
//! variable read the same. A number without a unit is refused: ten what?

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// The text was not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: expected a whole number and ms, s, m, h or d, as in 200ms")]
pub struct ParseDurationError(String);

/// Parses `text`.
///
/// # Errors
/// [`ParseDurationError`] when it is not a whole number followed by a unit, or too large.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let fail = || ParseDurationError(text.chars().take(40).collect());
    let text_trimmed = text.trim();
    let at = text_trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(fail)?;
    let (number, unit) = text_trimmed.split_at(at);
    let number: u64 = number.parse().map_err(|_| fail())?;
    let millis: u64 = match unit.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(fail()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(fail)
}

/// Prints `duration` in the largest unit that loses nothing (whole milliseconds are kept).
pub fn print(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&print(*duration))
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(d)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses() {
        for text in ["0ms", "200ms", "10s", "3m", "2h", "7d", "1500ms"] {
            assert_eq!(print(parse(text).unwrap()), text);
        }
        for text in ["", "10", "s", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
