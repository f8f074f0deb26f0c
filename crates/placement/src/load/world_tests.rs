//! Silos in a small world: their common knowledge, and its cost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use bytes::Bytes;
use emmer_core::rng::SeededRng;
use emmer_core::{Instant, SiloAddress};

use super::gather::{AHEAD_MAX, WAVE_MAX};
use super::{Effect, Gather, GatherConfig, LoadReport, Loads, Message};

struct World {
    now: Instant,
    silos: Vec<SiloAddress>,
    machines: BTreeMap<SiloAddress, Gather>,
    loads: BTreeMap<SiloAddress, Loads>,
    silent: BTreeSet<SiloAddress>,
    /// Coming events, in time: a message, or (none) a timeout of a silo.
    to_come: BinaryHeap<Reverse<(Instant, SiloAddress, Option<u64>)>>,
    messages: Vec<(SiloAddress, SiloAddress, Message)>,
    sent: BTreeMap<SiloAddress, (u64, u64)>,
    /// Pairs of senders and receivers.
    pairs: BTreeSet<(SiloAddress, SiloAddress)>,
    rng: SeededRng,
    loss: f64,
}

fn silo(n: u16) -> SiloAddress {
    format!("10.0.{}.{}:1:1", n / 256, n % 256).parse().unwrap()
}

/// Every third silo hosts something else than the others.
fn hosts(silo: &SiloAddress) -> u64 {
    1 + u64::from(silo.stable_hash(0).is_multiple_of(3))
}

/// The report of silo `n` says its number.
fn report(n: usize) -> LoadReport {
    LoadReport { activations: u32::try_from(n).unwrap(), ..LoadReport::default() }
}

impl World {
    fn new(silos: u16, seed: u64) -> Self {
        let silos: Vec<_> = (0..silos).map(silo).collect();
        let mut world = Self {
            now: Instant::ZERO,
            machines: silos
                .iter()
                .map(|s| (*s, Gather::new(*s, hosts(s), GatherConfig::default())))
                .collect(),
            silos: silos.clone(),
            loads: BTreeMap::new(),
            silent: BTreeSet::new(),
            to_come: BinaryHeap::new(),
            messages: Vec::new(),
            sent: BTreeMap::new(),
            pairs: BTreeSet::new(),
            rng: SeededRng::new(seed),
            loss: 0.0,
        };
        world.view(1, &silos);
        world
    }

    fn view(&mut self, version: u64, active: &[SiloAddress]) {
        for silo in self.silos.clone() {
            self.step(silo, |machine, now| machine.handle_view(now, version, active));
        }
    }

    fn step(&mut self, silo: SiloAddress, step: impl FnOnce(&mut Gather, Instant)) {
        let machine = self.machines.get_mut(&silo).unwrap();
        step(machine, self.now);
        while let Some(effect) = machine.poll_effect() {
            match effect {
                Effect::Publish(loads) => drop(self.loads.insert(silo, loads)),
                Effect::Send { to, message } => {
                    let (messages, bytes) = self.sent.entry(silo).or_default();
                    *messages += 1;
                    self.pairs.insert((silo, to));
                    *bytes += rmp_serde::to_vec_named(&message).unwrap().len() as u64;
                    if self.rng.chance(self.loss) {
                        continue;
                    }
                    let at = self.now + Duration::from_micros(300 + self.rng.below(400));
                    self.to_come.push(Reverse((at, to, Some(self.messages.len() as u64))));
                    self.messages.push((silo, to, message));
                }
            }
        }
        if let Some(at) = self.machines[&silo].poll_timeout() {
            self.to_come.push(Reverse((at, silo, None)));
        }
    }

    fn run(&mut self, until: Instant) {
        while let Some(Reverse((at, silo, number))) = self.to_come.pop() {
            if at > until {
                self.to_come.push(Reverse((at, silo, number)));
                break;
            }
            self.now = self.now.max(at);
            if self.silent.contains(&silo) {
                continue;
            }
            let own = report(self.silos.iter().position(|one| *one == silo).unwrap());
            match number.map(|number| usize::try_from(number).unwrap()) {
                Some(number) => {
                    let (from, _, message) = self.messages[number].clone();
                    self.step(silo, |machine, now| {
                        machine.handle_message(now, from, &message, || own);
                    });
                }
                // A timeout that was put off, or is over.
                None if self.machines[&silo].poll_timeout().is_none_or(|due| due > self.now) => {}
                None => self.step(silo, |machine, now| machine.handle_timeout(now, || own)),
            }
        }
        self.now = until;
    }

