//! The server's own revision of a key as an etag.

use emmer_store::Etag;

/// A revision as an etag.
pub fn etag_of(revision: i64) -> Etag {
    revision.to_string().into()
}

/// An etag as a revision; none for a text that is none. The text must be the one spelling of its number: an etag is
/// equal only to itself.
pub fn revision_of(etag: &str) -> Option<i64> {
    etag.parse().ok().filter(|n: &i64| *n > 0 && n.to_string() == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_spelling_is_an_etag() {
        assert_eq!(revision_of(&etag_of(17)), Some(17));
        for other in ["", "0", "-1", "+1", "01", " 1", "x", "9223372036854775808"] {
            assert_eq!(revision_of(other), None, "{other:?}");
        }
    }
}
