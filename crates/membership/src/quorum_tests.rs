//! Rules that the simulator's invariants do not tell from their opposite, because another rule
//! mostly covers them: each in the smallest world in which it alone decides. Promises of
//! `docs/at-most-one.md` and of the table description.

use emmer_core::{Instant, SiloAddress, SiloStatus, Vote};

use crate::Config;
use crate::api::TerminateReason;
use crate::intent::{Intent, Key};
use crate::message::Message;
use crate::rings::monitors_to_be;
use crate::world::{Store, World, address, isolate, ms, secs};

/// The monitors of silo 0.
fn monitors(world: &World, config: &Config) -> Vec<SiloAddress> {
    let view = world.silos[0].machine.view();
    let me = world.silos[0].machine.me();
    let monitors = monitors_to_be(view, &me, config.num_probe_rings, config.num_probed_silos);
    monitors.into_iter().collect()
}

/// A probe by a silo with the view of silo 0.
fn probe(world: &World) -> Message {
    let version = world.silos[0].machine.view().version();
    Message::Probe { seq: 1, version, misses: 0, echo: 0 }
}

/// Nothing passes between silo 0 and `other`.
fn cut(world: &mut World, other: SiloAddress) {
    let me = world.silos[0].machine.me();
    world.cut.extend([(me, other), (other, me)]);
}

fn closes_at(world: &World) -> Instant {
    world.silos[0].machine.fence_deadline().unwrap()
}

/// Silo 0 of thirty has lost the store, so the word of its monitors alone keeps its fence open.
fn on_the_word_of_monitors(config: &Config) -> World {
    let mut world = World::cluster(config, 30);
    let me = world.silos[0].machine.me();
    world.run(config.publish_period(30) + ms(100));
    world.offline.insert(me);
    world
}

/// Returns true if the fence of silo 0 is open a while after `lost` of its monitors have lost it.
fn is_open_without(lost: usize, world: &mut World, config: &Config) -> bool {
    for monitor in monitors(world, config).into_iter().take(lost) {
        cut(world, monitor);
    }
    world.run(config.fence_timeout.max(config.fence_table_timeout) + ms(300));
    closes_at(world) > world.now
}

/// The row says when its silo was last well, and others rely on it.
#[test]
fn a_silo_touches_its_row_once_in_every_publish_period() {
    for config in [Config::default(), Config::fast()] {
        let mut world = World::cluster(&config, 3);
        for _ in 0..4 {
            let before = world.rows.clone();
            world.run(config.publish_period(3) + ms(200));
            for (silo, row) in &world.rows {
                assert!(row.i_am_alive_time > before[silo].i_am_alive_time, "{silo}");
            }
        }
    }
}

/// A death needs three votes, and one of these may be in the table already: of a silo that was a
/// monitor once.
#[test]
fn a_vote_that_stands_in_the_table_is_one_that_no_monitor_needs_to_cast() {
    for stands in [false, true] {
        let config = Config::default();
        let mut world = on_the_word_of_monitors(&config);
        let (me, watching) = (world.silos[0].machine.me(), monitors(&world, &config));
        world.offline.clear();
        if stands {
            let mut others = world.silos.iter().map(|silo| silo.machine.me());
            let voter = others.find(|silo| *silo != me && !watching.contains(silo)).unwrap();
            let row = world.rows.get_mut(&me).unwrap();
            let at = row.i_am_alive_time;
            row.votes.push(Vote { voter, at, gone: false });
            world.write_a_row_again();
            let number = world.version.number;
            world.until(secs(70), |w| w.silos[0].machine.view().version() >= number);
        }
        world.offline.insert(me);
        let open = is_open_without(2, &mut world, &config);
        assert_eq!(open, !stands, "a vote stands: {stands}");
    }
}

/// Its row looks stale to others, and one vote is enough then.
#[test]
fn a_silo_that_cannot_touch_its_row_needs_the_word_of_every_monitor() {
    for touches in [true, false] {
        let config = Config { serve_without_store: true, ..Config::default() };
        let mut world = on_the_word_of_monitors(&config);
        let me = world.silos[0].machine.me();
        if touches {
            world.touches_only.insert(me);
            world.offline.clear();
        }
        world.run(config.word_counts_for(3));
        assert!(closes_at(&world) > world.now, "its monitors hear it");
        let open = is_open_without(1, &mut world, &config);
        assert_eq!(open, touches, "touches: {touches}");
    }
}

