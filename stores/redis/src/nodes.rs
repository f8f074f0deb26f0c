//! The nodes of a Redis Cluster, or the one server, and the choice among them.
//!
//! A cluster's keys lie in 16,384 slots, each at one node. A node that is asked for another node's
//! key names that node (`MOVED`), and did nothing. So the first request for a slot goes to the
//! server in the URL, and the answers are remembered. A single server never says `MOVED`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use emmer_store_keyvalue::{Failure, Fault};
use redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, sleep};

use crate::address::Address;
use crate::fault;
use crate::link::Link;
use crate::scripts::Script;

/// Most times that a request that may be repeated is sent when its connection breaks.
const ATTEMPTS_MAX: u32 = 3;
/// Most times that a request is sent on, or waits until a slot has moved.
const REDIRECTS_MAX: u32 = 64;
/// Pause while a slot moves.
const MOVING_PAUSE: Duration = Duration::from_millis(10);
/// Maximum remembered nodes, as many as a cluster has.
const NODES_MAX: usize = 1_000;
/// The slots of a cluster.
const SLOTS: u16 = 16_384;

/// All nodes a store knows, and the way to each.
pub(crate) struct Nodes {
    address: Arc<Address>,
    known: Mutex<Known>,
}

/// By `host:port`.
struct Known {
    nodes: BTreeMap<String, Arc<Link>>,
    /// Whose a slot was when it was last asked for.
    slots: BTreeMap<u16, String>,
    /// Whom to ask about the others.
    first: String,
}

/// Meaning of a node's refusal.
enum Redirect {
    /// The slot is another node's now.
    Moved(String),
    /// The slot is on its way, and this key has arrived already.
    Asking(String),
    /// Some of the keys have arrived and some have not.
    Later,
}

impl Nodes {
    /// The servers that the URL names; no connection is made yet.
    pub(crate) fn new(address: Arc<Address>) -> Self {
        let names: Vec<String> =
            address.place.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let first = names.first().cloned().unwrap_or_default();
        let known = Known { nodes: BTreeMap::new(), slots: BTreeMap::new(), first };
        let nodes = Self { address, known: Mutex::new(known) };
        for name in names {
            nodes.node(&name);
        }
        nodes
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No change under this lock can end in the middle.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time at which an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.place.timeout
    }

