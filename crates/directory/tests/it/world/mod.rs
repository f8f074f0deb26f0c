//! A small virtual world for directories: silos, views that arrive late, messages in order per pair
//! only, crashes, silos declared dead that do not know it, joins, leaves. Everything from one seed.

mod checks;
mod faults;
mod moves;
mod shell;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_core::{GrainId, GrainTypeId, Instant, SiloAddress, SiloStatus};
use emmer_directory::{Config, Directory, Effect, Message, Registration, ReportId};

/// Properties of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Silos at the beginning.
    pub(crate) silos: u16,
    /// True if silos miss views.
    pub(crate) skip_views: bool,
    /// True if everything happens within a third of a second, many more faults than else.
    pub(crate) burst: bool,
    /// The part of all messages that are lost.
    pub(crate) loss: f64,
    /// True if silos die, are declared dead while they run, leave and join.
    pub(crate) faults: bool,
    /// A planted bug.
    pub(crate) tamper: Tamper,
}

/// Bugs planted by the network, to see the checks bite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tamper {
    /// None.
    Nothing,
    /// Reports arrive empty: recovery forgets.
    EmptyReports,
    /// Shells are slow to mark confirmed activations: a report misses the youngest ones.
    SlowShells,
    /// Collected registrations arrive empty.
    EmptyCollections,
    /// Registrations that a living owner hands over arrive empty.
    EmptyHandovers,
    /// Registrations of silos that are Dead and still run turns are dropped at once.
    NoFadingEntries,
    /// Recoveries do not wait for silos that are Dead and still run turns.
    NoFadingRecoveries,
    /// The source of a move reports its registration, and takes the grain back by it.
    ReportedDepartures,
    /// The source runs turns while the memory is on its way.
    TurnsAfterSending,
    /// The source takes a grain back without asking when the target is silent.
    UnaskedReturns,
    /// The source takes a grain back under the number that its target may still replace.
    OldNumbers,
    /// An owner replaces a registration by a view in which its silo may have reported it.
    OldViews,
    /// A target may register where nothing is registered.
    FreshArrivals,
}

/// Maximum time for which a silo that is Dead by mistake may run turns, from the commit of its
/// death. Others count from when they hear of it.
pub(crate) const FADE: Duration = Duration::from_millis(250);

/// Counts of events, so that a test can see that something happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    /// Registrations granted.
    pub(crate) registered: usize,
    /// Registrations refused because the grain was taken.
    pub(crate) taken: usize,
    /// Lookups that found something.
    pub(crate) found: usize,
    /// Messages delivered.
    pub(crate) delivered: usize,
    /// Views written.
    pub(crate) views: usize,
    /// Batches that arrived: unasked reports, asked reports, collected ones; credit for them;
    /// questions to a collector, and its answers without knowledge.
    pub(crate) told: usize,
    pub(crate) reported: usize,
    pub(crate) collected: usize,
    pub(crate) credits: usize,
    pub(crate) awaits: usize,
    pub(crate) unknown: usize,
    /// Batches handed over by living owners, and refusals of those that had nothing.
    pub(crate) handed: usize,
    pub(crate) unheld: usize,
    /// Activations confirmed to silos that were Dead and could still run turns.
    pub(crate) by_zombies: usize,
    /// Activations confirmed of grains that a silo ran while it was Dead.
    pub(crate) after_zombies: usize,
    /// Turns that ran.
    pub(crate) turns: usize,
    /// Moves that ended with the grain there, here again, and nowhere; and arrivals.
    pub(crate) moved: usize,
    pub(crate) returned: usize,
    pub(crate) nowhere: usize,
    pub(crate) arrived: usize,
}

