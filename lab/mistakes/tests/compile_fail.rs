//! Users' mistakes with the macros, one file each: every one is a compile error at the user's own
//! code that says what to write instead.
//!
//! `ui/` holds the macros' own errors. In `ui/rustc/` the compiler speaks, partly in the traits'
//! words. Its other words change from version to version, so these are compared with one version
//! only. `TRYBUILD=overwrite cargo test -p emmer-mistakes` writes the expected outputs: read them.

use std::io;
use std::process::Command;

/// Whose words `ui/rustc/` holds.
const RUSTC: &str = "rustc 1.95.";

#[test]
fn mistakes_are_compile_errors_that_say_what_to_write() -> io::Result<()> {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    let rustc = rustc()?;
    if rustc.starts_with(RUSTC) {
        cases.compile_fail("tests/ui/rustc/*.rs");
    } else {
        eprintln!("not compared: tests/ui/rustc holds the words of {RUSTC}, this is {rustc}");
    }
    Ok(())
}

fn rustc() -> io::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
