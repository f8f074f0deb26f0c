//! Consul: one server, its own folder, its own ports.
//!
//! Debian has it in bullseye only. Where there is no `consul` on the `PATH`, its package is fetched
//! once from the mirror the system itself uses, and unpacked, not installed: into a folder of this
//! user's below the temporary folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::group::{Group, Ports};
use crate::local::{Local, Starter, kept_port, log_to, output_of};
use crate::process::{READY_LIMIT, find, programs_folder, run, wait_until};
use crate::{Trouble, ask};

/// Debian's package, of bullseye.
pub const PACKAGE: &str = "consul (of Debian 11, bullseye)";
/// The suite of Debian that has it.
const SUITE: &str = "bullseye";
/// The administrator's token of a server that asks for one.
pub const TOKEN: &str = "only4e57-0000-4000-8000-000000000001";

/// The setting that tells how many servers there are.
const MEMBERS: &str = "-bootstrap-expect=";

/// The programs of a Consul.
#[derive(Clone, Debug)]
pub struct Programs {
    consul: PathBuf,
    settings: Vec<String>,
}

impl Programs {
    /// Returns true if a server on `port` has a leader that answers.
    pub fn is_ready(&self, port: u16) -> bool {
        // A key that is not there; where tokens are asked for, the leader has made them once it
        // knows this one.
        let path = format!("/v1/kv/emmer-ready?consistent&token={TOKEN}");
        ask::get(port, &path).is_some_and(|(status, _)| matches!(status, 200 | 404))
    }
}

/// The program of an earlier fetch, or of this one.
fn fetched() -> Result<PathBuf, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let folder = programs_folder()?;
    let unpacked = folder.join("consul");
    let program = unpacked.join("usr/bin/consul");
    if program.is_file() {
        return Ok(program);
    }
    println!("fetching Debian's package of Consul, once");
    let work = TempDir::new_in(&folder).map_err(failed)?;
    if let Err(trouble) = fetch(work.path()) {
        println!("Consul cannot be fetched: {trouble}");
        return Err(Trouble::Missing { program: "Consul".to_owned(), package: PACKAGE });
    }
    // The second one finds the first one's, which is as good.
    let _ = fs::rename(work.path().join("root"), &unpacked);
    if program.is_file() {
        Ok(program)
    } else {
        Err(Trouble::Failed("Debian's package has no consul".to_owned()))
    }
}

/// Fetches the package and unpacks it to `root` in `folder`, without the system's lists of
/// packages.
fn fetch(folder: &Path) -> Result<(), Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let (mirror, keyring) =
        mirror().ok_or_else(|| Trouble::Failed("no Debian mirror is configured".to_owned()))?;
    let source = folder.join("sources.list");
    fs::write(&source, format!("deb [signed-by={keyring}] {mirror} {SUITE} main\n"))
        .map_err(failed)?;
    for name in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(name)).map_err(failed)?;
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        let set = |name: &str, path: PathBuf| format!("{name}={}", path.display());
        for option in [
            set("Dir::Etc::sourcelist", source.clone()),
            "Dir::Etc::sourceparts=-".to_owned(),
            set("Dir::State::lists", folder.join("lists")),
            set("Dir::Cache", folder.join("cache")),
            "APT::Sandbox::User=".to_owned() + if crate::process::is_root() { "root" } else { "" },
            "Acquire::Check-Valid-Until=false".to_owned(),
        ] {
            apt.arg("-o").arg(option);
        }
        apt.current_dir(folder);
        apt
    };
    run(apt().arg("update"))?;
    run(apt().args(["download", "consul"]))?;
    let packages = fs::read_dir(folder).map_err(failed)?.flatten().map(|entry| entry.path());
    let package =
        packages.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "deb"));
    let package =
        package.ok_or_else(|| Trouble::Failed("apt-get fetched no package".to_owned()))?;
    run(Command::new("dpkg").arg("-x").arg(package).arg(folder.join("root")))
}

/// The mirror that the system's own list of sources names first, and the keys it trusts for it.
fn mirror() -> Option<(String, String)> {
    let files = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let files = files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "sources"));
    files.filter_map(|path| fs::read_to_string(path).ok()).find_map(|text| mirror_of(&text))
}

/// The mirror of a list of sources.
fn mirror_of(sources: &str) -> Option<(String, String)> {
    sources.split("\n\n").find_map(|source| {
        let field = |name: &str| {
            source
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|v| v.split_whitespace().next())
        };
        // Security updates are elsewhere.
        let is_main = field("Suites:").is_some_and(|suite| !suite.contains("security"));
        let (uri, keyring) = (field("URIs:")?, field("Signed-By:")?);
        is_main.then(|| (uri.to_owned(), keyring.to_owned()))
    })
}

