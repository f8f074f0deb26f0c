//! Joins of silos whose predecessors on the same `ip:port` may still run.

use std::time::Duration;

use emmer_core::{SiloAddress, SiloStatus};

use crate::world::{World, address, ms};
use crate::{Config, Message, TerminateReason};

#[test]
fn a_restart_after_a_crash_takes_milliseconds() {
    for crashed in [vec![1], vec![1, 2], vec![0, 1, 2]] {
        let mut world = World::cluster(&Config::default(), 4);
        for i in &crashed {
            world.kill(*i);
        }
        let mut news = Vec::new();
        for i in &crashed {
            let new = address(1_000 + u16::try_from(*i).unwrap(), 2);
            world.start(&Config::default(), new, 77 + *i as u64);
            news.push(new);
        }
        let took = world.until(ms(2_500), |w| news.iter().all(|new| w.status(new).is_some()));
        assert!(took <= ms(if crashed.len() == 1 { 200 } else { 1_500 }), "{crashed:?}: {took:?}");
    }
}

#[test]
fn a_lone_silo_restarts_within_a_second() {
    let mut world = World::cluster(&Config::default(), 1);
    world.kill(0);
    let new = address(1_000, 2);
    world.start(&Config::default(), new, 77);
    let took = world.until(ms(5_000), |w| w.status(&new) == Some(SiloStatus::Active));
    assert!(took < ms(1_200), "{took:?}");
    assert_eq!(world.status(&address(1_000, 1)), Some(SiloStatus::Dead));
}

#[test]
fn a_predecessor_that_runs_says_so_and_ends_before_its_death_is_written() {
    let mut world = World::cluster(&Config::default(), 4);
    let (old, new) = (address(1_001, 1), address(1_001, 2));
    world.start(&Config::default(), new, 77);
    world.until(ms(1_000), |w| w.silos[1].ended.is_some());
    assert_eq!(world.silos[1].ended, Some(TerminateReason::Superseded(new)));
    assert_eq!(world.silos[1].fences.last(), Some(&true));
    assert_eq!(world.status(&old), Some(SiloStatus::Active), "not written yet");
    world.until(ms(1_000), |w| w.status(&new).is_some());
    assert_eq!(world.status(&old), Some(SiloStatus::Dead));
}

#[test]
fn without_a_word_from_anybody_the_successor_waits() {
    let mut world = World::cluster(&Config::default(), 4);
    let (old, new) = (address(1_001, 1), address(1_001, 2));
    // Its host does not answer at all: no silo can say whether it runs.
    world.silos[1].silent = true;
    let lost_at = world.now;
    world.start(&Config::default(), new, 77);
    world.until(ms(20_000), |w| w.status(&new).is_some());
    assert_eq!(world.status(&old), Some(SiloStatus::Dead));
    let waited = world.died_at[&old].saturating_since(lost_at);
    assert!(waited >= Config::default().fence_timeout, "{waited:?}");
    // It still has the table, and finds itself there.
    world.run(Config::default().fence_timeout);
    assert!(!world.silos[1].up || world.silos[1].machine.is_fenced());
}

#[test]
fn a_monitor_that_gave_its_word_confirms_again_only_after_a_read_of_the_table() {
    let mut world = World::cluster(&Config::default(), 3);
    let (target, by, writer) = (address(1_001, 1), address(1_001, 2), address(1_002, 1));
    assert!(world.confirms(0, &target));
    let hush = Message::Hush { target, by, stamp: 5 };
    world.call(0, |machine, now| machine.handle_message(now, writer, hush));
    let word_given = world.now;
    assert!(!world.confirms(0, &target));
    let again = world.until(ms(30_000), |w| w.confirms(0, &target));
    assert!(
        again > Config::default().table_timeout,
        "a commit may be on its way for that long: {again:?}"
    );
    let over = word_given + Config::default().table_timeout + Duration::from_nanos(1);
    assert!(world.silos[0].machine.heard_table_at() >= Some(over));
    // The predecessor was confirmed by the table meanwhile.
    assert!(world.silos[1].fences.is_empty() && world.silos[1].up);
}

/// Two hosts use one `ip:port`, for example after a lease ran out. The old silo still runs with its
/// monitors. The host that the writer reaches at the address refuses.
struct TwoHosts {
    world: World,
    old: SiloAddress,
    new: SiloAddress,
    /// All but the writer.
    others: Vec<SiloAddress>,
}

/// The first of twelve silos writes the join, and does not reach the old one.
fn two_hosts() -> TwoHosts {
    let config = Config::default();
    let world = World::cluster(&config, 12);
    let (old, new) = (address(1_001, 1), address(1_001, 2));
    let others = (1..12).map(|i| address(1_000 + i, 1)).collect();
    let mut hosts = TwoHosts { world, old, new, others };
    hosts.cut(&[old]);
    hosts.world.refusing.insert(old);
    hosts
}

impl TwoHosts {
    const WRITER: usize = 0;

    /// Nothing passes between these and the writer with the newcomer.
    fn cut(&mut self, silos: &[SiloAddress]) {
        let writer = self.world.silos[Self::WRITER].machine.me();
        for silo in silos {
            for side in [writer, self.new] {
                self.world.cut.extend([(side, *silo), (*silo, side)]);
            }
        }
    }

    /// The newcomer asks only the writer.
    fn start(&mut self) {
        let others: Vec<_> = self.others.iter().map(|silo| (self.new, *silo)).collect();
        self.world.cut.extend(others.iter().copied());
        self.world.start(&Config::default(), self.new, 77);
    }

    /// Lets time pass: the old silo never runs turns while the writer may grant its grains.
    fn watch(&mut self, seconds: u64) {
        for _ in 0..seconds * 100 {
            self.world.run(ms(10));
            let now = self.world.now;
            let old = &self.world.silos[1];
            let serves = old.up && old.machine.fence_deadline().is_none_or(|until| now < until);
            let is_dead = self.world.status(&self.old) == Some(SiloStatus::Dead);
            let writer = &self.world.silos[Self::WRITER].machine;
            let fades =
                writer.fading().iter().any(|(silo, until)| *silo == self.old && now < *until);
            assert!(!(serves && is_dead && !fades), "{now:?}: it runs, and its grains are granted");
        }
    }
}

/// Without a word from its monitors the join is not written. The monitors would not hear of it in
/// time: they read the whole table once in a minute.
#[test]
fn a_predecessor_whose_monitors_cannot_be_asked_stays() {
    let mut hosts = two_hosts();
    let others = hosts.others.clone();
    hosts.cut(&others);
    hosts.start();
    hosts.watch(40);
}

/// The monitors have given their words, and are cut off as soon as the death is written.
#[test]
fn monitors_that_gave_their_word_confirm_nobody_when_they_hear_no_more() {
    let mut hosts = two_hosts();
    hosts.start();
    let old = hosts.old;
    hosts.world.until(ms(5_000), |w| w.status(&old) == Some(SiloStatus::Dead));
    let others = hosts.others.clone();
    hosts.cut(&others);
    hosts.watch(40);
}
