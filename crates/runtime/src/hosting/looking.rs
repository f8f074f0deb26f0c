//! Looks of operators at activations, turns and threads. They wake no grain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{GrainId, GrainTypeId, Instant};
use emmer_net::clock::{CoarseInstant, wall};
use emmer_wire::ChainLink;

use super::catalog::Catalog;
use super::standing::Stood;
use super::traced::TracedTurn;
use super::{Activation, Class, Host};
use crate::admin::{
    ActivationLook, ArgumentLook, FailedLook, FailureLook, GrainPage, GrainRow, HeldThread,
    HotGrain, HotLook, MethodLook, TracePage, TracedLook, TurnLook, TypeLook, WaitLook,
};
use crate::metrics::{BLOCKING_MIN, Counted, name_of_thread};

type StoodTurn = Stood<Arc<Activation>>;

/// Number of calls that wait for one grain, and of turns inside, that are shown.
const SHOWN_MAX: usize = 32;

/// Number of held threads whose grain is looked for.
const NAMED_MAX: usize = 3;

/// Number of rows of a page, at most.
const PAGE_MAX: usize = 1_000;

/// The grains that a page is about.
pub(crate) struct Wanted {
    pub(crate) grain_type: Option<GrainTypeId>,
    /// Text that the key has in it.
    pub(crate) key_has: Option<String>,
    /// True for grains alone that run a turn, or for which calls wait.
    pub(crate) busy: bool,
}

impl Wanted {
    fn has(&self, activation: &Activation) -> bool {
        let key_has = |text: &String| activation.id().key().to_string().contains(text.as_str());
        self.grain_type.is_none_or(|wanted| wanted == activation.id().grain_type())
            && (!self.busy || activation.is_at_work())
            && self.key_has.as_ref().is_none_or(key_has)
    }
}

impl Activation {
    /// Returns true if a turn is inside, or a call waits.
    fn is_at_work(&self) -> bool {
        self.waiting() > 0 || self.gate.is_entered()
    }

    fn row(&self, now: CoarseInstant) -> GrainRow {
        GrainRow {
            grain_type: self.type_name().to_owned(),
            key: self.id().key().clone(),
            place: self.id().stable_hash(),
            waiting: self.waiting(),
            is_running: self.gate.is_entered(),
            idle_ms: millis(self.idle_for(now)),
        }
    }
}

impl Host {
    /// A page of the grains that are wanted, after this place on the ring. Other work has its turn
    /// between two shards.
    pub(crate) async fn page(&self, wanted: &Wanted, after: Option<u64>, max: u32) -> GrainPage {
        let max = usize::try_from(max).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let now = self.clock.now();
        let mut found: Vec<Arc<Activation>> = Vec::new();
        for shard in Catalog::first_shard_after(after.unwrap_or(0))..Catalog::shard_count() {
            self.catalog.look_at_shard(shard, |activation| {
                let is_after = after.is_none_or(|after| activation.id().stable_hash() > after);
                if is_after && wanted.has(activation) {
                    found.push(activation.clone());
                }
            });
            if found.len() > max {
                break;
            }
            tokio::task::yield_now().await;
        }
        found.sort_by_key(|activation| activation.id().stable_hash());
        let place = |at: usize| found.get(at).map(|last| last.id().stable_hash());
        let mut end = found.len().min(max);
        // Activations of one place stay together, or the next page would lack some.
        while end < found.len() && place(end) == place(end - 1) {
            end += 1;
        }
        let next = if end < found.len() { place(end - 1) } else { None };
        GrainPage { grains: found[..end].iter().map(|found| found.row(now)).collect(), next }
    }

    /// The grain types of this silo, by name. Looks at every activation.
    pub(crate) async fn types(&self) -> Vec<TypeLook> {
        let mut counts: BTreeMap<GrainTypeId, (u64, u64)> = BTreeMap::new();
        for shard in 0..Catalog::shard_count() {
            self.catalog.look_at_shard(shard, |activation| {
                let (all, busy) = counts.entry(activation.id().grain_type()).or_default();
                *all += 1;
                *busy += u64::from(activation.is_at_work());
            });
            tokio::task::yield_now().await;
        }
        let mut types: Vec<_> = self
            .classes
            .iter()
            .map(|(id, class)| {
                let (activations, busy) = counts.get(id).copied().unwrap_or_default();
                TypeLook { activations, busy, ..class.look() }
            })
            .collect();
        types.sort_by(|a, b| a.grain_type.cmp(&b.grain_type));
        types
    }

    /// The activations of a grain.
    pub(crate) fn look_at(&self, id: &GrainId) -> Vec<ActivationLook> {
        let found = self.catalog.of_grain(id);
        let turns = self.turns_of(id, SHOWN_MAX);
        found.iter().map(|activation| self.look(activation, &turns)).collect()
    }