/// The newcomer may be Active soon, and lose patience with it.
#[test]
fn a_silo_that_is_alone_rests_on_its_touches_no_more_once_a_stranger_has_probed_it() {
    let config = Config::default();
    for probed in [false, true] {
        let mut world = World::cluster(&config, 1);
        world.run(config.publish_period(1));
        let me = world.silos[0].machine.me();
        world.offline.insert(me);
        if probed {
            let probe = probe(&world);
            let stranger = address(2_000, 2);
            world.call(0, |machine, now| machine.handle_message(now, stranger, probe));
        }
        world.run(config.fence_timeout.max(config.fence_table_timeout) + ms(10));
        assert_eq!(closes_at(&world) > world.now, !probed, "probed: {probed}");
    }
}

/// Its next touch, after one that failed, would be seconds away.
#[test]
fn a_silo_that_is_alone_rests_on_its_touches_as_soon_as_the_table_is_back() {
    for config in [Config::default(), Config::fast()] {
        let mut world = World::cluster(&config, 1);
        world.store = Store::Down;
        world.run(secs(60));
        assert!(closes_at(&world) <= world.now);
        world.store = Store::Up;
        let rests = |w: &World| closes_at(w) > w.now + config.fence_table_timeout;
        world.until(config.table_retry_max + ms(200), rests);
    }
}

/// A commit of unknown outcome may still come: its base has to be taken from it, even if no silo
/// still has its wish.
#[test]
fn a_commit_of_unknown_outcome_is_settled_by_another_one_and_once() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    let suspect = world.silos[2].machine.me();
    let (before, commits) = (world.version.number, world.commits);
    world.store = Store::LosesAsUnknown;
    isolate(&mut world, 2);
    let unknown = |w: &World| w.silos.iter().any(|s| s.machine.counters().commits_unknown > 0);
    world.until(secs(10), unknown);
    // The suspect is well again, and no silo has written anything.
    world.cut.clear();
    world.run(secs(3));
    assert_eq!((world.version.number, world.status(&suspect)), (before, Some(SiloStatus::Active)));
    world.store = Store::Up;
    world.until(secs(10), |w| w.version.number > before);
    world.run(secs(20));
    let settled = world.commits - commits;
    assert!((1..=3).contains(&settled), "{settled} commits");
    let reads = |w: &World| w.silos.iter().map(|s| s.machine.counters().reads).sum::<u64>();
    let (read, now) = (reads(&world), world.commits);
    world.run(secs(20));
    assert!(reads(&world) <= read + 3 && world.commits == now, "it goes on asking");
}

#[test]
fn a_vote_counts_for_as_long_as_the_configuration_says() {
    let config = Config::default();
    let (window, lasts) = (config.vote_window(), config.death_vote_expiration_timeout);
    let at = |span: std::time::Duration| {
        emmer_core::Timestamp::from_millis(i64::try_from(span.as_millis()).unwrap())
    };
    assert!(window.counts(at(lasts - ms(1)), at(ms(0))));
    assert!(!window.counts(at(lasts), at(ms(0))));
}

/// Any message that it hears first when it continues ends it: others may have given it up.
#[test]
fn a_joiner_that_was_frozen_beyond_its_deadline_ends_with_the_first_input() {
    let config = Config::default();
    let mut world = World::cluster(&config, 2);
    let joiner = world.start(&config, address(2_000, 2), 9);
    isolate(&mut world, joiner);
    world.run(secs(1));
    assert!(world.silos[joiner].up);
    let member = world.silos[0].machine.me();
    // The rest of the world stands still: the joiner alone is called.
    world.now = world.now + config.max_join_attempt_time + secs(1);
    let probe = probe(&world);
    world.call(joiner, |machine, now| machine.handle_message(now, member, probe));
    assert_eq!(world.silos[joiner].ended, Some(TerminateReason::JoinTimedOut));
}

/// Its owner repeats it as long as it holds.
#[test]
fn a_writer_forgets_a_wish_that_its_owner_does_not_repeat() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    let joiner = address(2_000, 2);
    let wish = || Intent::Activate { silo: joiner, checked: u64::MAX, missing: Vec::new() };
    let waits = |w: &World| w.silos[0].machine.would_write(&Key::Activate(joiner));
    let tell = |world: &mut World| {
        let message = Message::Write { version: 0, intents: vec![wish()], hops: 1 };
        world.call(0, |machine, now| machine.handle_message(now, joiner, message));
    };
    let lifetime = crate::rules::intent_lifetime(world.silos[0].machine.config());
    tell(&mut world);
    for _ in 0..8 {
        world.run(lifetime * 3 / 4);
        assert!(waits(&world), "it was repeated");
        tell(&mut world);
    }
    world.run(lifetime + secs(1));
    tell_nothing(&mut world);
    assert!(!waits(&world));
}

/// An input, at which the writer looks at its queue.
fn tell_nothing(world: &mut World) {
    world.write_a_row_again();
    world.run(secs(2));
}
