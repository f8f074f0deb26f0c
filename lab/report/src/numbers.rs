//! The book's table of numbers: figures that were reached, each next to its goal.
//!
//! Each row belongs to a measurement and names its value. A measurement that runs again replaces
//! its own rows and leaves the others alone.

use std::path::Path;
use std::{env, fs, io};

use jiff::Timestamp;

use crate::Goal;

/// The variable of the environment that names the page; nothing is recorded without it.
pub const PAGE: &str = "LAB_NUMBERS";

/// The line before the rows.
const HEAD: &str = "|---|---|---|---|---|---|";

/// Records goals of a measurement in the page that the environment names.
///
/// # Errors
/// When the page cannot be read or written, or has no table.
pub fn record(measurement: &str, goals: &[Goal]) -> io::Result<()> {
    let Some(page) = env::var_os(PAGE).filter(|_| !goals.is_empty()) else { return Ok(()) };
    let page = Path::new(&page);
    let day: String = Timestamp::now().to_string().chars().take(10).collect();
    let text = fs::read_to_string(page)?;
    let renewed = renewed(&text, measurement, goals, &day).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} has no table", page.display()))
    })?;
    fs::write(page, renewed)
}

/// The page with the rows of a measurement replaced; none when it has no table.
fn renewed(page: &str, measurement: &str, goals: &[Goal], day: &str) -> Option<String> {
    let (before, rest) = page.split_once(HEAD)?;
    let rest = rest.trim_start_matches('\n');
    let (rows, after) = rest.split_once("\n\n").unwrap_or_else(|| (rest.trim_end(), ""));
    let own = format!("| {measurement} |");
    let mut rows: Vec<String> =
        rows.lines().filter(|row| !row.starts_with(&own)).map(str::to_owned).collect();
    rows.extend(goals.iter().map(|goal| row(measurement, goal, day)));
    // Rows of one measurement stay in their order.
    rows.sort_by(|a, b| a.split('|').nth(1).cmp(&b.split('|').nth(1)));
    let end = if after.is_empty() { String::new() } else { format!("\n{after}") };
    Some(format!("{before}{HEAD}\n{}\n{end}", rows.join("\n")))
}

fn row(measurement: &str, goal: &Goal, day: &str) -> String {
    let reached = goal.reached.map_or_else(|| "-".to_owned(), short);
    let verdict = if goal.is_met() { "reached" } else { "**missed**" };
    let what = goal.what.replace('|', "/");
    format!("| {measurement} | {what} | {} | {reached} | {verdict} | {day} |", goal.at_most)
}

/// A number with three significant digits, or whole when it is large.
fn short(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "# N\n\n| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n";

    #[test]
    fn a_measurement_replaces_its_own_rows_only() {
        let goals = [Goal::at_most("p50, ms", 4.216, 5.0), Goal::at_most("p99, ms", 120.7, 100.0)];
        let first = renewed(EMPTY, "kill", &goals, "2026-11-28").unwrap();
        assert!(first.ends_with(
            "| kill | p50, ms | 5 | 4.22 | reached | 2026-11-28 |\n\
             | kill | p99, ms | 100 | 121 | **missed** | 2026-11-28 |\n"
        ));
        let second = renewed(&first, "boot", &goals[..1], "2026-11-29").unwrap();
        let third = renewed(&second, "kill", &goals[..1], "2026-11-30").unwrap();
        let rows: Vec<_> = third.lines().skip(4).collect();
        assert_eq!(
            rows,
            [
                "| boot | p50, ms | 5 | 4.22 | reached | 2026-11-29 |",
                "| kill | p50, ms | 5 | 4.22 | reached | 2026-11-30 |"
            ]
        );
    }

    #[test]
    fn what_stands_behind_the_table_stays() {
        let page = format!("{EMPTY}| kill | x | 1 | 1 | reached | d |\n\nMore text.\n");
        let renewed = renewed(&page, "kill", &[Goal::at_most("y", None, 1.0)], "d").unwrap();
        assert!(renewed.ends_with("| kill | y | 1 | - | **missed** | d |\n\nMore text.\n"));
        assert_eq!(super::renewed("# N\n", "kill", &[], "d"), None);
    }
}
