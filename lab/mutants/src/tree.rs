//! The copy of the workspace that mutants are compiled in, below `target/mutants`. The real tree is
//! only read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::weave::{self, Woven};
use super::{Ground, Mutant};
use crate::workspace::{self, SKIPPED};

/// The profile: the simulator's, compiled for this run's balance of compile time and speed.
const PROFILE: &[&str] = &[
    "profile.mutants.inherits=\"sim\"",
    "profile.mutants.opt-level=2",
    "profile.mutants.codegen-units=16",
    "profile.mutants.incremental=true",
    "profile.mutants.debug=false",
];

/// The most times the compiler is asked again after mutants that do not compile were taken out.
const ROUNDS_MAX: u32 = 8;

/// The copy and where it is compiled.
pub(crate) struct Tree {
    ground: Ground,
    root: PathBuf,
    folder: PathBuf,
    build: PathBuf,
}

/// Target of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The simulator's examples.
    Hunt,
    /// The unit tests of the mutated crates.
    Tests,
}

/// An example or a test binary.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// The package's folder in the copy, where its tests run.
    pub(crate) folder: PathBuf,
    pub(crate) path: PathBuf,
}

/// Result of a compilation.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Built {
    /// Of which sources and mutants.
    of: String,
    pub(crate) programs: Vec<Program>,
    /// Mutants that do not compile, with the compiler's words.
    pub(crate) rejected: BTreeMap<u32, String>,
}

impl Built {
    /// Returns true if the programs still exist.
    fn is_there(&self) -> bool {
        self.programs.iter().all(|program| program.path.is_file())
    }
}

impl Tree {
    pub(crate) fn new(root: &Path, ground: Ground) -> Self {
        let below = root.join("target").join("mutants");
        let folder = below.join(ground.tree());
        Self { ground, root: root.to_path_buf(), folder, build: below.join("build") }
    }

    pub(crate) fn results(&self) -> PathBuf {
        self.root.join("target").join("mutants").join("results")
    }

    /// Weaves `mutants` in and compiles; takes out what does not compile, until the rest does.
    pub(crate) fn compile(&self, mutants: &[(u32, &Mutant)], what: What) -> Result<Built, String> {
        let of = self.key(mutants, what)?;
        let known =
            self.root.join("target/mutants").join(format!("built-{:?}-{what:?}.json", self.ground));
        let built =
            std::fs::read_to_string(&known).ok().and_then(|text| serde_json::from_str(&text).ok());
        if let Some(built) = built.filter(|built: &Built| built.of == of && built.is_there()) {
            return Ok(built);
        }
        let built = Built { of, ..self.compile_anew(mutants, what)? };
        let text = format!("{}\n", json!(built));
        std::fs::write(&known, text).map_err(|e| format!("{}: {e}", known.display()))?;
        Ok(built)
    }

    /// A hash of everything that is compiled.
    fn key(&self, mutants: &[(u32, &Mutant)], what: What) -> Result<String, String> {
        let mut hash = Xxh3::new();
        hash.update(&self.fingerprint(what)?.to_le_bytes());
        for (number, mutant) in mutants {
            let Mutant { file, at, after, .. } = mutant;
            hash.update(format!("{number} {file} {} {} {after}\n", at.start, at.end).as_bytes());
        }
        Ok(format!("{:032x}", hash.digest128()))
    }

