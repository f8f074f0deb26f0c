//! Pages of grains of several silos as one, and keys as people write them.

use emmer_core::{GrainKey, SiloAddress};
use emmer_runtime::admin::{GrainPage, GrainRow};
use uuid::Uuid;

/// Merges the pages of all silos by the places on the ring, to about `limit` rows. The second value
/// is the place to continue after; none if these are the last.
pub fn merge_pages(
    pages: impl IntoIterator<Item = (SiloAddress, GrainPage)>,
    limit: usize,
) -> (Vec<(SiloAddress, GrainRow)>, Option<u64>) {
    let (mut rows, mut end) = (Vec::new(), None::<u64>);
    for (silo, page) in pages {
        end = [end, page.next].into_iter().flatten().min();
        rows.extend(page.grains.into_iter().map(|row| (silo, row)));
    }
    // A silo that has more may have the next row anywhere behind its page.
    rows.retain(|(_, row)| end.is_none_or(|end| row.place <= end));
    rows.sort_by_key(|(_, row)| row.place);
    if let Some((_, last)) = rows.get(limit.max(1) - 1).filter(|_| rows.len() > limit) {
        let last = last.place;
        rows.retain(|(_, row)| row.place <= last);
        end = Some(last);
    }
    (rows, end)
}

/// Reads a key of a type whose keys are of this kind: `text`, `uint`, `int` or `uuid`.
///
/// # Errors
/// The text is no such key, in words.
pub fn key_of(kind: &str, text: &str) -> Result<GrainKey, String> {
    let key = match kind {
        "uint" => text.parse::<u64>().ok().map(GrainKey::from),
        "int" => text.parse::<i64>().ok().map(GrainKey::from),
        "uuid" => text.parse::<Uuid>().ok().map(GrainKey::from),
        _ => Some(GrainKey::from(text)),
    };
    let expected = match kind {
        "uint" => "a number that is not negative",
        "int" => "a number",
        _ => "a UUID",
    };
    key.ok_or_else(|| format!("the key {text:?}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_form_that_its_type_says() {
        assert_eq!(key_of("text", "17").unwrap(), GrainKey::from("17"));
        assert_eq!(key_of("uint", "17").unwrap(), GrainKey::from(17_u64));
        assert_eq!(key_of("int", "-17").unwrap(), GrainKey::from(-17_i64));
        for (kind, text) in [("uint", "-1"), ("int", "x"), ("uuid", "17")] {
            assert!(key_of(kind, text).is_err(), "{kind} {text}");
        }
    }
}
