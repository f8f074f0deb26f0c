//! The vectors of `docs/wire.md` are what the code writes and reads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // In helpers of tests, too.

use std::collections::BTreeMap;

use crate::common::{decode_whole, samples};

const PAGE: &str = include_str!("../../../../docs/wire.md");

/// The fenced blocks of the page marked `hex NAME`, comments left out.
fn vectors() -> BTreeMap<&'static str, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let digits: String = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .flat_map(|line| line.split('#').next())
            .flat_map(str::split_whitespace)
            .collect();
        let bytes = (0..digits.len())
            .step_by(2)
            .map(|i| {
                u8::from_str_radix(&digits[i..i + 2], 16)
                    .unwrap_or_else(|_| panic!("{name}: not hex"))
            })
            .collect();
        assert!(found.insert(name, bytes).is_none(), "{name} stands on the page twice");
    }
    found
}

#[test]
fn every_vector_of_the_page_is_what_the_code_writes_and_reads() {
    let mut vectors = vectors();
    for (name, message) in samples() {
        let vector =
            vectors.remove(name).unwrap_or_else(|| panic!("{name} is missing on the page"));
        assert_eq!(
            &message.bytes()[..],
            &vector[..],
            "{name}: written {:02x?}",
            &message.bytes()[..]
        );
        assert_eq!(decode_whole(&vector).as_ref(), Ok(&message), "{name}");
    }
    assert!(vectors.is_empty(), "on the page only: {:?}", vectors.keys());
}

#[test]
fn every_kind_of_frame_has_a_vector() {
    let kinds: std::collections::BTreeSet<u8> = vectors().values().map(|bytes| bytes[4]).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// Numbers and names in the page's tables are those of the code.
#[test]
fn the_tables_of_codes_are_those_of_the_code() {
    let row = |number: u8, name: String| {
        assert!(
            PAGE.contains(&format!("\n| {number} | {name} | ")),
            "{number} {name} is not on the page"
        );
    };
    for number in 1..=u8::MAX {
        if let Ok(kind) = emmer_wire::FrameKind::try_from(number) {
            assert_eq!(kind as u8, number);
            row(number, format!("{kind:?}"));
        }
        if let Ok(code) = emmer_wire::FailureCode::try_from(number) {
            assert_eq!(u8::from(emmer_wire::ResponseStatus::Failed(code)), number);
            row(number, format!("{code:?}"));
        }
        let refuse = emmer_wire::RefuseCode::from(number);
        assert_eq!(u8::from(refuse), number);
        if !matches!(refuse, emmer_wire::RefuseCode::Other(_)) {
            row(number, format!("{refuse:?}"));
        }
        let goodbye = emmer_wire::GoodbyeCode::from(number);
        assert_eq!(u8::from(goodbye), number);
        if !matches!(goodbye, emmer_wire::GoodbyeCode::Other(_)) {
            row(number, format!("{goodbye:?}"));
        }
    }
}
