//! Tells the program the commit it is built from, for `emmer --version`. A package from a registry
//! says none: it has its version.

use std::path::Path;
use std::process::Command;

fn main() {
    let head = git(&["rev-parse", "--git-path", "HEAD"]).unwrap_or_default();
    if !Path::new(&head).exists() {
        // Of a file that does not exist cargo would think that it changes all the time.
        println!("cargo::rerun-if-changed=build.rs");
        return;
    }
    // A commit moves the log of HEAD. Without that log only another branch is noticed.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists());
    println!("cargo::rerun-if-changed={}", log.unwrap_or(head));
    // Not EMMER_..: `cargo run` passes it on, and all those are settings.
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=COMMIT_OF_EMMER={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