impl Stats {
    fn count(&mut self, message: &Message) {
        self.delivered += 1;
        match message {
            Message::Report { recovery: Message::UNASKED, .. } => self.told += 1,
            Message::Report { .. } => self.reported += 1,
            Message::Collected { .. } => self.collected += 1,
            Message::Credit { .. } => self.credits += 1,
            Message::Await { .. } => self.awaits += 1,
            Message::Awaited { known: false, .. } => self.unknown += 1,
            Message::Handed { .. } => self.handed += 1,
            Message::Unheld { .. } => self.unheld += 1,
            _ => {}
        }
    }

    /// Adds what happened in another world.
    pub(crate) fn add(&mut self, other: &Self) {
        self.registered += other.registered;
        self.taken += other.taken;
        self.found += other.found;
        self.delivered += other.delivered;
        self.views += other.views;
        self.told += other.told;
        self.reported += other.reported;
        self.collected += other.collected;
        self.credits += other.credits;
        self.awaits += other.awaits;
        self.unknown += other.unknown;
        self.handed += other.handed;
        self.unheld += other.unheld;
        self.by_zombies += other.by_zombies;
        self.after_zombies += other.after_zombies;
        self.turns += other.turns;
        self.moved += other.moved;
        self.returned += other.returned;
        self.nowhere += other.nowhere;
        self.arrived += other.arrived;
    }
}

#[derive(Debug)]
pub(crate) enum Event {
    Deliver {
        from: SiloAddress,
        to: SiloAddress,
        message: Message,
    },
    View {
        to: SiloAddress,
        version: u64,
    },
    Timeout {
        silo: SiloAddress,
    },
    Report {
        silo: SiloAddress,
        report: ReportId,
        entries: Vec<(GrainId, u64)>,
    },
    Command,
    Fault,
    /// A message about a move.
    Move {
        from: SiloAddress,
        to: SiloAddress,
        said: moves::Said,
    },
    /// The target of a move has been silent for long.
    Patience {
        silo: SiloAddress,
        grain: GrainId,
    },
    /// The connection of one silo to another has broken.
    Broken {
        silo: SiloAddress,
        peer: SiloAddress,
    },
    SetStatus {
        silo: SiloAddress,
        status: SiloStatus,
    },
}

/// Death of a silo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Death {
    /// From here on it runs no turn.
    pub(crate) lapsed: Instant,
    /// True if others must believe that it may run turns for [`FADE`].
    pub(crate) fades: bool,
}

pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) rng: SeededRng,
    pub(crate) now: Instant,
    pub(crate) queue: BTreeMap<(Instant, u64), Event>,
    pub(crate) steps: u64,
    pub(crate) nodes: BTreeMap<SiloAddress, shell::Node>,
    pub(crate) deaths: BTreeMap<SiloAddress, Death>,
    /// Silos that no message leaves or reaches.
    pub(crate) cut: BTreeSet<SiloAddress>,
    /// Until when the first believes that the second, Dead, may run turns.
    believed: BTreeMap<(SiloAddress, SiloAddress), Instant>,
    /// The table's history: view n is at index n - 1.
    pub(crate) views: Vec<BTreeMap<SiloAddress, SiloStatus>>,
    pub(crate) grains: Vec<GrainId>,
    pair_last: BTreeMap<(SiloAddress, SiloAddress), Instant>,
    view_last: BTreeMap<SiloAddress, Instant>,
    /// The confirmed registration of each grain on a silo that is not Dead, and the step since
    /// when.
    pub(crate) truth: BTreeMap<GrainId, (Registration, u64)>,
    pub(crate) tokens: BTreeMap<u64, shell::Call>,
    /// The memory of each grain after its last turn on a silo that can run turns.
    pub(crate) memories: BTreeMap<GrainId, moves::Memory>,
    pub(crate) last_life: u64,
    pub(crate) next: u64,
    pub(crate) stats: Stats,
    pub(crate) ending: bool,
}

