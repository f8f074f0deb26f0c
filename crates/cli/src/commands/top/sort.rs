//! Cells of a table that can be sorted.

use std::cmp::Ordering;

/// A cell: its text, and its place in the order of its column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) order: Order,
}

/// The value by which cells are sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    Number(f64),
    Text(String),
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { order: Order::Text(text.to_lowercase()), text }
    }

    /// A number, as this text.
    pub(super) const fn number(text: String, number: f64) -> Self {
        Self { text, order: Order::Number(number) }
    }

    /// Numbers stand at the right end of their column.
    pub(super) const fn is_number(&self) -> bool {
        matches!(self.order, Order::Number(_))
    }

    /// Numbers are sorted the largest first, texts by the alphabet.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (&self.order, &other.order) {
            (Order::Number(a), Order::Number(b)) => b.total_cmp(a),
            (Order::Text(a), Order::Text(b)) => a.cmp(b),
            (Order::Number(_), Order::Text(_)) => Ordering::Less,
            (Order::Text(_), Order::Number(_)) => Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_and_early_letters_come_first() {
        let number = |n: f64| Cell::number(n.to_string(), n);
        let mut cells = [Cell::text("b"), number(1.0), Cell::text("A"), number(20.0)];
        cells.sort_by(Cell::compare);
        let texts: Vec<_> = cells.iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!(texts, ["20", "1", "A", "b"]);
    }
}
