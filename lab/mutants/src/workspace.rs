//! The workspace: its root, its files, and cargo in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

/// Folders that hold no source of ours.
pub(crate) const SKIPPED: &[&str] = &["target", ".git", "node_modules"];

/// One text file of the tree.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    /// Relative to the folder that was looked through, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The folder with `Cargo.lock`, at the current folder or above it.
pub(crate) fn root() -> Result<PathBuf, String> {
    let current = std::env::current_dir().map_err(|e| format!("no current folder: {e}"))?;
    let is_root = |p: &&Path| p.join("Cargo.lock").is_file() && p.join("lab/mutants").is_dir();
    let found = current.ancestors().find(is_root).map(Path::to_path_buf);
    found.ok_or_else(|| "run this inside the repository".to_owned())
}

/// A cargo command in `root`, free of the variables that `cargo run` sets for its child: left in
/// place they would reach build scripts below and make them run again.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME"].iter().any(|p| name.starts_with(p))
        {
            command.env_remove(&key);
        }
    }
    command.current_dir(root).env("CARGO_TERM_COLOR", "never");
    command.env("CARGO_TERM_PROGRESS_WHEN", "never");
    command
}

/// Every file below `folder` whose name ends in one of `extensions`, sorted by path.
pub(crate) fn text_files(folder: &Path, extensions: &[&str]) -> Result<Vec<TextFile>, String> {
    let is_wanted =
        |path: &Path| path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x));
    let mut files = Vec::new();
    let is_ours = |name: &std::ffi::OsStr| !SKIPPED.iter().any(|skipped| name == *skipped);
    for entry in WalkDir::new(folder).into_iter().filter_entry(|e| is_ours(e.file_name())) {
        let entry = entry.map_err(|e| e.to_string())?;
        if entry.file_type().is_file() && is_wanted(entry.path()) {
            let say = |e: std::io::Error| format!("{}: {e}", entry.path().display());
            let text = std::fs::read_to_string(entry.path()).map_err(say)?;
            let path = entry.path().strip_prefix(folder).unwrap_or_else(|_| entry.path());
            files.push(TextFile { path: path.to_string_lossy().replace('\\', "/"), text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