    /// The ages of all reports at all silos that speak, none for those that are not known.
    fn ages(&self) -> Vec<Option<Duration>> {
        let pairs = self.loads.iter().filter(|(silo, _)| !self.silent.contains(silo));
        let of = |loads: &Loads| {
            let speaking = self.silos.iter().filter(|silo| !self.silent.contains(silo));
            speaking.map(|silo| loads.age(silo, self.now)).collect::<Vec<_>>()
        };
        pairs.flat_map(|(_, loads)| of(loads)).collect()
    }

    /// The age that ninety-nine of a hundred reports do not exceed, over `secs` seconds from now.
    fn age_p99(&mut self, secs: u64) -> Duration {
        let mut ages = Vec::new();
        for _ in 0..secs {
            // No divisor of a period.
            self.run(self.now + Duration::from_millis(1_030));
            ages.extend(self.ages().into_iter().map(|age| age.unwrap_or(Duration::MAX)));
        }
        ages.sort_unstable();
        ages[ages.len() * 99 / 100]
    }
}

#[test]
fn after_a_wave_everybody_knows_everybody() {
    for silos in [1, 2, 3, 4, 5, 8, 13, 16, 17, 100] {
        let mut world = World::new(silos, u64::from(silos));
        world.run(Instant::from_millis(1_100));
        for (at, loads) in &world.loads {
            for (n, silo) in world.silos.iter().enumerate() {
                let known = loads.of(silo).unwrap().report.map(|(report, _)| report);
                assert_eq!(known, Some(report(n)), "{silos} silos: {silo} at {at}");
                assert_eq!(loads.of(silo).unwrap().manifest, Some(hosts(silo)));
            }
        }
        // One wave at once, and one after a second.
        let rounds = u64::from(u64::from(silos).next_power_of_two().trailing_zeros());
        assert_eq!(world.sent.len(), if silos == 1 { 0 } else { usize::from(silos) });
        assert!(
            world.sent.values().all(|(messages, _)| *messages == 2 * rounds),
            "{:?}",
            world.sent
        );
    }
}

/// Time for which a thousand silos are watched: two waves and more.
const SECS: u64 = 9;

#[test]
fn a_thousand_silos_send_less_than_two_kilobytes_a_second_and_know_what_is_no_older_than_five() {
    let mut world = World::new(1_000, 7);
    world.run(Instant::from_millis(6_000));
    world.sent.clear();
    let oldest = world.age_p99(SECS);
    assert!(oldest <= Duration::from_secs(5), "{oldest:?}");
    let most = world.sent.values().map(|(_, bytes)| bytes / SECS).max().unwrap();
    assert!(most <= 2_000, "{most} bytes a second");
}

#[test]
fn a_silo_sends_to_few_others_however_many_waves_there_are() {
    let mut world = World::new(100, 11);
    world.run(Instant::from_millis(30_000));
    let most = world
        .silos
        .iter()
        .map(|silo| world.pairs.iter().filter(|(from, _)| from == silo).count())
        .max();
    // Four circles of seven rounds.
    assert!(most.is_some_and(|most| (14..=28).contains(&most)), "{most:?}");
}

#[test]
fn silent_silos_and_lost_messages_make_few_reports_older() {
    let mut world = World::new(200, 8);
    world.run(Instant::from_millis(3_000));
    let quiet = world.age_p99(10);
    world.silent.extend((0..4).map(|n| silo(n * 50)));
    world.loss = 0.001;
    let disturbed = world.age_p99(10);
    assert!(quiet <= Duration::from_millis(1_100), "{quiet:?}");
    // Some wait for the next wave, which has another circle, and some rounds wait for the silent.
    assert!(disturbed <= Duration::from_secs(4), "{disturbed:?}");
}