    fn compile_anew(&self, mutants: &[(u32, &Mutant)], what: What) -> Result<Built, String> {
        let mut rejected = BTreeMap::new();
        for _ in 0..ROUNDS_MAX {
            let left: Vec<(u32, &Mutant)> =
                mutants.iter().filter(|(n, _)| !rejected.contains_key(n)).copied().collect();
            let woven = self.weave(&left)?;
            self.write(&woven)?;
            let (programs, errors) = self.cargo(what)?;
            if errors.is_empty() {
                return Ok(Built { of: String::new(), programs, rejected });
            }
            let mut found = 0;
            for error in &errors {
                if let Some(number) = blame(error, &woven) {
                    let text = error["message"].as_str().unwrap_or("it does not compile");
                    found += usize::from(rejected.insert(number, text.to_owned()).is_none());
                }
            }
            if found == 0 {
                let text = errors.iter().filter_map(|e| e["rendered"].as_str()).take(3);
                return Err(format!("the copy does not compile:\n{}", text.collect::<String>()));
            }
        }
        Err(format!("the copy does not compile after {ROUNDS_MAX} rounds of leaving mutants out"))
    }

    fn weave(&self, mutants: &[(u32, &Mutant)]) -> Result<BTreeMap<String, Woven>, String> {
        let mut by_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in mutants {
            by_file.entry(&mutant.file).or_default().push((*number, mutant));
        }
        let mut files = Vec::new();
        for (folder, _) in self.ground.crates() {
            let sources = self.root.join(folder).join("src");
            for file in workspace::text_files(&sources, &["rs"])? {
                files.push((format!("{folder}/src/{}", file.path), file));
            }
        }
        let mutants_of = |path: &str| by_file.get(path).map_or(&[][..], Vec::as_slice);
        let pairs: Vec<_> =
            files.iter().map(|(path, file)| (file.text.as_str(), mutants_of(path))).collect();
        let inconstant = weave::inconstant(&pairs)?;
        let mut woven = BTreeMap::new();
        for (path, file) in &files {
            let mut one = weave::weave(&file.text, mutants_of(path), &inconstant)
                .map_err(|e| format!("{path}: {e}"))?;
            if file.path == "lib.rs" {
                one.text += weave::CHOICE;
            }
            woven.insert(path.clone(), one);
        }
        Ok(woven)
    }

