//! Hosts, and the way from a silo's identity to the process that has it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use emmer_core::SiloAddress;

use crate::process::Process;

/// The port every silo listens on; hosts differ by their IP address.
pub const SILO_PORT: u16 = 11_111;

/// A machine on which processes run, one after the other (or, in a race, at once).
#[derive(Clone, Debug)]
pub struct Host {
    /// True if it answers anything at all.
    pub up: bool,
    /// Every process that ever ran here, by number, oldest first.
    pub incarnations: Vec<u32>,
    /// The youngest process and its identity: almost always the wanted one.
    youngest: Option<(u32, SiloAddress)>,
}

/// Every host. The number of a host is the lower part of its IP address, so that looking a silo up
/// takes no map.
#[derive(Clone, Debug)]
pub struct Hosts(Vec<Host>);

impl Hosts {
    /// This number of hosts, all up and empty.
    pub fn new(count: u32) -> Self {
        Self(
            (0..count)
                .map(|_| Host { up: true, incarnations: Vec::new(), youngest: None })
                .collect(),
        )
    }

    /// The endpoint of silos on `host`.
    pub fn endpoint(host: u32) -> SocketAddr {
        let [_, a, b, c] = host.to_be_bytes();
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, a, b, c)), SILO_PORT)
    }

    /// The host with the IP address of `silo`, whether or not it ever ran that silo.
    pub fn host_of(&self, silo: &SiloAddress) -> Option<u32> {
        let IpAddr::V4(ip) = silo.ip() else { return None };
        let [net, a, b, c] = ip.octets();
        let number = u32::from_be_bytes([0, a, b, c]);
        (net == 10 && (number as usize) < self.0.len()).then_some(number)
    }

    /// Returns true if `host` answers anything.
    pub fn is_up(&self, host: u32) -> bool {
        self.0[host as usize].up
    }

    /// Switches `host` on or off.
    pub fn set_up(&mut self, host: u32, up: bool) {
        self.0[host as usize].up = up;
    }

    /// The processes that ran on `host`, oldest first.
    pub fn incarnations(&self, host: u32) -> &[u32] {
        &self.0[host as usize].incarnations
    }

    /// Adds the process of `silo` to `host`.
    pub fn add(&mut self, host: u32, number: u32, silo: SiloAddress) {
        let host = &mut self.0[host as usize];
        host.incarnations.push(number);
        host.youngest = Some((number, silo));
    }

    /// The process that has this identity.
    pub fn process_of(&self, processes: &[Process], silo: &SiloAddress) -> Option<u32> {
        let host = &self.0[self.host_of(silo)? as usize];
        if let Some((number, youngest)) = &host.youngest
            && youngest == silo
        {
            return Some(*number);
        }
        let incarnations = &host.incarnations;
        incarnations
            .iter()
            .rev()
            .find(|number| processes[**number as usize].address == *silo)
            .copied()
    }
}
