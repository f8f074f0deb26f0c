//! The order in which the rows of a partition are locked.

use std::cmp::Ordering;

use emmer_store::silos::VERSION_ROW;
use emmer_store::{Mutation, Row};

/// Order in which two row keys are locked: first the version row, where losing writers queue before
/// they hold other rows, then by bytes.
///
/// All commits lock in this order, whatever order their callers name the rows in. Otherwise two
/// commits that name each other's rows first would wait for each other until the server undoes one
/// of them, on PostgreSQL after a second.
pub fn compare(a: &str, b: &str) -> Ordering {
    (a != VERSION_ROW, a).cmp(&(b != VERSION_ROW, b))
}

/// Mutations in the order their rows are locked, each with its position in the commit, by which a
/// conflict is reported.
pub fn mutations(mutations: &[Mutation]) -> Vec<(usize, &Mutation)> {
    let mut order: Vec<(usize, &Mutation)> = mutations.iter().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| compare(a.row_key(), b.row_key()));
    order
}

/// Rows to append in the order they are locked. Of rows with one key the first stays the first.
pub fn rows(rows: &[Row]) -> Vec<&Row> {
    let mut order: Vec<&Row> = rows.iter().collect();
    order.sort_by(|a, b| compare(a.key(), b.key()));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_row_comes_first_and_the_others_by_their_bytes() {
        let keys = ["b", VERSION_ROW, "10.0.0.1-1-1", "a", "Z", "ä", "VersionRow "];
        let all: Vec<Mutation> = keys
            .iter()
            .map(|key| Mutation::Delete { row_key: (*key).to_owned(), etag: None })
            .collect();
        let found: Vec<(usize, &str)> =
            mutations(&all).into_iter().map(|(at, m)| (at, m.row_key())).collect();
        let wanted = [
            (1, VERSION_ROW),
            (2, "10.0.0.1-1-1"),
            (6, "VersionRow "),
            (4, "Z"),
            (3, "a"),
            (0, "b"),
            (5, "ä"),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn of_rows_with_one_key_the_first_stays_the_first() {
        let one = |n| Row::new("r").with("N", emmer_store::Value::Int(n));
        let all = [Row::new("s"), one(1), one(2)];
        assert_eq!(rows(&all), [&all[1], &all[2], &all[0]]);
    }
}