    /// Makes the copy equal to the tree, but for `woven`. Files that are right already keep their
    /// time.
    fn write(&self, woven: &BTreeMap<String, Woven>) -> Result<(), String> {
        let mut kept = BTreeSet::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for (path, is_folder) in entries(&self.root, &folder)? {
                if is_folder {
                    folders.push(path);
                    continue;
                }
                let name = path.to_string_lossy().replace('\\', "/");
                let bytes = match woven.get(&name) {
                    Some(one) => one.text.clone().into_bytes(),
                    None => read(&self.root.join(&path))?,
                };
                let to = self.folder.join(&path);
                if std::fs::read(&to).is_ok_and(|old| old == bytes) {
                    kept.insert(path);
                    continue;
                }
                let parent = to.parent().unwrap_or(&self.folder);
                std::fs::create_dir_all(parent)
                    .map_err(|e| format!("{}: {e}", parent.display()))?;
                std::fs::write(&to, bytes).map_err(|e| format!("{}: {e}", to.display()))?;
                kept.insert(path);
            }
        }
        self.forget_all_but(&kept)
    }

    fn forget_all_but(&self, kept: &BTreeSet<PathBuf>) -> Result<(), String> {
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for (path, is_folder) in entries(&self.folder, &folder)? {
                if is_folder {
                    folders.push(path);
                } else if !kept.contains(&path) {
                    let gone = self.folder.join(&path);
                    std::fs::remove_file(&gone).map_err(|e| format!("{}: {e}", gone.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Compiles the copy: the programs, or the errors.
    fn cargo(&self, what: What) -> Result<(Vec<Program>, Vec<Value>), String> {
        let mut command = workspace::cargo(&self.folder);
        match what {
            What::Hunt => {
                let hunter = self.ground.hunter().ok_or("nothing hunts here but unit tests")?;
                let package = hunter.replace("lab/", "emmer-");
                command.args(["build", "--package", &package, "--example", "hunt"]);
            }
            What::Tests => {
                command.args(["test", "--no-run"]);
                for (_, package) in self.ground.crates() {
                    command.args(["--package", package]);
                }
            }
        }
        command.args(["--profile", "mutants", "--message-format", "json"]);
        command.arg("--target-dir").arg(&self.build);
        for setting in PROFILE {
            command.args(["--config", setting]);
        }
        let out = command
            .stderr(Stdio::piped())
            .output()
            .map_err(|e| format!("cargo did not start: {e}"))?;
        let mut programs = Vec::new();
        let mut errors = Vec::new();
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
            if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
                errors.push(message["message"].clone());
            }
            if let Some(path) = message["executable"].as_str().map(PathBuf::from) {
                let name = message["target"]["name"].as_str().unwrap_or_default().to_owned();
                let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
                let folder = manifest.parent().unwrap_or(&self.folder).to_path_buf();
                programs.push(Program { name, folder, path });
            }
        }
        if !out.status.success() && errors.is_empty() {
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            return Err(format!("cargo failed:\n{text}"));
        }
        Ok((programs, errors))
    }

    /// Digest of everything that a result depends on besides the mutant: every source that a hunt,
    /// or a crate's tests, are made of.
    pub(crate) fn fingerprint(&self, what: What) -> Result<u128, String> {
        let mut hash = Xxh3::new();
        let hunter = self.ground.hunter();
        for name in self.ground.sources() {
            let folder = self.root.join(name);
            if (what == What::Tests && Some(*name) == hunter) || !folder.is_dir() {
                continue;
            }
            for file in workspace::text_files(&folder, &["rs", "toml", "txt"])? {
                let counts = file.path.starts_with("src/")
                    || (Some(*name) == hunter && file.path.starts_with("examples/hunt"))
                    || (what == What::Tests && file.path.starts_with("tests/"));
                if counts {
                    hash.update(name.as_bytes());
                    hash.update(file.path.as_bytes());
                    hash.update(file.text.as_bytes());
                }
            }
        }
        Ok(hash.digest128())
    }
}

/// The mutant whose lines the error is about.
fn blame(error: &Value, woven: &BTreeMap<String, Woven>) -> Option<u32> {
    let spans = error["spans"].as_array()?;
    let primary = spans.iter().filter(|span| span["is_primary"] == true);
    primary.chain(spans).find_map(|span| {
        let file = span["file_name"].as_str()?.replace('\\', "/");
        let line = usize::try_from(span["line_start"].as_u64()?).ok()?;
        let lines = &woven.get(&file)?.lines;
        lines.iter().find(|(range, _)| range.contains(&line)).map(|(_, number)| *number)
    })
}

/// Contents of `folder` in `root`, as paths from `root`, without folders that are not copied.
fn entries(root: &Path, folder: &Path) -> Result<Vec<(PathBuf, bool)>, String> {
    let full = root.join(folder);
    let say = |e: std::io::Error| format!("{}: {e}", full.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&full).map_err(say)? {
        let entry = entry.map_err(say)?;
        let kind = entry.file_type().map_err(say)?;
        let name = entry.file_name();
        if kind.is_dir() && SKIPPED.iter().any(|skipped| name == *skipped) {
            continue;
        }
        if kind.is_dir() || kind.is_file() {
            let is_git_link = folder.as_os_str().is_empty() && name == ".git";
            if !is_git_link {
                found.push((folder.join(name), kind.is_dir()));
            }
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_is_blamed_on_the_mutant_in_whose_lines_it_is() {
        let woven = Woven { text: String::new(), lines: vec![(3..6, 7), (6..9, 8)] };
        let woven = BTreeMap::from([("crates/a/src/b.rs".to_owned(), woven)]);
        let error = |line: u32| json!({ "spans": [{ "file_name": "crates/a/src/b.rs", "line_start": line, "is_primary": true }] });
        assert_eq!(blame(&error(5), &woven), Some(7));
        assert_eq!(blame(&error(6), &woven), Some(8));
        assert_eq!(blame(&error(9), &woven), None);
    }
}