    /// The way to a node; none for a name that is no `host:port`.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Link>> {
        let (host, port) = name.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let mut known = self.known();
        if let Some(link) = known.nodes.get(name) {
            return Some(link.clone());
        }
        let client = self.address.client(host.trim_matches(['[', ']']), port).ok()?;
        if known.nodes.len() >= NODES_MAX {
            known.nodes.clear();
            known.slots.clear();
        }
        let link = Arc::new(Link::new(name, client, self.address.tls));
        known.nodes.insert(name.to_owned(), link.clone());
        Some(link)
    }

    fn of_slot(&self, slot: u16) -> Option<Arc<Link>> {
        let name = {
            let known = self.known();
            known.slots.get(&slot).unwrap_or(&known.first).clone()
        };
        self.node(&name)
    }

    /// A node did not answer: its slots may be another's by now, and others are asked first.
    /// Returns true if there are any.
    fn pass_over(&self, gone: &Link) -> bool {
        let mut known = self.known();
        known.slots.retain(|_, name| name != gone.name());
        if known.first == gone.name() {
            let after = |name: &&String| name.as_str() > gone.name();
            let next =
                known.nodes.keys().find(after).or_else(|| known.nodes.keys().next()).cloned();
            known.first = next.unwrap_or_default();
        }
        known.first != gone.name()
    }

    /// Node to which an error sends a request that `link` refused.
    fn redirect(&self, error: &RedisError, link: &Link) -> Option<Redirect> {
        match error.code()? {
            "TRYAGAIN" => Some(Redirect::Later),
            code @ ("MOVED" | "ASK") => {
                let (to, _) = error.redirect_node()?;
                // A node that does not know its own address names its port only.
                let to = match to.strip_prefix(':') {
                    Some(port) => format!("{}:{port}", link.host()),
                    None => to.to_owned(),
                };
                Some(if code == "MOVED" { Redirect::Moved(to) } else { Redirect::Asking(to) })
            }
            _ => None,
        }
    }

    /// Sends a command to the node that has `key`; a `repeatable` one again when its outcome is not
    /// known. The inner error is the server's own answer.
    async fn route(
        &self,
        key: &str,
        command: &Cmd,
        deadline: Instant,
        repeatable: bool,
    ) -> Result<Result<Value, RedisError>, Failure> {
        let slot = slot(key);
        let (mut attempt, mut asking) = (1, None);
        for _ in 0..REDIRECTS_MAX {
            let is_asking = asking.is_some();
            let link = asking.take().or_else(|| self.of_slot(slot));
            let Some(link) = link else { break };
            match link.once(command, is_asking, deadline).await {
                Ok(Ok(value)) => return Ok(Ok(value)),
                // A redirected request did nothing.
                Ok(Err(error)) => match self.redirect(&error, &link) {
                    Some(Redirect::Moved(to)) => {
                        if self.node(&to).is_none() {
                            return Ok(Err(error));
                        }
                        self.known().slots.insert(slot, to);
                    }
                    Some(Redirect::Asking(to)) => match self.node(&to) {
                        Some(to) => asking = Some(to),
                        None => return Ok(Err(error)),
                    },
                    Some(Redirect::Later) if Instant::now() + MOVING_PAUSE < deadline => {
                        sleep(MOVING_PAUSE).await;
                    }
                    _ => return Ok(Err(error)),
                },
                Err(failure) => {
                    let others = self.pass_over(&link);
                    let again = match &failure {
                        Failure::Broken(_) => repeatable,
                        Failure::Nothing(fault) => others && fault::is_away(fault),
                    };
                    if !again
                        || attempt >= ATTEMPTS_MAX.max(self.hosts())
                        || Instant::now() >= deadline
                    {
                        return Err(failure);
                    }
                    attempt += 1;
                }
            }
        }
        Err(Failure::Nothing(Fault::unavailable(
            "the nodes of the cluster send each request to another",
        )))
    }

    fn hosts(&self) -> u32 {
        u32::try_from(self.address.place.hosts.len()).unwrap_or(1)
    }

    /// Sends a command about `key`; a `repeatable` one again when its outcome is not known.
    pub(crate) async fn send(
        &self,
        key: &str,
        command: &Cmd,
        deadline: Instant,
        repeatable: bool,
    ) -> Result<Value, Failure> {
        self.route(key, command, deadline, repeatable).await?.map_err(|e| fault::failure(&e))
    }

    /// Sends a command about no key, which may be done twice, to a node; None: the node that was
    /// asked first.
    pub(crate) async fn ask(
        &self,
        node: Option<&str>,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, Fault> {
        let mut attempt = 1;
        loop {
            let name = node.map_or_else(|| self.known().first.clone(), str::to_owned);
            let link = self.node(&name).ok_or_else(|| Fault::unavailable("no server is named"))?;
            match link.once(command, false, deadline).await {
                Ok(answered) => return answered.map_err(|e| fault::failure(&e).fault()),
                Err(failure) => {
                    let others = self.pass_over(&link) && node.is_none();
                    let is_broken = matches!(failure, Failure::Broken(_));
                    let fault = failure.fault();
                    let again = is_broken || (others && fault::is_away(&fault));
                    if !again
                        || attempt >= ATTEMPTS_MAX.max(self.hosts())
                        || Instant::now() >= deadline
                    {
                        return Err(fault);
                    }
                    attempt += 1;
                }
            }
        }
    }

    /// Runs a script on keys of one slot, by its hash where the node knows it.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        deadline: Instant,
        repeatable: bool,
    ) -> Result<Value, Failure> {
        let key = keys.first().copied().unwrap_or_default();
        let by_hash = command("EVALSHA", script.hash(), keys, arguments);
        match self.route(key, &by_hash, deadline, repeatable).await? {
            Err(error) if fault::is_unknown_script(&error) => {
                let whole = command("EVAL", script.text(), keys, arguments);
                self.send(key, &whole, deadline, repeatable).await
            }
            answered => answered.map_err(|e| fault::failure(&e)),
        }
    }
}

fn command(verb: &str, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}

/// The slot of a key: the CRC-16 (XMODEM) of the text in its first braces, or of all of it (the
/// cluster specification).
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of CRC-16/XMODEM is 0x31C3.
        assert_eq!(slot("123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("a{foo}b"), slot("foo"));
        assert_eq!(slot("{foo}{bar}"), slot("foo"));
        // Neither has a tag.
        assert_ne!(slot("{foo"), slot("foo"));
        assert_ne!(slot("a{}foo"), slot("foo"));
    }

    #[test]
    fn a_node_that_is_away_is_passed_over() {
        let address = Address::parse("redis://one:1,two:2", None).unwrap();
        let nodes = Nodes::new(Arc::new(address));
        let one = nodes.of_slot(7).unwrap();
        assert_eq!((one.name(), one.host()), ("one:1", "one"));
        nodes.known().slots.insert(7, "two:2".to_owned());
        let two = nodes.of_slot(7).unwrap();
        assert_eq!(two.name(), "two:2");
        assert!(nodes.pass_over(&two));
        assert_eq!(nodes.of_slot(7).unwrap().name(), "one:1");
        assert!(nodes.pass_over(&one));
        assert_eq!(nodes.of_slot(7).unwrap().name(), "two:2");
        let alone = Nodes::new(Arc::new(Address::parse("redis://one:1", None).unwrap()));
        assert!(!alone.pass_over(&alone.of_slot(7).unwrap()), "there is nobody else");
    }
}
