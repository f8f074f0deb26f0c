//! The server's own revision of a key as an etag.

use emmer_store::{Etag, Mutation};

/// A revision as an etag.
pub fn etag_of(revision: i64) -> Etag {
    revision.to_string().into()
}

/// An etag as a revision; None for other texts. The text must be the one spelling of its number: an
/// etag is equal only to itself.
pub fn revision_of(etag: &str) -> Option<i64> {
    etag.parse().ok().filter(|n: &i64| *n > 0 && n.to_string() == etag)
}

/// Returns true if the condition of a mutation holds for a row of this revision, or for none.
pub fn holds(mutation: &Mutation, now: Option<i64>) -> bool {
    mutation.holds_where(now, |now, etag| revision_of(etag) == Some(now))
}

#[cfg(test)]
mod tests {
    use emmer_store::Row;

    use super::*;

    #[test]
    fn conditions_hold_for_their_revision_only() {
        let row = || Row::new("r");
        let row_key = || "r".to_owned();
        let etag = |text: &str| Etag::from(text);
        for (mutation, missing, seven) in [
            (Mutation::Insert { row: row() }, true, false),
            (Mutation::Upsert { row: row() }, true, true),
            (Mutation::Replace { row: row(), etag: etag("7") }, false, true),
            (Mutation::Replace { row: row(), etag: etag("8") }, false, false),
            (Mutation::Delete { row_key: row_key(), etag: None }, false, true),
            (Mutation::Delete { row_key: row_key(), etag: Some(etag("8")) }, false, false),
            (Mutation::Check { row_key: row_key(), etag: etag("7") }, false, true),
            (Mutation::Check { row_key: row_key(), etag: etag("no number") }, false, false),
        ] {
            assert_eq!(
                (holds(&mutation, None), holds(&mutation, Some(7))),
                (missing, seven),
                "{mutation:?}"
            );
        }
    }

    #[test]
    fn only_one_spelling_is_an_etag() {
        assert_eq!(revision_of(&etag_of(17)), Some(17));
        for other in ["", "0", "-1", "+1", "01", " 1", "x", "9223372036854775808"] {
            assert_eq!(revision_of(other), None, "{other:?}");
        }
    }
}
