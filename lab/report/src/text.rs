//! A table as text: for the terminal, as CSV, as JSON lines.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{Cell, Report};

impl Report {
    /// The table for a terminal: title, aligned columns, goals.
    pub fn to_text(&self) -> String {
        let cells: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let width = |column: usize| {
            let longest = cells
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max();
            longest.unwrap_or(0).max(self.columns[column].chars().count())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = format!("{}\n\n", self.title);
        let header: Vec<String> = self.columns.iter().map(|&name| name.to_owned()).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        for row in [&header, &rule].into_iter().chain(&cells) {
            let mut line = String::new();
            for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Names to the left, numbers to the right.
                let left = number == 0
                    || self.rows.iter().all(|row| matches!(row.get(number), Some(Cell::Text(_))));
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                let _ = if left {
                    write!(line, "{cell}{padding}  ")
                } else {
                    write!(line, "{padding}{cell}  ")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let goals = self.goals_text();
        if !goals.is_empty() {
            text.push('\n');
            text.push_str(&goals);
        }
        text
    }

    /// The table as CSV with a header line (RFC 4180).
    pub fn to_csv(&self) -> String {
        let line = |cells: Vec<String>| {
            cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",")
        };
        let mut text = line(self.columns.iter().map(|&name| name.to_owned()).collect());
        text.push_str("\r\n");
        for row in &self.rows {
            let cells = row
                .iter()
                .map(|cell| if *cell == Cell::Nothing { String::new() } else { cell.text() });
            text.push_str(&line(cells.collect()));
            text.push_str("\r\n");
        }
        text
    }

    /// The table as one JSON object for each row.
    pub fn to_json_lines(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let object: Map<String, Value> = self
                .columns
                .iter()
                .zip(row)
                .map(|(&name, cell)| (name.to_owned(), value(cell)))
                .collect();
            text.push_str(&Value::Object(object).to_string());
            text.push('\n');
        }
        text
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Number(number, decimals) => {
            let scale = 10f64.powi(i32::from(*decimals));
            Value::from((number * scale).round() / scale)
        }
        Cell::Count(count) => Value::from(*count),
        Cell::Nothing => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("demo", "A demo", &["what", "n", "p50 s"]);
        report.push(vec!["a, \"b\"".into(), 7u64.into(), Cell::Number(0.12345, 3)]);
        report.push(vec!["c".into(), 1_000u64.into(), Cell::Nothing]);
        report
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        assert_eq!(report().to_csv(), "what,n,p50 s\r\n\"a, \"\"b\"\"\",7,0.123\r\nc,1000,\r\n");
    }

    #[test]
    fn json_lines_keep_types() {
        let text = report().to_json_lines();
        let rows: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((rows[0]["n"].as_u64(), rows[0]["p50 s"].as_f64()), (Some(7), Some(0.123)));
        assert!(rows[1]["p50 s"].is_null());
    }

    #[test]
    fn columns_line_up() {
        let text = report().to_text();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[0], "what       n  p50 s");
        assert_eq!(lines[3], "c       1000      -");
    }
}
