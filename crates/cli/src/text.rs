//! Numbers, times and tables as people read them.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// [`grouped`] with a sign.
pub fn grouped_signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(number.unsigned_abs()))
}

/// A span in its two largest units: `350ms`, `4.2s`, `3m 5s`, `2h 3m`, `4d 1h`.
pub fn span(duration: Duration) -> String {
    let (millis, secs) = (duration.as_millis(), duration.as_secs());
    match secs {
        0 => format!("{millis}ms"),
        1..60 => format!("{}.{}s", secs, (millis % 1_000) / 100),
        60..3_600 => format!("{}m {}s", secs / 60, secs % 60),
        3_600..86_400 => format!("{}h {}m", secs / 3_600, secs % 3_600 / 60),
        _ => format!("{}d {}h", secs / 86_400, secs % 86_400 / 3_600),
    }
}

/// Text of others in one line, which says nothing to a terminal.
pub fn plain(text: &str) -> String {
    let shown =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Events per second; 0 for no time at all.
pub fn rate(count: u64, elapsed: Duration) -> u64 {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    count.saturating_mul(1_000).checked_div(millis).unwrap_or(0)
}

/// Rows as columns, each as wide as its widest cell, two blanks apart, no blanks at the end of a
/// line.
pub fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_numbers_and_spans() {
        let numbers: Vec<_> = [0, 999, 1_000, 336_776, 1_234_567].map(grouped).into();
        assert_eq!(numbers, ["0", "999", "1,000", "336,776", "1,234,567"]);
        assert_eq!(grouped_signed(-12_345), "-12,345");
        let spans: Vec<_> = [0, 999, 1_000, 4_250, 60_000, 185_000, 7_380_000, 349_200_000]
            .map(|ms| span(Duration::from_millis(ms)))
            .into();
        assert_eq!(spans, ["0ms", "999ms", "1.0s", "4.2s", "1m 0s", "3m 5s", "2h 3m", "4d 1h"]);
        assert_eq!((rate(500, Duration::from_millis(250)), rate(5, Duration::ZERO)), (2_000, 0));
    }

    #[test]
    fn aligns_columns() {
        let rows =
            [vec!["A".into(), "LONG".into()], vec!["longer".into(), "x".into()], vec!["z".into()]];
        assert_eq!(columns(&rows), ["A       LONG", "longer  x", "z"]);
    }
}