    fn look(&self, activation: &Arc<Activation>, turns: &[Arc<StoodTurn>]) -> ActivationLook {
        let (now, mono) = (self.clock.now(), self.clock.mono());
        let line = activation.gate.line();
        let callers = line.callers(SHOWN_MAX);
        let own = turns.iter().filter(|turn| Arc::ptr_eq(&turn.activation, activation));
        let turns: Vec<_> = own.map(|turn| self.turn_look(turn)).collect();
        let is_running = activation.gate.is_entered();
        let threads = if is_running { self.threads_of(activation) } else { Vec::new() };
        let waits = callers.into_iter().map(|waiting| {
            let turn = waiting.who.map_or(0, |who| who.caller);
            WaitLook {
                caller: self.waits.grain_of(turn),
                turn,
                waited_ms: waiting.who.map(|who| millis(now.left(who.since))),
                is_exclusive: waiting.exclusive,
            }
        });
        ActivationLook {
            number: activation.number(),
            age_ms: self.ages.of(activation.number(), mono).map(millis),
            idle_ms: millis(activation.idle_for(now)),
            is_registered: activation.is_registered(),
            is_running,
            is_ending: line.is_ending(),
            waiting: activation.waiting(),
            waits: waits.collect(),
            turns,
            threads,
            timers: u32::try_from(self.timers.count(activation.number())).unwrap_or(u32::MAX),
        }
    }

    /// The turns that have been suspended for longest.
    pub(crate) fn oldest_turns(&self, max: usize) -> Vec<TurnLook> {
        let turns = self.standing.oldest(max.min(PAGE_MAX), |_| true);
        turns.iter().map(|turn| self.turn_look(turn)).collect()
    }

    /// The turns on a grain that have begun and wait, the oldest first.
    pub(crate) fn turns_of(&self, id: &GrainId, max: usize) -> Vec<Arc<StoodTurn>> {
        self.standing.oldest(max, |turn| turn.activation.id() == id)
    }

    fn turn_look(&self, turn: &StoodTurn) -> TurnLook {
        let title = |link: &ChainLink| self.load.title(&link.grain);
        let activation = &turn.activation;
        let own =
            self.waits.turn_on(activation.number(), turn.callers().last().map(|link| link.turn));
        TurnLook {
            grain_type: activation.type_name().to_owned(),
            key: activation.id().key().clone(),
            method: activation.class.name_of(turn.method).to_owned(),
            age_ms: millis(self.clock.now().left(turn.since)),
            caller: turn.callers().last().map(title),
            chain: turn.callers().iter().map(title).collect(),
            turn: own.unwrap_or(0),
            waits_for: own.map_or_else(Vec::new, |own| self.waited_for_by(own)),
        }
    }

    /// The grains of this silo that the turn waits for.
    fn waited_for_by(&self, turn: u64) -> Vec<String> {
        let is_answer =
            |stood: &StoodTurn| stood.callers().last().is_some_and(|link| link.turn == turn);
        let answering = self.standing.oldest(SHOWN_MAX, is_answer);
        let mut grains: Vec<_> = answering.iter().map(|stood| stood.activation.title()).collect();
        let queues = self.queues.lock().clone();
        for activation in queues {
            let callers = activation.gate.line().callers(SHOWN_MAX);
            if callers.iter().any(|waiting| waiting.who.is_some_and(|who| who.caller == turn)) {
                grains.push(activation.title());
            }
        }
        grains.sort_unstable();
        grains.dedup();
        grains
    }

    /// The threads that turns hold without an await, those held for longest first.
    pub(crate) fn held_threads(&self) -> Vec<HeldThread> {
        let mut held = self.metrics.watch.held(self.clock.now(), BLOCKING_MIN);
        held.sort_by_key(|(_, _, held)| std::cmp::Reverse(*held));
        let names = |at: usize| at < NAMED_MAX;
        held.into_iter().enumerate().map(|(at, held)| self.held_look(held, names(at))).collect()
    }

    /// Number of threads that turns hold without an await.
    pub(crate) fn held_count(&self) -> usize {
        self.metrics.watch.held(self.clock.now(), BLOCKING_MIN).len()
    }

    /// `named`: the grain is looked for, which takes a look at every activation.
    fn held_look(&self, (thread, method, held): (usize, u32, Duration), named: bool) -> HeldThread {
        let class = self.classes.values().find(|class| class.method_name(method).is_some());
        let method =
            class.and_then(|class| class.method_name(method)).unwrap_or("a hook or a timer");
        HeldThread {
            thread: name_of_thread(thread),
            method: method.to_owned(),
            grain: class.filter(|_| named).and_then(|class| self.the_one_inside(class)),
            held_ms: millis(held),
        }
    }

    /// The grain of the class that a turn is inside of and not suspended, if there is only one.
    fn the_one_inside(&self, class: &Class) -> Option<String> {
        let mut found: Option<Arc<Activation>> = None;
        for shard in 0..Catalog::shard_count() {
            let mut several = false;
            self.catalog.look_at_shard(shard, |activation| {
                if std::ptr::eq(&*activation.class, class)
                    && activation.gate.is_entered()
                    && !activation.gate.line().is_suspended()
                {
                    several |= found.is_some();
                    found = Some(activation.clone());
                }
            });
            if several {
                return None;
            }
        }
        found.map(|activation| activation.title())
    }