pub(crate) fn config() -> Config {
    Config { points_per_silo: 4, report_batch_max: 1, ..Config::default() }
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut world = Self {
            options,
            rng: SeededRng::new(seed),
            now: Instant::from_millis(1),
            queue: BTreeMap::new(),
            steps: 0,
            nodes: BTreeMap::new(),
            deaths: BTreeMap::new(),
            cut: BTreeSet::new(),
            believed: BTreeMap::new(),
            views: Vec::new(),
            grains: (0..12u64).map(|n| GrainId::new(GrainTypeId::of("g"), n)).collect(),
            pair_last: BTreeMap::new(),
            view_last: BTreeMap::new(),
            truth: BTreeMap::new(),
            tokens: BTreeMap::new(),
            memories: BTreeMap::new(),
            last_life: 0,
            next: 0,
            stats: Stats::default(),
            ending: false,
        };
        let mut first = BTreeMap::new();
        for _ in 0..options.silos {
            let silo = world.start_node();
            first.insert(silo, SiloStatus::Active);
        }
        world.write_view(first);
        world.schedule_workload();
        world
    }

    fn schedule_workload(&mut self) {
        let (window, most) = if self.options.burst { (300_000, 14) } else { (3_000_000, 6) };
        for _ in 0..220 {
            let at = self.now + Duration::from_micros(self.rng.below(window));
            self.schedule(at, Event::Command);
        }
        let faults = if self.options.faults { 3 + self.rng.below(most) } else { 0 };
        for _ in 0..faults {
            let at = self.now + Duration::from_micros(self.rng.below(window));
            self.schedule(at, Event::Fault);
        }
    }

    /// Runs the world to its end.
    pub(crate) fn run(mut self) -> Result<Stats, String> {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = self.now.max(at);
            self.steps += 1;
            if self.steps > 200_000 {
                return Err("the world does not come to rest".into());
            }
            self.step(event)?;
            let work_left = self.queue.values().any(|e| {
                matches!(
                    e,
                    Event::Command | Event::Fault | Event::SetStatus { .. } | Event::View { .. }
                )
            });
            if !work_left && !self.ending {
                self.ending = true;
                // Faults have stopped: the last view reaches all running silos.
                let silos: Vec<_> = self.nodes.keys().copied().collect();
                for to in silos {
                    let at = self.now + Duration::from_micros(self.rng.below(300_000));
                    self.schedule(at, Event::View { to, version: self.views.len() as u64 });
                }
            }
        }
        self.check_the_end()?;
        Ok(self.stats)
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        let now = self.now;
        match event {
            Event::Deliver { from, to, .. }
                if self.cut.contains(&from) || self.cut.contains(&to) =>
            {
                Ok(())
            }
            Event::Deliver { from, to, message } => {
                self.stats.count(&message);
                self.on(to, |dir| dir.handle_message(now, from, message))
            }
            Event::View { to, version } => {
                let view: Vec<_> = self.views[version as usize - 1]
                    .iter()
                    .map(|(silo, status)| (*silo, *status))
                    .collect();
                let fading = self.fading_for(to, &view);
                self.on(to, |dir| dir.handle_view(now, version, &view, &fading))?;
                self.leave_if_told(to)
            }
            Event::Timeout { silo } => self.on(silo, |dir| dir.handle_timeout(now)),
            Event::Report { silo, report, entries } => {
                self.on(silo, |dir| dir.handle_local_report(now, report, entries))
            }
            Event::Move { from, to, said } => self.hear_of_move(from, to, said),
            Event::Patience { silo, grain } => self.lose_patience(silo, &grain),
            Event::Broken { silo, peer } => self.on(silo, |dir| dir.handle_broken_way(now, peer)),
            Event::Command => self.random_command(),
            Event::Fault => {
                self.random_fault();
                Ok(())
            }
            Event::SetStatus { silo, status } => {
                self.set_status(silo, status);
                Ok(())
            }
        }
    }

    /// Feeds one directory and executes its effects.
    pub(crate) fn on(
        &mut self,
        silo: SiloAddress,
        feed: impl FnOnce(&mut Directory),
    ) -> Result<(), String> {
        let Some(node) = self.nodes.get_mut(&silo).filter(|node| node.running) else {
            return Ok(());
        };
        feed(&mut node.dir);
        self.drain(silo)
    }

    pub(crate) fn drain(&mut self, silo: SiloAddress) -> Result<(), String> {
        while let Some(effect) = self.nodes.get_mut(&silo).and_then(|node| node.dir.poll_effect()) {
            match effect {
                Effect::Send { to, message } => self.post(silo, to, message),
                Effect::Complete { token, outcome } => self.completed(token.0, outcome)?,
                Effect::ReportLocal { report, ranges } => {
                    let slow = self.options.tamper == Tamper::SlowShells;
                    let age = if slow { Duration::from_millis(20) } else { Duration::ZERO };
                    let entries = self.nodes[&silo].confirmed_in(&ranges, self.now - age);
                    let at = self.now + Duration::from_micros(self.rng.below(10_000));
                    self.schedule(at, Event::Report { silo, report, entries });
                }
                Effect::Evict { grain, activation } => {
                    return Err(format!(
                        "{silo} evicts {grain}#{activation}: there was a duplicate"
                    ));
                }
            }
        }
        let due = self.nodes[&silo].dir.poll_timeout();
        if let Some(due) = due.filter(|due| self.nodes[&silo].timer != Some(*due)) {
            self.nodes.get_mut(&silo).unwrap().timer = Some(due);
            self.schedule(due, Event::Timeout { silo });
        }
        Ok(())
    }

    fn post(&mut self, from: SiloAddress, to: SiloAddress, mut message: Message) {
        assert_ne!(from, to, "a directory does not write to itself");
        if self.rng.chance(self.options.loss) {
            return;
        }
        match (&mut message, self.options.tamper) {
            (Message::Report { entries, .. }, Tamper::EmptyReports) => entries.clear(),
            (Message::Collected { entries, .. }, Tamper::EmptyCollections)
            | (Message::Handed { entries, .. }, Tamper::EmptyHandovers) => entries.clear(),
            _ => {}
        }
        let slow = if self.rng.chance(0.05) { 300_000 } else { 15_000 };
        let at = self.now + Duration::from_micros(1 + self.rng.below(slow));
        let last = self.pair_last.entry((from, to)).or_default();
        let at = at.max(*last);
        *last = at;
        self.schedule(at, Event::Deliver { from, to, message });
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), event);
    }

    /// Appends a view to the table. Each silo hears of it at some time.
    pub(crate) fn write_view(&mut self, view: BTreeMap<SiloAddress, SiloStatus>) {
        self.views.push(view);
        self.stats.views += 1;
        let version = self.views.len() as u64;
        let dead: BTreeSet<_> = self.dead();
        self.truth.retain(|_, (registration, _)| !dead.contains(&registration.silo));
        for silo in &dead {
            let death = Death { lapsed: self.now + FADE, fades: true };
            self.deaths.entry(*silo).or_insert(death);
        }
        let silos: Vec<_> = self.nodes.keys().copied().collect();
        for to in silos {
            // The dead hear of it late.
            let late = if dead.contains(&to) { 0.8 } else { 0.2 };
            let slow = if self.rng.chance(late) { 600_000 } else { 60_000 };
            let mut at = self.now + Duration::from_micros(self.rng.below(slow));
            if !self.options.skip_views {
                let last = self.view_last.entry(to).or_default();
                at = at.max(*last);
                *last = at;
            } else if self.rng.chance(0.3) {
                continue;
            }
            self.schedule(at, Event::View { to, version });
        }
    }

    /// Silos that are Dead in the table.
    pub(crate) fn dead(&self) -> BTreeSet<SiloAddress> {
        let last = self.views.last();
        last.into_iter()
            .flatten()
            .filter(|(_, s)| **s == SiloStatus::Dead)
            .map(|(silo, _)| *silo)
            .collect()
    }
}
