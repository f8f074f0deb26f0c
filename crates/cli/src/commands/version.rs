//! The identity of this program: its version, the commit it was built from, and the stores it can
//! open.

use std::sync::LazyLock;

/// The commit; none where it is not known, as in a build without the repository.
const COMMIT: Option<&str> = option_env!("COMMIT_OF_EMMER");

static SHORT: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    COMMIT.map_or_else(|| version.to_owned(), |commit| format!("{version} (commit {commit})"))
});

static LONG: LazyLock<String> = LazyLock::new(|| {
    let stores = emmer::store::SCHEMES.join("://, ");
    format!("{}\nstores: {stores}://", short())
});

/// Version and commit, for `-V`.
pub fn short() -> &'static str {
    &SHORT
}

/// As [`short`], with the stores of this build, for `--version`.
pub fn long() -> &'static str {
    &LONG
}
