//! A primary and its standby, for tests of a store whose server fails over.

use std::fs;
use std::path::Path;
use std::process::Child;

use super::{PASSWORD, PASSWORD_ESCAPED, PostgresServer, Programs, USER};
use crate::Trouble;
use crate::local::launch;
use crate::process::{command_as, free_port, give_to, run};

/// A primary and its standby. When the primary dies the standby is promoted, as an operator or a
/// manager of theirs does; the server that comes back begins again as the standby.
#[derive(Debug)]
pub struct PostgresPair {
    nodes: [PostgresServer; 2],
    /// A commit waits until the standby has it.
    synchronous: bool,
}

impl PostgresPair {
    /// Starts both.
    ///
    /// # Errors
    /// PostgreSQL is not installed or does not start.
    pub fn start(synchronous: bool) -> Result<Self, Trouble> {
        let (primary, folder) = (PostgresServer::start()?, PostgresServer::folder()?);
        give_to(USER, folder.path())?;
        let port = free_port()?;
        let programs = primary.programs.clone();
        let child = standby(&programs, folder.path(), port, primary.port)?;
        let standby = PostgresServer { programs, child: Some(child), folder, port };
        let pair = Self { nodes: [primary, standby], synchronous };
        pair.waits_for_standby(0, synchronous)?;
        Ok(pair)
    }

    /// Lets commits on a primary wait for its standby, or not.
    fn waits_for_standby(&self, primary: usize, waits: bool) -> Result<(), Trouble> {
        let names = if waits { "*" } else { "" };
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
        self.nodes[primary].psql(&["-c", &set, "-c", "SELECT pg_reload_conf()"]).map(drop)
    }

    /// The one that takes commits.
    fn primary(&self) -> Option<usize> {
        self.nodes.iter().position(|node| {
            node.psql(&["-Atc", "SELECT pg_is_in_recovery()"]).is_ok_and(|said| said.trim() == "f")
        })
    }
}

/// Starts a standby of the server at `primary`, on a copy of its data.
fn standby(programs: &Programs, folder: &Path, port: u16, primary: u16) -> Result<Child, Trouble> {
    let data = folder.join("data");
    // It does not exist the first time.
    let _ = fs::remove_dir_all(&data);
    let mut copy = command_as(USER, &programs.folder.join("pg_basebackup"));
    let from = format!("host=127.0.0.1 port={primary} user={USER} password={PASSWORD}");
    copy.args(["--dbname", &from, "--write-recovery-conf", "--wal-method=stream", "--no-sync"]);
    copy.args(["--checkpoint=fast", "--pgdata"]).arg(&data).current_dir(folder);
    run(&mut copy)?;
    launch(programs, folder, port)
}

impl crate::suite::members::Members for PostgresPair {
    fn url(&self) -> String {
        let [one, other] = [0, 1].map(|n| format!("127.0.0.1:{}", self.nodes[n].port));
        format!(
            "postgres://{USER}:{PASSWORD_ESCAPED}@{one},{other}/postgres?target_session_attrs=read-write"
        )
    }

    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn leader(&self) -> Option<usize> {
        self.primary()
    }

    fn pid(&self, member: usize) -> u32 {
        self.nodes[member].pid()
    }

    fn kill(&mut self, member: usize) {
        self.nodes[member].kill();
        let other = 1 - member;
        // Nothing is committed if that fails, which the test sees.
        let _ = self.waits_for_standby(other, false);
        let _ = self.nodes[other].psql(&["-c", "SELECT pg_promote()"]);
    }

    fn start_again(&mut self, member: usize) -> Result<(), Trouble> {
        let (other, node) = (1 - member, &self.nodes[member]);
        let child = standby(&node.programs, node.folder.path(), node.port, self.nodes[other].port)?;
        self.nodes[member].child = Some(child);
        self.waits_for_standby(other, self.synchronous)
    }
}
