//! Idle times as people write them.

use std::time::Duration;

use syn::LitStr;

pub(super) const HOW_TO_WRITE: &str =
    "write the idle time as a whole number and a unit, `ms`, `s`, `m` or `h`: `idle = \"10m\"`";

/// Longest idle time; it keeps every sum of times in range.
const IDLE_HOURS_MAX: u64 = 24 * 365;

/// The time a text such as `10m` means.
pub(super) fn parse(literal: &LitStr) -> syn::Result<Duration> {
    duration(&literal.value()).map_err(|message| syn::Error::new_spanned(literal, message))
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis_per_unit: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(HOW_TO_WRITE.to_owned()),
    };
    let number: u64 = match number.parse() {
        Ok(number) => number,
        Err(_) if number.is_empty() => return Err(HOW_TO_WRITE.to_owned()),
        Err(_) => u64::MAX,
    };
    if number == 0 {
        return Err(
            "an activation that may never be idle could never answer: write at least \"1ms\""
                .to_owned(),
        );
    }
    let max = Duration::from_secs(IDLE_HOURS_MAX * 3_600);
    match number.checked_mul(millis_per_unit).map(Duration::from_millis) {
        Some(duration) if duration <= max => Ok(duration),
        _ => Err(format!("an idle time is at most \"{IDLE_HOURS_MAX}h\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_texts_mean_what_they_say() {
        let pairs = [
            ("250ms", 250),
            ("1s", 1_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("8760h", 31_536_000_000),
        ];
        for (text, millis) in pairs {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
        }
    }

    #[test]
    fn bad_texts_are_refused_in_words() {
        for text in ["", "10", "m", "10 m", "1.5h", "-1s", "10min", "10M", "1h30m"] {
            assert_eq!(duration(text), Err(HOW_TO_WRITE.to_owned()), "{text:?}");
        }
        assert!(duration("0s").unwrap_err().contains("1ms"));
        for text in ["8761h", "99999999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).unwrap_err().contains("at most"), "{text:?}");
        }
    }
}
