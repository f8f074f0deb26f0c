//! Reports of tests to `cargo xtask test --stores` for its table: lines in a file that the
//! environment names.
//!
//! Not on the standard output: the test harness captures that of tests that pass.

use std::fs::File;
use std::io::Write;

/// The variable that names the file. Without it nothing is reported.
pub const VARIABLE: &str = "EMMER_TEST_REPORT";

/// The conformance suite passed with `cases` cases on a server of `version`; `store` is its URL
/// scheme.
pub fn conformed(store: &str, version: &str, cases: usize) {
    write(&format!("conformed\t{store}\t{version}\t{cases}"));
}

/// The tests of `store` that need a server did not run, and are not expected to on this machine.
pub fn not_run(store: &str, why: &str) {
    println!("NOT RUN {store}: {why}");
    write(&format!("not run\t{store}\t{why}"));
}

/// A test was skipped.
pub(crate) fn skipped(test: &str, why: &str) {
    write(&format!("skipped\t{test}\t{why}"));
}

fn write(line: &str) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let line = line.replace(['\n', '\r'], " ") + "\n";
    let opened = File::options().create(true).append(true).open(&path);
    // In one piece: several test programs write at once.
    if let Err(error) = opened.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("{}: {error}", path.display());
    }
}
