//! Network namespaces: one for each silo, one for the callers outside, and one that routes between
//! them and this process.
//!
//! All addresses are of 198.18.0.0/15, the block for measurements (RFC 2544); the third number
//! comes from this process's number. Each namespace has a network of four addresses with the
//! router. A cut is a rule of the router that silently drops packets from one address to another.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use emmer_cli::commands::child::Place;
use emmer_cli::exit::{Failure, Result};

/// The most silos: what 256 addresses have room for, with this process and the callers outside.
const SILOS_MAX: usize = 60;
/// Prefix of the names of all our namespaces; behind it come the process's number and the purpose.
const PREFIX: &str = "emmer-bench-";
/// Where namespaces have their names.
const NAMES: &str = "/run/netns";
/// The place of the router's rules that drop, before those that route.
const PREFERENCE: u32 = 100;

/// See the module. The namespaces go with it.
pub(super) struct Net {
    pid: u32,
    silos: usize,
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in (0..self.members()).map(|member| self.name(member)).chain([self.router()]) {
            // One that was not made cannot be removed.
            let _ = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
        }
    }
}

impl Net {
    /// Makes the namespaces.
    pub(super) fn set(silos: usize) -> Result<Self> {
        if silos > SILOS_MAX {
            return Err(Failure::usage(format!(
                "at most {SILOS_MAX} silos can be in network namespaces"
            )));
        }
        remove_leftovers();
        let net = Self { pid: std::process::id(), silos };
        net.make().map_err(|why| {
            let hint = "network namespaces need root and iproute2; --by proxy needs neither";
            Failure::other(format!("no network namespaces: {why} ({hint})"))
        })?;
        Ok(net)
    }

    /// This process is member 0, then come the silos, then the callers outside.
    const fn members(&self) -> usize {
        self.silos + 2
    }

    fn router(&self) -> String {
        format!("{PREFIX}{}-router", self.pid)
    }

    fn name(&self, member: usize) -> String {
        format!("{PREFIX}{}-{member}", self.pid)
    }

    /// The router's address in a member's network, or the member's.
    fn address(&self, member: usize, of_router: bool) -> Ipv4Addr {
        let last = member * 4 + if of_router { 1 } else { 2 };
        Ipv4Addr::new(198, 18, self.block(), u8::try_from(last).unwrap_or(u8::MAX))
    }

    fn block(&self) -> u8 {
        u8::try_from(self.pid % 255).unwrap_or_default()
    }

    /// The address at which members reach this process.
    pub(super) fn outside(&self) -> Ipv4Addr {
        self.address(0, false)
    }

    /// The place of a silo and of the callers next to it; that of the callers outside.
    pub(super) fn place(&self, slot: Option<usize>) -> Place {
        let member = slot.map_or(self.silos, |slot| slot) + 1;
        let free = SocketAddr::from((self.address(member, false), 0));
        Place { namespace: Some(self.name(member)), listen: free, gateway: free, advertise: None }
    }

    fn make(&self) -> std::result::Result<(), String> {
        let router = self.router();
        ip(&["netns", "add", &router], "")?;
        let (mut links, mut at_router) = (String::new(), "link set lo up\n".to_owned());
        for member in 0..self.members() {
            let (near, far) =
                (format!("em{}r{member}", self.pid), format!("em{}m{member}", self.pid));
            let its = self.name(member);
            let place = if member == 0 { String::new() } else { format!("netns {its}") };
            if member > 0 {
                links += &format!("netns add {its}\n");
            }
            links += &format!("link add {near} netns {router} type veth peer name {far} {place}\n");
            at_router += &format!(
                "addr add {}/30 dev {near}\nlink set {near} up\n",
                self.address(member, true)
            );
        }
        ip(&["-batch", "-"], &links)?;
        ip(&["-n", &router, "-batch", "-"], &at_router)?;
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        run(Command::new("ip").args(["netns", "exec", &router, "sh", "-c", forward]), "")?;
        for member in 0..self.members() {
            let device = format!("em{}m{member}", self.pid);
            let (own, gateway) = (self.address(member, false), self.address(member, true));
            let mut lines = format!("addr add {own}/30 dev {device}\nlink set {device} up\n");
            if member == 0 {
                lines += &format!("route add 198.18.{}.0/24 via {gateway}\n", self.block());
                ip(&["-batch", "-"], &lines)?;
            } else {
                lines += &format!("link set lo up\nroute add default via {gateway}\n");
                ip(&["-n", &self.name(member), "-batch", "-"], &lines)?;
            }
        }
        Ok(())
    }

    /// Drops whatever a silo and the others send to each other.
    pub(super) fn cut(&self, slot: usize) -> Result<()> {
        let one = self.address(slot + 1, false);
        let others = (0..self.silos)
            .filter(|other| *other != slot)
            .map(|other| self.address(other + 1, false));
        let rule = |from: Ipv4Addr, to: Ipv4Addr| {
            format!("rule add from {from} to {to} blackhole pref {PREFERENCE}\n")
        };
        let rules: String = others.map(|other| rule(one, other) + &rule(other, one)).collect();
        ip(&["-n", &self.router(), "-batch", "-"], &rules).map_err(Failure::other)
    }

    /// Lets everything through again.
    pub(super) fn heal(&self) -> Result<()> {
        let all = ["-n", &self.router(), "rule", "flush", "pref", &PREFERENCE.to_string()];
        ip(&all, "").map_err(Failure::other)
    }
}

/// Removes what measurements left behind that were killed.
fn remove_leftovers() {
    for entry in fs::read_dir(NAMES).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let pid =
            name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // A user that may not remove it may not make new ones either, and hears of that.
            let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
        }
    }
}

fn ip(arguments: &[&str], lines: &str) -> std::result::Result<(), String> {
    run(Command::new("ip").args(arguments), lines)
}

fn run(command: &mut Command, lines: &str) -> std::result::Result<(), String> {
    let program = || "ip".to_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early tells why.
        let _ = stdin.write_all(lines.as_bytes());
    }
    let ended = child.wait_with_output().map_err(|error| format!("{}: {error}", program()))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.lines().next().unwrap_or_default().to_owned();
    if ended.status.success() { Ok(()) } else { Err(format!("{}: {said}", program())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_has_a_network_of_its_own() {
        // Not dropped: that would look for namespaces.
        let net = std::mem::ManuallyDrop::new(Net { pid: 255 * 3 + 7, silos: SILOS_MAX });
        let last = net.members() - 1;
        assert_eq!(net.address(0, false).to_string(), "198.18.7.2");
        assert_eq!(net.address(last, true).octets()[3], 245);
        let place = net.place(Some(2));
        assert_eq!(place.listen.to_string(), "198.18.7.14:0");
        assert_eq!(place.namespace.as_deref(), Some("emmer-bench-772-3"));
        assert_eq!(net.place(None).namespace, Some(net.name(last)));
    }
}
