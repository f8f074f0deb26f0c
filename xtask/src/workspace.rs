//! The workspace as cargo sees it, and the files in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Folders that hold no source of ours.
const SKIPPED_DIRS: &[&str] = &["target", ".git", "node_modules"];

/// Files larger than this are data, not text to read.
const MAX_TEXT_BYTES: u64 = 2 * 1024 * 1024;

/// Kind of a dependency edge; only `Normal` and `Build` edges ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EdgeKind {
    /// `[dependencies]`
    Normal,
    /// `[dev-dependencies]`: tests, examples, benches.
    Dev,
    /// `[build-dependencies]`
    Build,
}

/// One member package.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The package name, such as `emmer-core`.
    pub(crate) name: String,
    /// The package's folder relative to the root, with forward slashes: `crates/core`.
    pub(crate) folder: String,
    /// Its direct dependencies that are members too, by package name.
    pub(crate) internal: BTreeMap<String, Vec<EdgeKind>>,
}

/// The root folder and the members.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Where the root `Cargo.toml` is.
    pub(crate) root: PathBuf,
    /// Every member, in cargo's order.
    pub(crate) members: Vec<Member>,
}

/// One text file of the tree.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: String,
}

impl Workspace {
    /// Asks cargo for the members. Fails with cargo's own words when a manifest is broken.
    pub(crate) fn load() -> Result<Self, String> {
        let root = root()?;
        let out = cargo(&root)
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .output()
            .map_err(|e| format!("cargo metadata did not start: {e}"))?;
        if !out.status.success() {
            return Err(format!(
                "cargo metadata failed:\n{}",
                String::from_utf8_lossy(&out.stderr)
            ));
        }
        let json =
            serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
        Ok(Self { members: members(&json, &root)?, root })
    }
}

/// A cargo command in `root`, free of the variables that `cargo run` sets for its child: left in
/// place they would reach build scripts below and make them run again.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
            || name == "CARGO_CRATE_NAME"
        {
            command.env_remove(&key);
        }
    }
    command
        .current_dir(root)
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_TERM_PROGRESS_WHEN", "never");
    command
}

/// The workspace's root: the parent of this task's own folder, or the nearest folder above the
/// current one that has a `Cargo.lock` when the tree was moved after the task was built.
pub(crate) fn root() -> Result<PathBuf, String> {
    let compiled = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf);
    let current = std::env::current_dir().map_err(|e| format!("no current folder: {e}"))?;
    let is_root = |p: &Path| p.join("Cargo.lock").is_file() && p.join("xtask").is_dir();
    let above = current.ancestors().find(|p| is_root(p)).map(Path::to_path_buf);
    above
        .or_else(|| compiled.filter(|p| is_root(p)))
        .ok_or_else(|| "run this inside the repository".to_owned())
}

/// The members in `cargo metadata --no-deps` output.
pub(crate) fn members(json: &Value, root: &Path) -> Result<Vec<Member>, String> {
    let packages = json["packages"].as_array().ok_or("cargo metadata without packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    packages.iter().map(|package| member(package, &names, root)).collect()
}

fn member(package: &Value, names: &[&str], root: &Path) -> Result<Member, String> {
    let name = package["name"].as_str().ok_or("a package without a name")?;
    let manifest =
        Path::new(package["manifest_path"].as_str().ok_or("a package without a manifest")?);
    let folder = manifest
        .parent()
        .and_then(|p| p.strip_prefix(root).ok())
        .ok_or("a member outside the root")?;
    let mut internal: BTreeMap<String, Vec<EdgeKind>> = BTreeMap::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let Some(target) = dependency["name"].as_str().filter(|n| names.contains(n)) else {
            continue;
        };
        let kind = match dependency["kind"].as_str() {
            Some("dev") => EdgeKind::Dev,
            Some("build") => EdgeKind::Build,
            _ => EdgeKind::Normal,
        };
        internal.entry(target.to_owned()).or_default().push(kind);
    }
    Ok(Member { name: name.to_owned(), folder: slashed(folder), internal })
}

/// Every text file below `root` whose name ends in one of `extensions`, plus the scripts in `.ci`,
/// sorted by path.
pub(crate) fn text_files(root: &Path, extensions: &[&str]) -> Result<Vec<TextFile>, String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|e| format!("{}: {e}", folder.display()))?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(|e| format!("{}: {e}", path.display()))?;
            if kind.is_dir() && !SKIPPED_DIRS.contains(&name.as_str()) {
                folders.push(path);
            } else if kind.is_file() && wanted(&path, extensions) {
                files.extend(read_text(root, &path)?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn wanted(path: &Path, extensions: &[&str]) -> bool {
    let script = path.extension().is_none()
        && path.parent().and_then(Path::file_name).is_some_and(|name| name == ".ci");
    script || path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x))
}

/// The file, or `None` when it is too large or not UTF-8 (then it is data), or was deleted since
/// the listing.
fn read_text(root: &Path, path: &Path) -> Result<Option<TextFile>, String> {
    let size = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    if size > MAX_TEXT_BYTES {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let relative = path.strip_prefix(root).unwrap_or(path);
    Ok(String::from_utf8(bytes).ok().map(|text| TextFile { path: slashed(relative), text }))
}

fn slashed(path: &Path) -> String {
    path.components().map(|c| c.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_only_edges_inside_the_workspace() {
        let json = serde_json::json!({ "packages": [
            { "name": "emmer-core", "manifest_path": "/r/crates/core/Cargo.toml", "dependencies": [
                { "name": "serde", "kind": null } ] },
            { "name": "emmer-wire", "manifest_path": "/r/crates/wire/Cargo.toml", "dependencies": [
                { "name": "emmer-core", "kind": null }, { "name": "emmer-core", "kind": "dev" } ] },
        ]});
        let members = members(&json, Path::new("/r")).unwrap();
        assert_eq!(members[0].folder, "crates/core");
        assert!(members[0].internal.is_empty());
        assert_eq!(members[1].internal["emmer-core"], [EdgeKind::Normal, EdgeKind::Dev]);
    }

    #[test]
    fn a_member_outside_the_root_is_an_error() {
        let json = serde_json::json!({ "packages": [
            { "name": "x", "manifest_path": "/elsewhere/Cargo.toml", "dependencies": [] } ]});
        assert!(members(&json, Path::new("/r")).is_err());
    }

    #[test]
    fn this_tree_has_this_file_and_nothing_from_target() {
        let root = root().unwrap();
        let files = text_files(&root.join("xtask"), &["rs"]).unwrap();
        assert!(files.iter().any(|f| f.path == "src/workspace.rs"));
        assert!(files.iter().all(|f| !f.path.starts_with("target/")));
    }
}
