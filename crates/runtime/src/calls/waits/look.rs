//! The silo looks at the calls that have waited for long, and answers what others ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_wire::channel;

use super::graph::{Graph, PATH_MAX, Path, REACHED_MAX};
use super::{LOOK_EVERY, Looks, PATIENCE, Wait, WaitsMessage};
use crate::calls::Calls;
use crate::hosting::Activation;
use emmer_net::clock::CoarseInstant;
use emmer_net::warn_seldom;

/// The most searches that begin in one look; the other gates have their turn in the next.
/// Questions about all of them every 50 ms would keep everything else between two silos waiting.
const SEARCHES_MAX: usize = 64;

/// No other search begins in a look whose searches have reached this many turns here: where
/// hundreds of calls wait in long chains, each search goes through most of them.
const TURNS_MAX: usize = 256;

/// A gate where a call has begun to wait lately is looked at in every look: whatever circle the
/// call has closed stands since then.
const EAGER: Duration = PATIENCE.saturating_add(LOOK_EVERY.saturating_mul(4));

/// Other gates are looked at this often: the call of a circle that ends may have waited for long.
/// Two searches are enough, so a circle is still known long before a second.
const SEARCH_EVERY: Duration = Duration::from_millis(250);

/// So many paths travel in one message.
const PATHS_MAX: usize = 32;

/// A gate with calls that turns wait for.
struct Crowd {
    activation: Arc<Activation>,
    waits: Vec<Wait>,
}

type Crowds = BTreeMap<u64, Crowd>;

/// A search, or another silo's, that has come to a turn.
struct Chase {
    origin: SiloAddress,
    gate: u64,
    round: u64,
    path: Path,
}

impl Calls {
    /// A tick of the clock for the calls that wait in a circle.
    pub(crate) fn look_at_waits(&self, now: CoarseInstant) {
        let messages = std::mem::take(&mut *self.waits.inbox.lock());
        let mut looks = self.waits.looks.lock();
        let due = looks.next <= now;
        if due {
            looks.next = now.after(LOOK_EVERY);
            looks.answered.look(now);
        }
        // In every circle there is a turn that has made a call and is inside the grain that another
        // call waits for.
        let begins = due && self.waits.listed.load(Ordering::Relaxed) > 0;
        if !begins && messages.is_empty() {
            return;
        }
        let crowds = self.crowds();
        let graph = self.graph(&crowds);
        let mut chases = Vec::new();
        for message in messages {
            match message {
                WaitsMessage::Probe { origin, gate, round, path } => {
                    self.answer(
                        &mut looks,
                        &graph,
                        &crowds,
                        Chase { origin, gate, round, path },
                        now,
                        &mut chases,
                    );
                }
                WaitsMessage::Reached { gate, round, paths } => {
                    paths.iter().for_each(|path| reached(&mut looks, &crowds, gate, round, path));
                }
            }
        }
        if begins {
            self.begin_searches(&mut looks, &graph, &crowds, now, &mut chases);
        }
        drop(looks);
        self.send_on(&chases);
    }

    /// The gates where turns wait for a call.
    fn crowds(&self) -> Crowds {
        let watched = self.host.queues.lock().clone();
        let crowd = |activation: Arc<Activation>| {
            let mut waits = Vec::new();
            activation.waits(&mut waits);
            (!waits.is_empty()).then(|| (activation.number(), Crowd { activation, waits }))
        };
        watched.into_iter().filter_map(crowd).collect()
    }

    /// This silo's part of the graph.
    fn graph(&self, crowds: &Crowds) -> Graph {
        let mut graph = Graph::default();
        for shard in &self.waits.turns {
            for turn in shard.lock().values() {
                let asked = turn.asker.lock().as_ref().is_some_and(|asker| asker.waits());
                let caller = (asked && turn.caller != 0).then_some(turn.caller);
                let gate = turn.holds.then(|| turn.activation.number());
                graph.add_turn(turn.id, caller, gate, turn.activation.title());
            }
        }
        for (gate, crowd) in crowds {
            crowd.waits.iter().for_each(|wait| graph.add_call(wait.caller, wait.ticket, *gate));
        }
        graph.sort();
        graph
    }

    /// Searches from every gate where a call has waited for long; from some of them, when there are
    /// many.
    fn begin_searches(
        &self,
        looks: &mut Looks,
        graph: &Graph,
        crowds: &Crowds,
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
                chases.push(Chase { origin: self.address, gate: *gate, round, path });
            }
        }
    }

    /// Goes on with another silo's search, and tells it what was reached here.
    fn answer(
        &self,
        looks: &mut Looks,
        graph: &Graph,
        crowds: &Crowds,
        asked: Chase,
        now: CoarseInstant,
        chases: &mut Vec<Chase>,
    ) {
        let Chase { origin, gate, round, path } = asked;
        let Some(last) = path.last().filter(|_| path.len() <= PATH_MAX) else { return };
        if !looks.answered.takes((origin, gate, round, last.turn), now) {
            return;
        }
        let paths = graph.reach(vec![path]);
        // The first one is what was asked.
        let news = paths.get(1..).unwrap_or_default();
        if origin == self.address {
            news.iter().for_each(|path| reached(looks, crowds, gate, round, path));
        } else {
            for paths in news.chunks(PATHS_MAX) {
                let message = WaitsMessage::Reached { gate, round, paths: paths.to_vec() };
                self.cluster.peers.post(origin, channel::WAITS, &message);
            }
        }
        chases.extend(paths.into_iter().map(|path| Chase { origin, gate, round, path }));
    }

    /// Asks every silo that has a call of one of the turns reached. On the connection that has the
    /// call: should the call be given up, the silo hears of it before it hears of this.
    fn send_on(&self, chases: &[Chase]) {
        if chases.is_empty() {
            return;
        }
        let mut by_turn: BTreeMap<u64, Vec<&Chase>> = BTreeMap::new();
        for chase in chases {
            if let Some(last) = chase.path.last() {
                by_turn.entry(last.turn).or_default().push(chase);
            }
        }
        for connection in self
            .cluster
            .peers
            .pool
            .open()
            .into_iter()
            .filter(|connection| connection.silo().is_some())
        {
            let mut callers = connection.callers(|turn| by_turn.contains_key(&turn));
            callers.sort_unstable();
            callers.dedup();
            for chase in
                callers.iter().take(REACHED_MAX).filter_map(|turn| by_turn.get(turn)).flatten()
            {
                let Chase { origin, gate, round, path } = chase;
                let path = path.clone();
                let message =
                    WaitsMessage::Probe { origin: *origin, gate: *gate, round: *round, path };
                if let Err(error) = connection.system(channel::WAITS, &message) {
                    tracing::debug!(?error, "a question about waiting calls was not sent");
                }
            }
        }
    }
}

/// The search has reached a turn: the calls that wait in a circle for certain end.
fn reached(looks: &mut Looks, crowds: &Crowds, gate: u64, round: u64, path: &Path) {
    let Some(crowd) = crowds.get(&gate) else { return };
    for (ticket, circle) in looks.searches.reached(gate, round, path) {
        warn_seldom!(circle, "calls wait for each other: one of them fails");
        crowd.activation.doom(ticket, circle);
    }
}
