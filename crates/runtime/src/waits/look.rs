//! Looks at the calls that have waited for long, and answers what other silos ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_net::clock::CoarseInstant;
use emmer_net::warn_seldom;
use parking_lot::Mutex;

use super::graph::{Graph, PATH_MAX, Path};
use super::message::WaitsMessage;
use super::searches::{Answered, Searches};
use super::turns::{Listed, Listing, Turns};
use super::wait::{LOOK_EVERY, PATIENCE, Wait};
use crate::turn::Asker;

/// Messages of other silos that wait for the next tick; more are dropped: a search is made again
/// and again.
const INBOX_MAX: usize = 1_024;

/// Maximum searches that begin in one look; the other gates follow in the next look. Questions
/// about all of them every 50 ms would delay everything else between two silos.
const SEARCHES_MAX: usize = 64;

/// Number of turns here after which no other search begins in the same look. Where hundreds of
/// calls wait in long chains, each search goes through most of them.
const TURNS_MAX: usize = 256;

/// Age up to which a gate with a new waiting call is checked in every look: a circle that the call
/// has closed stands since then.
const EAGER: Duration = PATIENCE.saturating_add(LOOK_EVERY.saturating_mul(4));

/// Interval of the checks of other gates: the call of a circle that ends may have waited for long.
/// Two searches are enough, so a circle is still known long before a second.
const SEARCH_EVERY: Duration = Duration::from_millis(250);

/// Number of paths that travel in one message.
const PATHS_MAX: usize = 32;

/// Activation that the search looks at.
pub(crate) trait Gate {
    /// The number of the activation.
    fn number(&self) -> u64;

    /// The turns that wait for calls which wait for the grain.
    fn waits(&self) -> Vec<Wait>;

    /// Ends the wait at this place: it is part of a circle.
    fn doom(&self, ticket: u64, circle: String);
}

/// A gate with calls that turns wait for.
struct Crowd<G> {
    gate: G,
    waits: Vec<Wait>,
}

type Crowds<G> = BTreeMap<u64, Crowd<G>>;

/// Search of this or another silo that has reached a turn. The silo that has a call of the turn is
/// asked for the next turns.
pub(crate) struct Chase {
    pub(crate) origin: SiloAddress,
    pub(crate) gate: u64,
    pub(crate) round: u64,
    pub(crate) path: Path,
}

impl Chase {
    /// The turn that the search has come to.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.path.last().map(|step| step.turn)
    }

    /// The question to a silo that has a call of the turn.
    pub(crate) fn probe(&self) -> WaitsMessage {
        let Self { origin, gate, round, path } = self;
        WaitsMessage::Probe { origin: *origin, gate: *gate, round: *round, path: path.clone() }
    }
}

/// The waits of one silo.
pub(crate) struct Waits {
    turns: Arc<Turns>,
    inbox: Mutex<Vec<WaitsMessage>>,
    looks: Mutex<Looks>,
}

/// State that only the silo's clock task uses.
struct Looks {
    next: CoarseInstant,
    searches: Searches,
    answered: Answered,
}

impl Waits {
    pub(crate) fn new() -> Arc<Self> {
        let looks = Looks {
            next: CoarseInstant::from_millis(0),
            searches: Searches::default(),
            answered: Answered::new(),
        };
        Arc::new(Self { turns: Arc::default(), inbox: Mutex::default(), looks: Mutex::new(looks) })
    }

    /// Lists a turn that has made a call and waits.
    pub(crate) fn list(&self, turn: Listed, asker: Option<Arc<Asker>>) -> Listing {
        self.turns.list(turn, asker)
    }

    /// The grain of a turn that has made a call, if it is one of this silo.
    pub(crate) fn grain_of(&self, turn: u64) -> Option<String> {
        if turn == 0 {
            return None;
        }
        self.turns.find(|listed| (listed.id == turn).then(|| listed.title())).pop()
    }

    /// The number of the turn on this activation that has made a call, and that the turn `caller`
    /// waits for if it is given.
    pub(crate) fn turn_on(&self, gate: u64, caller: Option<u64>) -> Option<u64> {
        let caller = caller.unwrap_or(0);
        let is_it = |listed: &Listed| listed.gate == gate && listed.caller == caller;
        self.turns.find(|listed| is_it(listed).then_some(listed.id)).pop()
    }

    /// A message of another silo.
    pub(crate) fn receive(&self, message: WaitsMessage) {
        let mut inbox = self.inbox.lock();
        if inbox.len() < INBOX_MAX {
            inbox.push(message);
        }
    }