    /// The threads that a turn holds which may be this activation's.
    fn threads_of(&self, activation: &Activation) -> Vec<HeldThread> {
        if activation.gate.line().is_suspended() {
            return Vec::new();
        }
        let own = |method: u32| method == 0 || activation.class.method_name(method).is_some();
        let held = self.metrics.watch.held(self.clock.now(), BLOCKING_MIN);
        let own = held.into_iter().filter(|(_, method, _)| own(*method));
        own.take(NAMED_MAX).map(|held| self.held_look(held, true)).collect()
    }

    /// The last failures of all grains.
    pub(crate) fn last_failures(&self, max: usize) -> Vec<FailedLook> {
        let named = |(failed, ago): (super::failures::FailedTurn, Duration)| {
            let class = self.classes.get(&failed.grain.grain_type());
            FailedLook {
                grain_type: class.map_or_else(String::new, |class| class.name().to_owned()),
                key: failed.grain.key().clone(),
                ago_ms: millis(ago),
                method: failed.method.to_owned(),
                words: failed.words,
            }
        };
        self.failures.latest(max, self.clock.now()).into_iter().map(named).collect()
    }

    /// The grains that are called most.
    pub(crate) fn hot(&self, max: usize) -> HotLook {
        let hottest = self.metrics.hot.look(self.clock.mono(), max);
        let named = |(grain, count, error): Counted| {
            let class = self.classes.get(&grain.grain_type());
            let grain_type = class.map_or_else(String::new, |class| class.name().to_owned());
            HotGrain { grain_type, key: grain.key().clone(), count, error }
        };
        HotLook {
            over_ms: millis(hottest.over),
            calls: hottest.calls,
            called: hottest.called.into_iter().map(named).collect(),
            busy: hottest.busy.into_iter().map(named).collect(),
        }
    }

    /// Traces a grain for a time. False if the silo traces as many grains as it may.
    pub(crate) fn trace(&self, id: &GrainId, within: Duration) -> bool {
        let began = self.traces.begin(id, self.clock.mono() + within);
        if began && let Some(class) = self.classes.get(&id.grain_type()) {
            class.metrics.time_all(true);
        }
        began
    }

    /// The turns of a grain that is traced.
    pub(crate) fn traced(&self, id: &GrainId) -> TracePage {
        let (now, at) = (self.clock.mono(), wall().as_millis());
        let Some((turns, left)) = self.traces.of_grain(id, now) else {
            return TracePage::default();
        };
        let look = |turn: TracedTurn| {
            let ago = now.saturating_since(Instant::from_nanos(turn.arrived.get()));
            TracedLook {
                number: turn.number,
                at_ms: at.saturating_sub(i64::try_from(millis(ago)).unwrap_or(i64::MAX)),
                method: turn.method.to_owned(),
                caller: turn.caller.map(|caller| self.load.title(&caller)),
                took_ns: u64::try_from(turn.took.as_nanos()).unwrap_or(u64::MAX),
                end: turn.end.word().to_owned(),
            }
        };
        TracePage { turns: turns.into_iter().map(look).collect(), left_ms: Some(millis(left)) }
    }

    /// Ends traces whose time is over.
    pub(super) fn rest_traces(&self, now: Instant) {
        if !self.traces.is_on() {
            return;
        }
        let traced = self.traces.rest(now);
        let others = self.classes.iter().filter(|(id, _)| !traced.contains(id));
        others.for_each(|(_, class)| class.metrics.time_all(false));
    }

    /// The last failures of a grain.
    pub(crate) fn failures_of(&self, id: &GrainId) -> Vec<FailureLook> {
        let failed = self.failures.of_grain(id, SHOWN_MAX, self.clock.now());
        let look = |(failed, ago): (super::failures::FailedTurn, Duration)| FailureLook {
            ago_ms: millis(ago),
            method: failed.method.to_owned(),
            words: failed.words,
        };
        failed.into_iter().map(look).collect()
    }
}

impl Class {
    /// The class without its activations.
    fn look(&self) -> TypeLook {
        let lives = self.lives();
        let key = self.methods().first().map_or("", |method| method.info.key.name());
        let methods = self.methods().iter().map(|method| {
            let argument = |(name, of): &(&str, &str)| ArgumentLook {
                name: (*name).to_owned(),
                r#type: (*of).to_owned(),
            };
            MethodLook {
                interface: method.info.interface.to_owned(),
                name: method.info.name.to_owned(),
                id: method.info.id,
                arguments: method.info.arguments.iter().map(argument).collect(),
                returns: method.info.returns.to_owned(),
                is_exclusive: method.info.exclusive,
                is_internal: method.internal,
                is_stream: method.info.streams || method.info.returns.starts_with("Answers"),
            }
        });
        TypeLook {
            grain_type: self.name().to_owned(),
            key: key.to_owned(),
            activations: 0,
            busy: 0,
            activated: lives.activated,
            failed: lives.failed,
            bytes_each: self.info.bytes as u64,
            is_worker: self.workers_max().is_some(),
            has_state: self.info.has_state,
            methods: methods.collect(),
        }
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
