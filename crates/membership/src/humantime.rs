//! Durations as people write them: `"200ms"`, `"10s"`, `"1h 30m"`, `"7d"`.
//!
//! Used for every duration in [`Config`](crate::Config), so that a TOML file and an environment
//! variable read the same. A number without a unit is refused: ten what?

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};
use serde::{Deserialize, Deserializer, Serializer};

/// The text was not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: expected a number and ms, s, m, h or d, as in 200ms")]
pub struct ParseDurationError(String);

/// Parses `text`. A day has 24 hours.
///
/// # Errors
/// [`ParseDurationError`] when it is not a number followed by a unit (or several of both), too
/// large, negative, or not a whole number of milliseconds.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    let fail = || ParseDurationError(text.chars().take(40).collect());
    let span: Span = text.trim().parse().map_err(|_| fail())?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| fail())?;
    let duration = Duration::try_from(signed).map_err(|_| fail())?;
    if duration.subsec_nanos().is_multiple_of(1_000_000) { Ok(duration) } else { Err(fail()) }
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
        for (text, same) in [("1.5s", "1500ms"), ("1h 30m", "90m"), ("36h", "36h"), ("48h", "2d")] {
            assert_eq!(print(parse(text).unwrap()), same);
        }
        for text in ["", "10", "s", "-1s", "10us", "99999999999999999999s", "9223372036854775807d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
