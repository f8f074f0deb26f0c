//! The table for people.

use std::fmt::Write;

use emmer::store::StoredReminder;
use emmer::tables::Timestamp;

use super::Reading;
use crate::text;

pub(super) fn print(reading: &Reading) -> String {
    let many = text::grouped(reading.count as u64);
    let more = if reading.is_cut { " or more" } else { "" };
    let mut out =
        format!("service {} in {}: {many}{more} reminders", reading.service, reading.store);
    let shown = reading.reminders.len();
    if shown < reading.count {
        let _ = write!(out, ", the {shown} that are due first (--limit shows more)");
    }
    out.push('\n');
    if shown > 0 {
        out.push('\n');
        let header = ["DUE", "GRAIN", "NAME", "EVERY", "FIRED", "LAST FIRED", "MISSED", "POLICY"];
        let header = header.map(str::to_owned).to_vec();
        let rows = reading.reminders.iter().map(|one| row(one, reading.at));
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        for line in text::columns(&rows) {
            let _ = writeln!(out, "{line}");
        }
    }
    for why in &reading.refused {
        let _ = writeln!(out, "\na row that cannot be understood: {why}");
    }
    out
}

fn row(one: &StoredReminder, now: Timestamp) -> Vec<String> {
    let reminder = &one.reminder;
    let none = || "-".to_owned();
    let next = reminder.next().map(|(_, at)| at);
    vec![
        next.map_or_else(none, |at| due(at, now)),
        one.reference(),
        reminder.name.to_string(),
        reminder.schedule.period.map_or_else(|| "once".to_owned(), text::span),
        text::grouped(reminder.fired),
        reminder
            .last_fired
            .map_or_else(none, |at| format!("{} ago", text::span(now.saturating_since(at)))),
        text::grouped(reminder.missed_count),
        reminder.missed.to_string(),
    ]
}

/// `in 5m 3s`, or how late it is.
fn due(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", text::span(at.saturating_since(now)))
    } else {
        format!("{} late", text::span(now.saturating_since(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn shows_what_is_due_first() {
        let mut reading = fixture::reading();
        let expected = "\
service dev in memory://: 2 reminders

DUE       GRAIN               NAME    EVERY  FIRED  LAST FIRED  MISSED  POLICY
in 30.0s  thermostat/s.attic  report  1m 0s  2      30.0s ago   1       Once
in 2h 0m  thermostat/s.attic  once    once   0      -           0       Once
";
        assert_eq!(print(&reading), expected);
        reading.count = 12_000;
        assert!(print(&reading).contains("12,000 reminders, the 2 that are due first"));
        reading.at = reading.at + std::time::Duration::from_secs(40);
        assert!(print(&reading).contains("10.0s late"));
    }

    #[test]
    fn an_empty_table_is_one_line() {
        let mut reading = fixture::reading();
        (reading.reminders, reading.count) = (Vec::new(), 0);
        assert_eq!(print(&reading), "service dev in memory://: 0 reminders\n");
    }
}
