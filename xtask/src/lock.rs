//! Whether the committed `Cargo.lock` fits the committed manifests.
//!
//! `--locked` alone cannot tell: cargo has already brought the lock file up to date when it
//! compiled this task. What it leaves behind is a changed lock file beside unchanged manifests.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::report::{Row, Verdict};

/// Asks git. Outside a git work tree there is nothing to compare with.
pub(crate) fn check(root: &Path) -> Row {
    let start = Instant::now();
    let args = [
        "status",
        "--porcelain",
        "--untracked-files=all",
        "--",
        "Cargo.lock",
        "Cargo.toml",
        "*/Cargo.toml",
    ];
    let out = Command::new("git").current_dir(root).args(args).output();
    let verdict = match out {
        Ok(out) if out.status.success() => verdict(&String::from_utf8_lossy(&out.stdout)),
        Ok(_) | Err(_) => {
            Verdict::Skipped("no git work tree to compare Cargo.lock with".to_owned())
        }
    };
    Row::check("lock", verdict, start.elapsed())
}

/// Judges `git status --porcelain` lines, such as ` M Cargo.lock`.
fn verdict(status: &str) -> Verdict {
    let mut paths = status.lines().filter_map(|line| line.get(3..));
    let changed = paths.clone().any(|path| path == "Cargo.lock");
    let manifests = paths.any(|path| path.ends_with("Cargo.toml"));
    if changed && !manifests {
        Verdict::Failed(
            "cargo had to change Cargo.lock: commit it with the manifest it belongs to".to_owned(),
        )
    } else {
        Verdict::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_that_changed_alone_is_stale() {
        assert!(matches!(verdict(" M Cargo.lock\n"), Verdict::Failed(_)));
        assert_eq!(verdict(""), Verdict::Passed);
        assert_eq!(verdict(" M Cargo.toml\n"), Verdict::Passed);
    }

    #[test]
    fn work_on_the_dependencies_is_not_stale() {
        assert_eq!(verdict(" M Cargo.lock\nM  crates/wire/Cargo.toml\n"), Verdict::Passed);
        assert_eq!(verdict(" M Cargo.lock\n?? crates/new/Cargo.toml\n"), Verdict::Passed);
    }
}