impl Starter for Programs {
    const NAME: &'static str = "consul";

    fn find() -> Result<Self, Trouble> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let consul = match find("consul", &[]) {
            Some(program) => program,
            None => fetched()?,
        };
        Ok(Self { consul, settings: Vec::new() })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let mut command = Command::new(&self.consul);
        command.args(["agent", "-server", "-client=127.0.0.1", "-bind=127.0.0.1"]);
        if !self.settings.iter().any(|setting| setting.starts_with(MEMBERS)) {
            command.arg(format!("{MEMBERS}1"));
        }
        command.args([
            "-node=test",
            "-dns-port=-1",
            "-grpc-port=-1",
            "-serf-wan-port=-1",
            "-log-level=warn",
        ]);
        command
            .arg(format!("-data-dir={}", folder.join("data").display()))
            .arg(format!("-http-port={port}"));
        command.arg(format!("-server-port={}", kept_port(folder, "server-port")?));
        command.arg(format!("-serf-lan-port={}", kept_port(folder, "serf-port")?));
        command.args(["-hcl", "performance { raft_multiplier = 1 } disable_update_check = true"]);
        command.args(&self.settings);
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || self.is_ready(port))
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        let said = output_of(Command::new(&server.programs.consul).arg("version"))?;
        Ok(said.lines().next().unwrap_or_default().replace(" v", " "))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address for `emmer_store_consul`.
pub fn url(port: u16) -> String {
    format!("consul://127.0.0.1:{port}")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type ConsulServer = Local<Programs>;

impl ConsulServer {
    /// A server that lets no client do anything without a token; [`TOKEN`] may do everything.
    ///
    /// # Errors
    /// Consul cannot be had or does not start.
    pub fn start_with_tokens() -> Result<Self, Trouble> {
        let acl = format!(
            "acl {{ enabled = true default_policy = \"deny\" tokens {{ master = \"{TOKEN}\" }} }}"
        );
        Self::start_with(&["-hcl", &acl])
    }

    /// A server that keeps nothing on disk (`-dev`).
    ///
    /// # Errors
    /// Consul cannot be had or does not start.
    pub fn start_in_memory() -> Result<Self, Trouble> {
        Self::start_with(&["-dev", "-bootstrap-expect=0"])
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.programs.consul
    }

    /// Output of `consul`.
    ///
    /// # Errors
    /// What it says.
    pub fn cli(&self, arguments: &[&str]) -> Result<String, Trouble> {
        let mut command = Command::new(self.program());
        command
            .env("CONSUL_HTTP_ADDR", format!("127.0.0.1:{}", self.port()))
            .env("CONSUL_HTTP_TOKEN", TOKEN);
        output_of(command.args(arguments))
    }
}

/// Three members of one cluster, or as many.
///
/// # Errors
/// Consul is not installed or does not start.
pub fn cluster(count: usize) -> Result<Group<Programs>, Trouble> {
    let settings = |n: usize, all: &[Ports]| {
        let [server, serf] = all.get(n).map(|own| own.peers).unwrap_or_default();
        let others = all.iter().map(|ports| format!("-retry-join=127.0.0.1:{}", ports.peers[1]));
        let own = [
            format!("{MEMBERS}{}", all.len()),
            format!("-node=member{n}"),
            format!("-server-port={server}"),
            format!("-serf-lan-port={serf}"),
            "-retry-interval=1s".to_owned(),
        ];
        own.into_iter().chain(others).collect()
    };
    // The one that says that it is.
    let leads = |node: &ConsulServer| {
        ask::get(node.port(), "/v1/agent/self")
            .is_some_and(|(status, said)| status == 200 && said.contains("\"leader\":\"true\""))
    };
    Group::start(count, settings, leads, |places| format!("consul://{places}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_systems_own() {
        let sources = "Types: deb\n# http://example.org\nURIs: http://example.com/debian\nSuites: \
            s s-updates\n\
                       Components: main\nSigned-By: /k.gpg\n\nTypes: deb\nURIs: \
                       http://example.org\nSuites: s-security\n";
        assert_eq!(
            mirror_of(sources),
            Some(("http://example.com/debian".to_owned(), "/k.gpg".to_owned()))
        );
        assert_eq!(
            mirror_of(
                "Types: deb\nURIs: http://example.org\nSuites: s-security\nSigned-By: /k.gpg\n"
            ),
            None
        );
    }
}
