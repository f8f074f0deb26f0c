//! Statements of pages about the code are true.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use emmer::config::Settings;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// All Rust sources below a folder, with texts that are broken over lines made whole.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            for line in text.lines() {
                match line.strip_suffix('\\') {
                    Some(broken) => into.push_str(broken.trim_start()),
                    None => into.extend([line.trim_start(), "\n"]),
                }
            }
        }
    }
}

#[test]
fn every_message_of_the_troubleshooting_page_is_in_the_sources() {
    let mut code = String::new();
    for folder in ["crates", "stores"] {
        sources(&root().join(folder), &mut code);
    }
    let page = page("troubleshooting.md");
    let messages: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(messages.len() > 20, "{messages:?}");
    for message in messages {
        assert!(code.contains(message), "no source says {message:?}");
    }
}

/// A number as pages write it: `10,000`, `16 MiB`, `ten million`, `30 s`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text {
        "a million" => return Some(1_000_000),
        "ten million" => return Some(10_000_000),
        _ => {}
    }
    let (digits, unit) = text.split_once(' ').unwrap_or((text, ""));
    let digits: u64 = digits.replace(',', "").parse().ok()?;
    Some(match unit {
        "MiB" => digits << 20,
        "min" => digits * 60_000,
        "s" => digits * 1_000,
        "" => digits,
        _ => return None,
    })
}

/// A value as settings have it: `10000`, `30s`.
fn value(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| {
        let time = emmer::membership::humantime::parse(text).unwrap();
        u64::try_from(time.as_millis()).unwrap()
    })
}

#[test]
fn the_limits_of_the_page_are_those_of_the_code() {
    let settings = Settings::default().effective().unwrap();
    let settings: BTreeMap<_, _> =
        settings.into_iter().filter_map(|one| Some((one.key, one.value?))).collect();
    let page = page("limits.md");
    let mut compared = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let bound = row.split('|').nth(2).unwrap().trim();
        let Some((key, rest)) = bound.split_once('`').and_then(|(_, rest)| rest.split_once('`'))
        else {
            continue;
        };
        let Some(set) = settings.get(key) else {
            assert!(key == "calls_waiting_max", "{key} is no setting");
            continue;
        };
        let told = rest.trim_start_matches([',', ' ']).split([',', '.']);
        // Digits may be parted by a comma: the longest beginning that is a number.
        let told: Vec<_> = told.map(str::trim).collect();
        let told = (1..=told.len()).rev().find_map(|n| number(&told[..n].join(",")));
        assert_eq!(told, Some(value(set)), "{key}");
        compared += 1;
    }
    assert!(compared >= 10, "{compared}");
    let fixed = [
        ("a text key | 1,024 bytes", emmer::limits::GRAIN_KEY_BYTES_MAX, 1_024),
        ("a chain of nested calls | 64", emmer::limits::CALL_CHAIN_MAX, 64),
        ("the name of a silo | 256 bytes", emmer::limits::NAME_BYTES_MAX, 256),
    ];
    for (text, is, told) in fixed {
        assert!(page.contains(text) && is == told, "{text}: {is}");
    }
}
