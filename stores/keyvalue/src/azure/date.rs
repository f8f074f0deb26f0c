//! Times as the services' signatures have them.

use emmer_core::Timestamp;

/// A time as HTTP writes it: `Sat, 21 Nov 2026 12:44:45 GMT`.
pub fn http_date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // `2026-11-21T12:44:45.000Z`; the weekday follows from the days since 1970-01-01, a Thursday.
    let text = at.to_string();
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let days = usize::try_from(at.as_millis().div_euclid(86_400_000).rem_euclid(7)).unwrap_or(0);
    let month = part(5..7).parse::<usize>().unwrap_or(1).saturating_sub(1);
    let (day, month) = (DAYS.get(days).unwrap_or(&"Thu"), MONTHS.get(month).unwrap_or(&"Jan"));
    format!("{day}, {} {month} {} {} GMT", part(8..10), part(0..4), part(11..19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_as_http_writes_them() {
        let date = |text: &str| http_date(text.parse().unwrap());
        assert_eq!(date("2026-11-21T12:44:45.999Z"), "Sat, 21 Nov 2026 12:44:45 GMT");
        assert_eq!(date("1970-01-01T00:00:00.000Z"), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