    /// A tick of the clock of the silo `me` for the calls that wait in a circle. `gates` names the
    /// activations where calls wait, and `tell` sends a message. Returns the searches that other
    /// silos continue.
    pub(crate) fn look<G: Gate>(
        &self,
        me: SiloAddress,
        now: CoarseInstant,
        gates: impl FnOnce() -> Vec<G>,
        mut tell: impl FnMut(SiloAddress, &WaitsMessage),
    ) -> Vec<Chase> {
        let messages = std::mem::take(&mut *self.inbox.lock());
        let mut looks = self.looks.lock();
        let due = looks.next <= now;
        if due {
            looks.next = now.after(LOOK_EVERY);
            looks.answered.look(now);
        }
        let mut chases = Vec::new();
        // In every circle there is a turn that has made a call and is inside the grain that another
        // call waits for.
        let begins = due && !self.turns.is_empty();
        if !begins && messages.is_empty() {
            return chases;
        }
        let crowds = crowds(gates());
        let graph = self.graph(&crowds);
        for message in messages {
            match message {
                WaitsMessage::Probe { origin, gate, round, path } => {
                    let asked = Chase { origin, gate, round, path };
                    let paths = continued(me, &mut looks, &graph, &crowds, asked, now, &mut tell);
                    chases.extend(paths);
                }
                WaitsMessage::Reached { gate, round, paths } => {
                    paths.iter().for_each(|path| reached(&mut looks, &crowds, gate, round, path));
                }
            }
        }
        if begins {
            begin_searches(me, &mut looks, &graph, &crowds, now, &mut chases);
        }
        chases
    }

    /// This silo's part of the graph.
    fn graph<G: Gate>(&self, crowds: &Crowds<G>) -> Graph {
        let mut graph = Graph::default();
        self.turns.add_to(&mut graph);
        for (gate, crowd) in crowds {
            crowd.waits.iter().for_each(|wait| graph.add_call(wait.caller, wait.ticket, *gate));
        }
        graph.sort();
        graph
    }
}

/// Searches from every gate where a call has waited for long; from some of them, when there are
/// many.
fn begin_searches<G: Gate>(
    me: SiloAddress,
    looks: &mut Looks,
    graph: &Graph,
    crowds: &Crowds<G>,
    now: CoarseInstant,
    chases: &mut Vec<Chase>,
) {
    looks.searches.retain(|gate| crowds.contains_key(&gate));
    let is_long = |wait: &&Wait| wait.suspect || wait.since.after(PATIENCE) <= now;
    let mut due: Vec<_> = crowds
        .iter()
        .filter_map(|(gate, crowd)| {
            let latest = crowd.waits.iter().filter(is_long).map(|wait| wait.since).max()?;
            let last = looks.searches.last_begun(*gate);
            let is_due = latest.after(EAGER) > now
                || last.is_none_or(|last| last.after(SEARCH_EVERY) <= now);
            is_due.then_some((last, gate, crowd))
        })
        .collect();
    // The search that began longest ago comes first.
    due.sort_by_key(|(last, gate, _)| (*last, **gate));
    let before = chases.len();
    for (_, gate, crowd) in due.into_iter().take(SEARCHES_MAX) {
        if chases.len() - before >= TURNS_MAX {
            break;
        }
        let round = looks.searches.begin(*gate, &crowd.waits, now);
        for path in graph.reach(graph.starts(*gate)) {
            reached(looks, crowds, *gate, round, &path);
            chases.push(Chase { origin: me, gate: *gate, round, path });
        }
    }
}

/// Continues another silo's search `asked`, and tells that silo which turns it reached here.
/// Returns the paths, each at a turn whose calls other silos may have.
fn continued<G: Gate>(
    me: SiloAddress,
    looks: &mut Looks,
    graph: &Graph,
    crowds: &Crowds<G>,
    asked: Chase,
    now: CoarseInstant,
    tell: &mut impl FnMut(SiloAddress, &WaitsMessage),
) -> Vec<Chase> {
    let Chase { origin, gate, round, path } = asked;
    let Some(last) = path.last().filter(|_| path.len() <= PATH_MAX) else { return Vec::new() };
    if !looks.answered.takes((origin, gate, round, last.turn), now) {
        return Vec::new();
    }
    let paths = graph.reach(vec![path]);
    // The first step is the question.
    let news = paths.get(1..).unwrap_or_default();
    if origin == me {
        news.iter().for_each(|path| reached(looks, crowds, gate, round, path));
    } else {
        for paths in news.chunks(PATHS_MAX) {
            tell(origin, &WaitsMessage::Reached { gate, round, paths: paths.to_vec() });
        }
    }
    paths.into_iter().map(|path| Chase { origin, gate, round, path }).collect()
}

/// The gates where turns wait for a call.
fn crowds<G: Gate>(gates: Vec<G>) -> Crowds<G> {
    let crowd = |gate: G| {
        let waits = gate.waits();
        (!waits.is_empty()).then(|| (gate.number(), Crowd { gate, waits }))
    };
    gates.into_iter().filter_map(crowd).collect()
}

/// The search has reached a turn: the calls that wait in a circle for certain end.
fn reached<G: Gate>(looks: &mut Looks, crowds: &Crowds<G>, gate: u64, round: u64, path: &Path) {
    let Some(crowd) = crowds.get(&gate) else { return };
    for (ticket, circle) in looks.searches.reached(gate, round, path) {
        warn_seldom!(circle, "calls wait for each other: one of them fails");
        crowd.gate.doom(ticket, circle);
    }
}
