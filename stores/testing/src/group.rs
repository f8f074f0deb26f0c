//! Several servers of one kind that are one cluster.

use std::thread;

use crate::Trouble;
use crate::local::{Local, Starter};
use crate::process::free_port;

/// The members of a cluster for one test. Dropped, they end.
#[derive(Debug)]
#[cfg_attr(not(feature = "suite"), expect(dead_code, reason = "the suite asks for them"))]
pub struct Group<S: Starter> {
    /// The members.
    pub nodes: Vec<Local<S>>,
    /// Tells if a member leads the others.
    leads: fn(&Local<S>) -> bool,
    url: String,
}

/// The ports of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// The port that clients connect to.
    pub(crate) client: u16,
    /// Two ports for the other members.
    pub(crate) peers: [u16; 2],
}

impl<S: Starter + Send> Group<S> {
    /// Starts `count` members at the same time: none serves before most of them are there.
    /// `settings` gives those of a member, who has the ports of all; `url` makes an address of the
    /// places of all.
    ///
    /// # Errors
    /// They are not installed or do not start.
    pub(crate) fn start(
        count: usize,
        settings: impl Fn(usize, &[Ports]) -> Vec<String>,
        leads: fn(&Local<S>) -> bool,
        url: impl Fn(&str) -> String,
    ) -> Result<Self, Trouble> {
        let ports = || -> Result<Ports, Trouble> {
            Ok(Ports { client: free_port()?, peers: [free_port()?, free_port()?] })
        };
        let ports: Vec<Ports> = (0..count).map(|_| ports()).collect::<Result<_, _>>()?;
        let each = ports.iter().enumerate().map(|(n, own)| (own.client, settings(n, &ports)));
        let nodes: Result<Vec<Local<S>>, Trouble> = thread::scope(|scope| {
            let starting: Vec<_> = each
                .map(|(port, settings)| {
                    scope.spawn(move || {
                        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                        Local::start_at(port, &settings)
                    })
                })
                .collect();
            let panicked = |_| Err(Trouble::Failed("starting a member panicked".to_owned()));
            starting.into_iter().map(|one| one.join().unwrap_or_else(panicked)).collect()
        });
        let places: Vec<String> =
            ports.iter().map(|ports| format!("127.0.0.1:{}", ports.client)).collect();
        Ok(Self { nodes: nodes?, leads, url: url(&places.join(",")) })
    }
}

#[cfg(feature = "suite")]
impl<S: Starter + Send> crate::suite::members::Members for Group<S> {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn count(&self) -> usize {
        self.nodes.len()
    }

    fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(self.leads)
    }

    fn pid(&self, member: usize) -> u32 {
        self.nodes[member].pid()
    }

    fn kill(&mut self, member: usize) {
        self.nodes[member].kill();
    }

    fn start_again(&mut self, member: usize) -> Result<(), Trouble> {
        self.nodes[member].start_again()
    }
}
