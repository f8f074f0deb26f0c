//! etcd: one member, its own folder, its own ports.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::group::{Group, Ports};
use crate::local::{Local, Starter, kept_port, log_to, output_of};
use crate::process::{READY_LIMIT, find, wait_until};
use crate::{Trouble, ask};

/// Debian's package.
pub const PACKAGE: &str = "etcd-server";
/// Debian's package of `etcdctl`.
pub const CLIENT_PACKAGE: &str = "etcd-client";

/// The programs of an installed etcd.
#[derive(Clone, Debug)]
pub struct Programs {
    server: PathBuf,
    settings: Vec<String>,
}

impl Programs {
    /// Returns true if a server on `port` serves and has a leader.
    pub fn is_ready(&self, port: u16) -> bool {
        ask::get(port, "/health")
            .is_some_and(|(status, body)| status == 200 && body.contains("true"))
    }
}

impl Starter for Programs {
    const NAME: &'static str = "etcd";

    fn find() -> Result<Self, Trouble> {
        let missing = || Trouble::Missing { program: "etcd".to_owned(), package: PACKAGE };
        Ok(Self { server: find("etcd", &[]).ok_or_else(missing)?, settings: Vec::new() })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let peers = format!("http://127.0.0.1:{}", kept_port(folder, "peer-port")?);
        let clients = format!("http://127.0.0.1:{port}");
        let mut command = Command::new(&self.server);
        command.arg("--data-dir").arg(folder.join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}"), "--logger", "zap"]);
        // What a killed server has written the kernel still writes; only a host that dies would
        // lose it. Waiting for a disk that others keep busy would say nothing about the store.
        command.arg("--unsafe-no-fsync").args(&self.settings);
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || self.is_ready(port))
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        let said = output_of(Command::new(&server.programs.server).arg("--version"))?;
        let version = said.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        Ok(format!("etcd {}", version.unwrap_or_default()))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address for `emmer_store_etcd`.
pub fn url(port: u16) -> String {
    format!("etcd://127.0.0.1:{port}")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type EtcdServer = Local<Programs>;

impl EtcdServer {
    /// Output of `etcdctl`.
    ///
    /// # Errors
    /// It is not installed, or fails.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String, Trouble> {
        let missing =
            || Trouble::Missing { program: "etcdctl".to_owned(), package: CLIENT_PACKAGE };
        let mut command = Command::new(find("etcdctl", &[]).ok_or_else(missing)?);
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=http://127.0.0.1:{}", self.port()));
        output_of(command.args(arguments))
    }
}

/// Three members of one cluster, or as many.
///
/// # Errors
/// etcd is not installed or does not start.
pub fn cluster(count: usize) -> Result<Group<Programs>, Trouble> {
    let place = |ports: &Ports| format!("http://127.0.0.1:{}", ports.peers[0]);
    let settings = |n: usize, all: &[Ports]| {
        let members: Vec<String> =
            all.iter().enumerate().map(|(n, ports)| format!("m{n}={}", place(ports))).collect();
        let own = all.get(n).map(place).unwrap_or_default();
        // The last of a name counts.
        vec![
            format!("--name=m{n}"),
            format!("--listen-peer-urls={own}"),
            format!("--initial-advertise-peer-urls={own}"),
            format!("--initial-cluster={}", members.join(",")),
        ]
    };
    let leads = |node: &EtcdServer| {
        // `place, member, version, size, leads, ...`
        let status = node.ctl(&["endpoint", "status"]).unwrap_or_default();
        status.split(", ").nth(4) == Some("true")
    };
    Group::start(count, settings, leads, |places| format!("etcd://{places}"))
}