#[test]
fn who_joins_is_known_soon_and_who_left_is_forgotten() {
    let mut world = World::new(20, 9);
    let all = world.silos.clone();
    world.view(2, &all[..19]);
    world.run(Instant::from_millis(3_000));
    assert!(world.loads[&all[0]].of(&all[19]).is_none());
    world.view(3, &all[1..]);
    let newcomer = *world.loads[&all[5]].of(&all[19]).unwrap();
    assert_eq!((newcomer.since, newcomer.report), (world.now, None));
    world.run(Instant::from_millis(4_100));
    for at in &all[1..] {
        assert!(world.loads[at].of(&all[0]).is_none());
        assert!(world.loads[at].age(&all[19], world.now).is_some(), "the newcomer at {at}");
    }
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let mut world = World::new(8, 10);
    world.run(Instant::from_millis(1_100));
    let (from, to, fitting) = world.messages.last().cloned().unwrap();
    let other = |change: &dyn Fn(&mut Message)| {
        let mut message = fitting.clone();
        change(&mut message);
        message
    };
    let mut wrong = Vec::new();
    for wave in [fitting.wave, fitting.wave + 1, fitting.wave + 2, u64::MAX] {
        wrong.extend([
            (from, other(&|m| (m.view, m.wave) = (0, wave))),
            (from, other(&|m| (m.round, m.wave) = (3, wave))),
            (from, other(&|m| (m.round, m.wave) = (255, wave))),
            (from, other(&|m| (m.reports, m.wave) = (vec![0; 9].into(), wave))),
            (from, other(&|m| (m.reports, m.wave) = (Bytes::new(), wave))),
            (from, other(&|m| (m.manifests, m.wave) = (vec![1; 127], wave))),
            // From one that sends to others, or is no silo at all.
            (to, other(&|m| m.wave = wave)),
            (silo(99), other(&|m| m.wave = wave)),
        ]);
    }
    wrong.push((from, other(&|m| m.wave = 0)));
    // Numbers that no silo reaches, from any sender.
    for from in world.silos.clone() {
        for view in [fitting.view, fitting.view + 1] {
            for wave in (WAVE_MAX + 1)..=(WAVE_MAX + 4) {
                wrong.push((from, other(&|m| (m.view, m.wave) = (view, wave))));
            }
        }
        let view = fitting.view + AHEAD_MAX + 1;
        wrong.push((from, other(&|m| m.view = view)));
    }
    let machine = world.machines.get_mut(&to).unwrap();
    let before = format!("{machine:?}");
    let now = world.now;
    for (from, message) in wrong {
        machine.handle_message(now, from, &message, || panic!("nothing began"));
        assert_eq!(format!("{machine:?}"), before, "{message:?} from {from}");
    }
}

#[test]
fn a_silo_measures_itself_once_for_each_wave() {
    let mut world = World::new(8, 12);
    world.run(Instant::from_millis(900));
    let me = world.silos[3];
    let of_the_wave: Vec<_> =
        world.messages.iter().filter(|(_, to, _)| *to == me).cloned().collect();
    assert_eq!(of_the_wave.len(), 3, "one wave of three rounds");
    let mut machine = Gather::new(me, 1, GatherConfig::default());
    machine.handle_view(Instant::ZERO, 1, &world.silos);
    let mut measured = 0;
    // Each message twice.
    for (from, _, message) in of_the_wave.iter().chain(&of_the_wave) {
        let own = || {
            measured += 1;
            LoadReport::default()
        };
        machine.handle_message(Instant::from_millis(1), *from, message, own);
    }
    assert_eq!(measured, 1);
}

#[test]
fn silos_that_host_many_different_things_are_told_apart_as_far_as_a_message_goes() {
    for (silos, known) in [(126_u16, 126..=126), (400, 126..=400)] {
        let mut world = World::new(silos, 13);
        for (n, silo) in (1..).zip(world.silos.clone()) {
            world.machines.insert(silo, Gather::new(silo, n, GatherConfig::default()));
        }
        world.view(1, &world.silos.clone());
        world.run(Instant::from_millis(4_000));
        for loads in world.loads.values() {
            let right = (1..).zip(&world.silos).filter(|(n, silo)| {
                let said = loads.of(silo).unwrap().manifest;
                assert!(said.is_none_or(|said| said == *n), "{silo}");
                said.is_some()
            });
            let right = right.count();
            assert!(known.contains(&right), "{right} of {silos}");
        }
    }
}

#[test]
fn who_sees_a_view_late_hears_the_newcomer_soon_all_the_same() {
    let mut world = World::new(6, 14);
    let all = world.silos.clone();
    world.view(2, &all[..5]);
    world.run(Instant::from_millis(3_000));
    // The newcomer and two others see the view first, and their wave is over before the other silos
    // see it.
    let (early, late) = ([all[5], all[0], all[1]], [all[2], all[3], all[4]]);
    for (silos, until) in [(early, 3_100), (late, 3_900)] {
        for silo in silos {
            world.step(silo, |machine, now| machine.handle_view(now, 3, &all));
        }
        world.run(Instant::from_millis(until));
    }
    for at in &all {
        let said = world.loads[at].of(&all[5]).unwrap();
        assert!(said.report.is_some() && said.manifest.is_some(), "the newcomer at {at}");
    }
}
