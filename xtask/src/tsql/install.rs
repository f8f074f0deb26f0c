//! Installing the parser: a Python package carries Microsoft's SqlToolsService, as a program for
//! Linux, and the .NET in it asks for an OpenSSL 1.1, which another package brings along. Nothing
//! of either is compiled in or shipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Parser;
use crate::run::{self, GRACE, Job};
use crate::{deny, services};

/// The packages, with the digests of the files.
const REQUIREMENTS: &str = "\
mssql-cli==1.0.0 --hash=sha256:edb3850ab8ffa077c64270f27263f6377fdb5bd5bb5c5b4990c5fb08f49627b6
psycopg2-binary==2.9.5 --hash=sha256:e59137cdb970249ae60be2a49774c6dfb015bd0403f05af1fe61862e9626642d
";

/// What is installed, whichever Python installs it: files for this platform that are only unpacked.
const PIP: &[&str] = &[
    "-m",
    "pip",
    "install",
    "--disable-pip-version-check",
    "--no-input",
    "--no-deps",
    "--no-compile",
    "--require-hashes",
    "--only-binary=:all:",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux1_x86_64",
    "--python-version=3.9",
    "--implementation=cp",
    "--abi=cp39",
    "--retries=2",
];

/// How long it may take: 46 MB over a slow network.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Says which [`REQUIREMENTS`] a folder holds; written last.
const MARK: &str = "requirements.txt";

fn folder(root: &Path) -> PathBuf {
    deny::tools_dir(root).join("tsql-parser")
}

/// The parser, if it is installed as it should be.
pub(super) fn find(root: &Path) -> Option<Parser> {
    let folder = folder(root);
    let is_there = fs::read_to_string(folder.join(MARK)).is_ok_and(|mark| mark == REQUIREMENTS);
    is_there.then(|| Parser::new(&folder))
}

/// The parser, installed now if it is not yet. An error says what is missing.
pub(crate) fn install(root: &Path, logs: &Path, ci: bool) -> Result<Parser, String> {
    if let Some(parser) = find(root) {
        return Ok(parser);
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("Microsoft's parser comes as a program for Linux on x86-64".to_owned());
    }
    if !has_pip() {
        let missing = "python3 with pip is not installed (python3-pip)".to_owned();
        if !ci {
            return Err(missing);
        }
        services::install::apt(&["python3-pip"]).map_err(|why| format!("{missing}: {why}"))?;
    }
    println!("installing Microsoft's T-SQL parser (the Python package mssql-cli, 46 MB, once)");
    let (folder, fresh) =
        (folder(root), deny::tools_dir(root).join(format!("tsql-parser.{}", std::process::id())));
    let installed = unpack(&fresh, logs).and_then(|()| {
        // What an earlier version or an interrupted run left.
        let _ = fs::remove_dir_all(&folder);
        fs::rename(&fresh, &folder).map_err(|e| format!("{}: {e}", folder.display()))
    });
    if installed.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    installed?;
    find(root).ok_or_else(|| "Microsoft's parser is not where it was put".to_owned())
}

fn has_pip() -> bool {
    Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output()
        .is_ok_and(|out| out.status.success())
}

/// Installs into a new folder, from wherever this machine's pip gets its packages.
fn unpack(folder: &Path, logs: &Path) -> Result<(), String> {
    let say = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(folder).map_err(say)?;
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, REQUIREMENTS).map_err(say)?;
    let mut command = Command::new("python3");
    command.env("PIP_ROOT_USER_ACTION", "ignore");
    command.args(PIP).arg("--target").arg(folder).arg("--requirement").arg(&wanted);
    let name = "T-SQL parser install".to_owned();
    let log = logs.join("tsql-install.log");
    let ran =
        run::run(Job { name, command, log: log.clone(), limit: LIMIT, grace: GRACE }, &mut |_| {})?;
    if !ran.success {
        let said = ran
            .excerpt
            .iter()
            .rev()
            .find(|line| line.contains("ERROR"))
            .cloned()
            .unwrap_or_default();
        return Err(format!(
            "the Python package mssql-cli 1.0.0 cannot be installed: {}; {said} ({})",
            ran.ending,
            log.display()
        ));
    }
    let parser = Parser::new(folder);
    link_library(parser.libraries())?;
    if !parser.program().is_file() {
        return Err("the Python package mssql-cli 1.0.0 has no parser".to_owned());
    }
    fs::write(folder.join(MARK), REQUIREMENTS).map_err(say)
}

/// The library by the name it is asked for; the package has given it one of its own.
fn link_library(folder: &Path) -> Result<(), String> {
    let say = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut names = fs::read_dir(folder).map_err(say)?.flatten().map(|entry| entry.file_name());
    let found = names.find(|name| {
        name.to_str().is_some_and(|n| n.starts_with("libssl-") && n.ends_with(".so.1.1"))
    });
    let name = found.ok_or("the Python package psycopg2-binary 2.9.5 has no OpenSSL")?;
    fs::copy(folder.join(name), folder.join("libssl.so.1.1")).map(drop).map_err(say)
}
