//! Installing the parser: a Python package carries Microsoft's SqlToolsService, a program for
//! Linux, and its .NET asks for an OpenSSL 1.1, which another package brings. Nothing of either is
//! compiled in or shipped.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::Parser;
use crate::Trouble;
use crate::mongodb::{PACKAGE, PIP_PACKAGE};
use crate::process::{find, programs_folder, run};

/// The packages, with the digests of the files.
const REQUIREMENTS: &str = "\
mssql-cli==1.0.0 --hash=sha256:edb3850ab8ffa077c64270f27263f6377fdb5bd5bb5c5b4990c5fb08f49627b6
psycopg2-binary==2.9.5 --hash=sha256:e59137cdb970249ae60be2a49774c6dfb015bd0403f05af1fe61862e9626642d
";

/// The installed packages, for any Python: files for this platform that are only unpacked.
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

/// Says which [`REQUIREMENTS`] a folder holds; written last.
const MARK: &str = "requirements.txt";

/// The parser, fetched now if it was not yet.
pub(super) fn parser() -> Result<Parser, Trouble> {
    let folder = programs_folder()?.join("tsql-parser");
    let is_there = || fs::read_to_string(folder.join(MARK)).is_ok_and(|mark| mark == REQUIREMENTS);
    if is_there() {
        return Ok(Parser::new(&folder));
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let why = "Microsoft's parser comes as a program for Linux on x86-64";
        return Err(Trouble::Failed(why.to_owned()));
    }
    let missing = || Trouble::Missing { program: "python3".to_owned(), package: PACKAGE };
    let python = find("python3", &[]).ok_or_else(missing)?;
    println!(
        "fetching Microsoft's T-SQL parser (the Python package mssql-cli, 46 MB) by pip, once"
    );
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let work = TempDir::new_in(programs_folder()?).map_err(failed)?;
    let fresh = work.path().join("tsql-parser");
    unpack(&python, &fresh)?;
    // The remains of an earlier version. A second process finds the first one's files, which are as
    // good.
    let _ = fs::remove_dir_all(&folder);
    let _ = fs::rename(&fresh, &folder);
    if is_there() {
        Ok(Parser::new(&folder))
    } else {
        Err(Trouble::Failed("Microsoft's parser is not where it was put".to_owned()))
    }
}

/// Unpacks into a new folder, from wherever this machine's pip gets its packages.
fn unpack(python: &Path, folder: &Path) -> Result<(), Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, REQUIREMENTS).map_err(failed)?;
    let mut pip = Command::new(python);
    pip.env("PIP_ROOT_USER_ACTION", "ignore");
    pip.args(PIP).arg("--target").arg(folder).arg("--requirement").arg(&wanted);
    if let Err(trouble) = run(&mut pip) {
        println!("the Python package mssql-cli cannot be fetched: {trouble}");
        return Err(Trouble::Missing { program: "pip".to_owned(), package: PIP_PACKAGE });
    }
    let parser = Parser::new(folder);
    link_library(parser.libraries()).map_err(Trouble::Failed)?;
    if !parser.program().is_file() {
        let why = "the Python package mssql-cli 1.0.0 has no parser";
        return Err(Trouble::Failed(why.to_owned()));
    }
    fs::write(folder.join(MARK), REQUIREMENTS).map_err(failed)
}

/// The library under the name that the program asks for; the package gives it another one.
fn link_library(folder: &Path) -> Result<(), String> {
    let say = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut names = fs::read_dir(folder).map_err(say)?.flatten().map(|entry| entry.file_name());
    let found = names.find(|name| {
        name.to_str().is_some_and(|n| n.starts_with("libssl-") && n.ends_with(".so.1.1"))
    });
    let name = found.ok_or("the Python package psycopg2-binary 2.9.5 has no OpenSSL")?;
    fs::copy(folder.join(name), folder.join("libssl.so.1.1")).map(drop).map_err(say)
}
