//! Promises of `docs/membership.md` that took an adversary to be found broken, each with the
//! smallest world that shows it.

use emmer_core::{SiloAddress, SiloStatus};

use crate::intent::{Intent, Key};
use crate::world::{World, address, isolate, ms, secs};
use crate::{Config, Message, TerminateReason};

#[test]
fn a_silo_cut_off_from_its_peers_starts_no_turn_once_others_may_have_its_grains() {
    for (config, n) in
        [(Config::default(), 5), (Config::fast(), 5), (Config::default(), 20), (Config::fast(), 2)]
    {
        let mut world = World::cluster(&config, n);
        isolate(&mut world, 0);
        let dead = |w: &World, i: &u16| w.status(&address(1_000 + i, 1)) == Some(SiloStatus::Dead);
        world.until(secs(10), |w| (0..n).any(|i| dead(w, &i)));
        // Of two silos either may be the quicker one; else it is the silo that is not heard.
        let cut = (0..n).find(|i| dead(&world, i)).unwrap();
        assert!(cut == 0 || n == 2, "silo {cut} of {n} died");
        let (cut, victim) = (usize::from(cut), address(1_000 + cut, 1));
        let fades = |w: &World, i: usize| {
            let machine = &w.silos[i].machine;
            machine.view().status_of(&victim) != Some(SiloStatus::Dead)
                || machine.fading().iter().any(|(silo, until)| *silo == victim && w.now < *until)
        };
        for _ in 0..4_000 {
            world.run(ms(1));
            let serves = world.silos[cut].up
                && world.silos[cut].machine.fence_deadline().is_none_or(|until| world.now < until);
            let granted =
                (0..usize::from(n)).any(|i| i != cut && world.silos[i].up && !fades(&world, i));
            assert!(
                !(serves && granted),
                "{n} silos: the cut silo may start turns at {:?}",
                world.now
            );
        }
    }
}

#[test]
fn a_firewall_that_refuses_and_resets_kills_nobody() {
    for config in [Config::default(), Config::fast()] {
        let mut world = World::cluster(&config, 6);
        let victim = address(1_002, 1);
        world.refusing.insert(victim);
        for _ in 0..5 {
            world.reset_connections(2);
            world.run(secs(10));
        }
        assert_eq!(world.active(), 6, "{:?}", world.rows);
        assert_eq!(world.silos[2].ended, None);
    }
}

#[test]
fn a_killed_silo_is_dead_in_milliseconds_and_known_to_be_gone() {
    let mut world = World::cluster(&Config::default(), 6);
    world.kill(3);
    let took = world.until(secs(1), |w| w.status(&address(1_003, 1)) == Some(SiloStatus::Dead));
    assert!(took <= ms(100), "{took:?}");
    assert!(world.rows[&address(1_003, 1)].votes.iter().any(|vote| vote.gone));
    world.run(ms(100));
    for process in world.silos.iter().filter(|p| p.up) {
        assert_eq!(process.machine.fading(), [], "nobody waits for a process that is gone");
    }
}

#[test]
fn a_silo_that_nobody_reaches_at_its_address_does_not_become_active() {
    let mut world = World::cluster(&Config::default(), 3);
    let hidden = address(2_000, 1);
    world.refusing.insert(hidden);
    world.start(&Config::default(), hidden, 9);
    world.run(secs(30));
    assert_eq!(world.status(&hidden), Some(SiloStatus::Joining));
    world.refusing.clear();
    world.until(secs(2), |w| w.status(&hidden) == Some(SiloStatus::Active));
}

#[test]
fn a_table_that_lost_a_commit_ends_those_who_saw_it() {
    for config in [Config::default(), Config::classic()] {
        let mut world = World::cluster(&config, 4);
        world.kill(3);
        world.until(secs(60), |w| w.status(&address(1_003, 1)) == Some(SiloStatus::Dead));
        world.until(secs(60), World::converged);
        world.lose_last_commit();
        let ended = |w: &World| {
            w.silos[..3].iter().all(|p| p.ended == Some(TerminateReason::TableWentBack))
        };
        world.until(config.table_refresh_timeout + secs(30), ended);
    }
}

#[test]
fn other_commits_under_the_same_numbers_end_those_who_saw_the_lost_ones() {
    let mut world = World::cluster(&Config::default(), 4);
    world.kill(3);
    world.until(secs(5), |w| w.status(&address(1_003, 1)) == Some(SiloStatus::Dead));
    world.until(secs(5), World::converged);
    world.lose_last_commit();
    // A silo that knows nothing of it makes a commit with the lost number.
    world.start(&Config::default(), address(2_000, 1), 9);
    world.until(secs(90), |w| {
        w.silos[..3].iter().all(|p| p.ended == Some(TerminateReason::TableWentBack))
    });
}

#[test]
fn a_wall_clock_that_jumps_deletes_no_dead_row_early() {
    let config = Config {
        defunct_silo_cleanup_period: secs(2),
        defunct_silo_expiration: secs(60),
        ..Config::default()
    };
    let mut world = World::cluster(&config, 4);
    let victim = address(1_003, 1);
    world.kill(3);
    world.until(secs(5), |w| w.status(&victim) == Some(SiloStatus::Dead));
    for process in &mut world.silos {
        process.skew_ms = 3_600_000;
    }
    world.run(config.max_join_attempt_time);
    assert_eq!(world.status(&victim), Some(SiloStatus::Dead), "the row must outlive every join");
    world.run(config.max_join_attempt_time * 2);
    assert_eq!(world.status(&victim), None);
}

/// A silo that crashes again and again never lives long enough to have seen its dead ones rest.
#[test]
fn rows_of_a_crash_loop_are_deleted_by_the_wall_clock() {
    let config = Config { max_defunct_silo_entries: 2, ..Config::default() };
    let mut world = World::cluster(&config, 1);
    let mut last = 0;
    for life in 2..8 {
        world.kill(last);
        last = world.start(&config, address(1_000, life), life);
        world.until(secs(60), |w| w.status(&address(1_000, life)) == Some(SiloStatus::Active));
    }
    world.run(secs(60));
    assert_eq!(world.status(&address(1_000, 2)), Some(SiloStatus::Dead), "it is minutes old");
    world.silos[last].skew_ms = 30 * 3_600_000;
    world.run(secs(60));
    assert_eq!(world.status(&address(1_000, 2)), None, "two are kept, and it is the oldest");
    assert_eq!(world.status(&address(1_000, 6)), Some(SiloStatus::Dead));
}

#[test]
fn a_leaver_starts_no_turn_once_it_asks_for_its_own_death() {
    let mut world = World::cluster(&Config::default(), 3);
    world.call(1, |m, now| m.leave(now));
    world.run(ms(200));
    assert!(!world.silos[1].machine.is_fenced(), "it drains");
    world.call(1, |m, now| m.finish_leave(now));
    assert!(world.silos[1].machine.is_fenced());
    assert!(world.silos[1].machine.fence_deadline().is_some_and(|until| until < world.now));
}

#[test]
fn a_cluster_lost_and_started_elsewhere_is_active_soon() {
    for (n, refuses, limit) in
        [(3, true, 10), (3, false, 30), (20, true, 10), (100, true, 10), (100, false, 30)]
    {
        let config = Config::default();
        let mut world = World::cluster(&config, n);
        for i in 0..usize::from(n) {
            world.silos[i].silent = !refuses;
            world.kill(i);
        }
        for i in 0..n {
            world.start(&config, address(3_000 + i, 2), 500 + u64::from(i));
        }
        let young = |w: &World| {
            let active = |i| w.status(&address(3_000 + i, 2)) == Some(SiloStatus::Active);
            (0..n).all(active)
        };
        let took = world.until(secs(limit), young);
        println!(
            "{n} silos, old hosts {}: {took:?}",
            if refuses { "refuse" } else { "are silent" }
        );
    }
}

#[test]
fn a_newcomer_that_finds_nobody_alive_has_the_dead_declared_dead() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    for i in 0..3 {
        world.kill(i);
    }
    world.start(&config, address(3_000, 2), 77);
    let alone =
        |w: &World| w.active() == 1 && w.status(&address(3_000, 2)) == Some(SiloStatus::Active);
    world.until(config.stale_after(1) * 2 + secs(30), alone);
}

/// Most silos are lost, so that the others are too few for a vote.
#[test]
fn those_left_of_a_cluster_run_turns_again_soon() {
    // The times of the page failures.md.
    let counts = [(2_u16, 1_usize), (3, 1), (4, 1), (5, 1), (5, 2), (9, 1), (12, 3), (30, 1)];
    for (serve_without_store, limit) in [(false, 20), (true, 80)] {
        for (n, left) in counts {
            // A silo probes ten others at a time, each for its whole patience.
            let limit = if serve_without_store && n > 20 { limit + 20 } else { limit };
            let config = Config { serve_without_store, ..Config::default() };
            let mut world = World::cluster(&config, n);
            world.run(secs(20));
            for i in left..usize::from(n) {
                world.silos[i].silent = true;
                world.kill(i);
            }
            let serves = |w: &World, i: usize| {
                let closes_at = w.silos[i].machine.fence_deadline();
                w.silos[i].up && closes_at.is_none_or(|at| at > w.now)
            };
            let all = |w: &World| w.active() == left && (0..left).all(|i| serves(w, i));
            let took = world.until(secs(limit), all);
            println!("{left} of {n} left, serve_without_store = {serve_without_store}: {took:?}");
        }
    }
}

/// No silo saw it end, so the others wait for the longest time.
#[test]
fn a_silo_that_an_operator_declared_dead_is_waited_for_the_longest() {
    for (config, least) in [(Config::default(), ms(8_800)), (Config::fast(), ms(6_200))] {
        let mut world = World::cluster(&config, 3);
        world.run(secs(20));
        let lost = address(1_002, 1);
        // It runs, and reaches the store: its fence has closed before the others take over.
        world.declare_dead(&lost);
        let knows =
            |w: &World| w.silos[0].machine.view().status_of(&lost) == Some(SiloStatus::Dead);
        world.until(secs(90), knows);
        let fading = world.silos[0].machine.fading();
        let until = fading.iter().find(|(silo, _)| *silo == lost).map(|(_, until)| *until);
        assert!(until.is_some_and(|until| until >= world.died_at[&lost] + least), "{fading:?}");
    }
}

/// Two of three silos are cut off together, from the third and from the store. They confirm each
/// other, and the third takes over from them. With `serve_without_store` each of the two has the
/// third among its monitors.
#[test]
fn a_silo_takes_over_from_two_that_confirm_each_other_when_both_run_no_turns() {
    let touches = [secs(5), secs(1)];
    for (serve_without_store, touch) in
        [false, true].into_iter().flat_map(|s| touches.map(|t| (s, t)))
    {
        let config = Config {
            serve_without_store,
            min_i_am_alive_publish_timeout: touch,
            i_am_alive_table_publish_timeout: touch * 3,
            ..Config::default()
        };
        let mut world = World::cluster(&config, 3);
        world.run(secs(20));
        let [me, one, other] = [1_000, 1_001, 1_002].map(|port| address(port, 1));
        world.offline = [one, other].into();
        world.cut = [(me, one), (one, me), (me, other), (other, me)].into();
        let begun = world.now;
        let mut has_taken_over = false;
        while world.now < begun + secs(60) {
            world.run(ms(10));
            let waits = world.silos[0].machine.fading().iter().any(|(_, until)| *until > world.now);
            let view = world.silos[0].machine.view();
            let may_have =
                [one, other].map(|silo| view.status_of(&silo) == Some(SiloStatus::Dead) && !waits);
            has_taken_over |= may_have == [true; 2];
            for (process, may_have) in world.silos[1..].iter().zip(may_have) {
                let closes_at = process.machine.fence_deadline();
                let runs = process.up && closes_at.is_none_or(|at| at > world.now);
                assert!(!(runs && may_have), "{serve_without_store} {touch:?} {:?}", world.now);
            }
        }
        assert!(has_taken_over, "serve_without_store = {serve_without_store}, {touch:?}");
    }
}

#[test]
fn the_word_of_a_monitor_that_may_be_dead_itself_is_worth_nothing() {
    // Of three silos 1 is cut off and dies; before 0 hears of it, 0 and 1 are together and cut off
    // from 2, which alone reaches the store. Two silos are Active then, so the vote of 2 is enough
    // against 0.
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    isolate(&mut world, 1);
    world.until(secs(10), |w| w.status(&address(1_001, 1)) == Some(SiloStatus::Dead));
    let cut = |world: &mut World, a: u16, b: u16| {
        world.cut.insert((address(a, 1), address(b, 1)));
        world.cut.insert((address(b, 1), address(a, 1)));
    };
    world.cut.clear();
    cut(&mut world, 1_002, 1_000);
    cut(&mut world, 1_002, 1_001);
    world.offline = [address(1_000, 1), address(1_001, 1)].into();
    world.until(secs(30), |w| w.status(&address(1_000, 1)) == Some(SiloStatus::Dead));
    for _ in 0..10_000 {
        world.run(ms(1));
        let serves = world.silos[0].up
            && world.silos[0].machine.fence_deadline().is_none_or(|until| world.now < until);
        let granted = world.silos[2].machine.fading().iter().all(|(_, until)| world.now >= *until);
        assert!(!(serves && granted), "{:?}", world.now);
    }
}

#[test]
fn a_touch_of_a_dead_row_opens_no_fence() {
    let config = Config::default();
    let mut world = World::cluster(&config, 1);
    let old = address(1_000, 1);
    world.silos[0].silent = true;
    world.offline = [old].into();
    let newcomer = address(2_000, 2);
    world.start(&config, newcomer, 9);
    world.until(secs(60), |w| w.status(&old) == Some(SiloStatus::Dead));
    world.run(secs(1));
    // The store answers touches before it answers reads.
    world.offline.clear();
    world.touches_only = [old].into();
    for _ in 0..20_000 {
        world.run(ms(1));
        let serves = world.silos[0].up
            && world.silos[0].machine.fence_deadline().is_none_or(|until| world.now < until);
        assert!(!serves, "{:?}", world.now);
    }
}

#[test]
fn a_joiner_whose_only_member_wakes_up_takes_its_wish_to_be_active_back() {
    let config = Config::default();
    let mut world = World::cluster(&config, 1);
    let (old, joiner) = (address(1_000, 1), address(2_000, 2));
    world.silos[0].silent = true;
    world.offline = [old].into();
    world.start(&config, joiner, 9);
    let wishes = |w: &World| w.silos[1].machine.wishes_for(&Key::Activate(joiner));
    world.until(secs(60), wishes);
    // Before it is written the old silo is well again, and does not reach the joiner.
    world.offline = [joiner].into();
    world.silos[0].silent = false;
    world.refusing.insert(joiner);
    world.until(secs(5), |w| !wishes(w));
    world.offline.clear();
    world.run(secs(10));
    assert_eq!(world.status(&joiner), Some(SiloStatus::Joining));
    assert_eq!(world.status(&old), Some(SiloStatus::Active));
    world.refusing.clear();
    world.until(secs(5), |w| w.status(&joiner) == Some(SiloStatus::Active));
}

#[test]
fn a_writer_forgets_a_wish_to_be_active_that_is_taken_back() {
    let mut world = World::cluster(&Config::default(), 3);
    let joiner = address(2_000, 2);
    // Of a view that is yet to come: the wish waits.
    let wish = Intent::Activate { silo: joiner, checked: u64::MAX, missing: Vec::new() };
    let withdrawal = Intent::Withdraw { target: joiner, voter: joiner };
    for (intent, waits) in [(wish, true), (withdrawal, false)] {
        let message = Message::Write { version: 0, intents: vec![intent], hops: 1 };
        world.call(0, |machine, now| machine.handle_message(now, joiner, message));
        let waiting = world.silos[0].machine.would_write(&Key::Activate(joiner));
        assert_eq!(waiting, waits);
    }
}

#[test]
fn a_silo_that_lives_on_the_tables_word_reads_the_table_when_no_peer_hands_it_a_view() {
    for (config, silent_for) in [(Config::default(), ms(3_200)), (Config::fast(), ms(700))] {
        let mut world = World::cluster(&config, 70);
        isolate(&mut world, 0);
        world.run(silent_for);
        // The table confirms it again only once it has the view without the leaver.
        world.call(5, |machine, now| machine.leave(now));
        let behind = |w: &World| w.silos[0].machine.is_behind();
        world.until(config.fence_table_timeout, behind);
        // One peer has 30 ms, then the table 5.
        let took = world.until(config.fence_table_timeout, |w| !behind(w));
        assert!(took <= ms(40), "{took:?}");
        let machine = &world.silos[0].machine;
        assert_eq!(machine.view().status_of(&address(1_005, 1)), Some(SiloStatus::ShuttingDown));
        world.run(config.fence_table_timeout);
        assert!(world.silos[0].fences.is_empty(), "{:?}", world.silos[0].fences);
    }
}

#[test]
fn a_silo_that_lives_on_the_tables_word_is_confirmed_while_commits_come_one_after_the_other() {
    let config = Config::default();
    let mut world = World::cluster(&config, 70);
    isolate(&mut world, 0);
    world.run(ms(3_200));
    // Another silo writes more often than a read takes: no read ever shows the view in force to be
    // the latest.
    for _ in 0..2_000 {
        world.run(ms(1));
        if world.now.as_nanos().is_multiple_of(4_000_000) {
            world.write_a_row_again();
        }
        // The contents of a read were true when it was sent, and the table takes 5 ms.
        let until = world.silos[0].machine.fence_deadline().unwrap();
        assert!(
            until + ms(5) <= world.now + config.fence_table_timeout,
            "{until:?} at {:?}",
            world.now
        );
    }
    assert!(world.silos[0].up);
    assert!(world.silos[0].fences.is_empty(), "{:?}", world.silos[0].fences);
}

/// Scenario 27 of the class `split` in the hunt for mutants. Two of three silos are cut off and do
/// not know the joiners. To the third only one Active silo seems to monitor each of the two,
/// because joiners took the others' places; and the joiners continue.
#[test]
fn joiners_in_the_places_of_monitors_make_no_death_cheaper() {
    let config = Config { num_probed_silos: 4, num_probe_rings: 1, ..Config::default() };
    let mut world = World::cluster(&config, 3);
    let active: Vec<_> = world.silos.iter().map(|silo| silo.machine.me()).collect();
    for port in 3_000..3_003 {
        let joiner = address(port, 1);
        world.start(&config, joiner, u64::from(port));
        for other in &active[..2] {
            world.cut.insert((joiner, *other));
            world.cut.insert((*other, joiner));
        }
    }
    world.run(ms(1_500));
    let mut third = world.silos[2].machine.clone();
    assert_eq!((third.view().len(), third.view().active_count()), (6, 3), "{:?}", third.view());
    let few = |target: &SiloAddress| third.monitors_of(target).len() < 2;
    assert!(
        active[..2].iter().any(few),
        "nobody has fewer Active monitors than a death takes votes"
    );
    third.pass(secs(60));
    for target in &active[..2] {
        assert_eq!(third.votes_required(target), 2);
    }
}

/// Scenario 16 of the class `lists`. A probe that is lost with its connection says nothing of a
/// silo that answers a dial.
#[test]
fn a_silo_whose_connections_break_under_each_probe_lives() {
    let mut world = World::cluster(&Config::fast(), 5);
    let target = world.silos[1].machine.me();
    for _ in 0..100 {
        isolate(&mut world, 1);
        // Some probes are on their way, and go with their connections.
        world.run(ms(60));
        world.cut.clear();
        world.reset_connections(1);
        world.run(ms(40));
        assert_eq!(world.status(&target), Some(SiloStatus::Active), "{:?}", world.now);
    }
    let missed: u64 = world.silos.iter().map(|p| p.machine.counters().probes_missed).sum();
    assert_eq!(missed, 0);
}

/// Seed 58001435 of 3 to 64 silos. What refuses dials for a moment may be a firewall, and the
/// process behind it only paused.
#[test]
fn a_joiner_overlooks_nobody_whose_host_refuses_no_more() {
    let config = Config::default();
    let mut world = World::cluster(&config, 1);
    let member = world.silos[0].machine.me();
    world.silos[0].silent = true;
    world.offline.insert(member);
    world.refusing.insert(member);
    let joiner = address(2_000, 1);
    world.start(&config, joiner, 2_000);
    let still_since = world.now;
    world.run(config.publish_period(1));
    assert_ne!(world.status(&joiner), Some(SiloStatus::Active));
    world.refusing.clear();
    while world.now < still_since + config.overlooked_after(1) * 4 / 5 {
        assert_ne!(world.status(&joiner), Some(SiloStatus::Active), "{:?}", world.now);
        world.run(ms(10));
    }
    world.until(config.overlooked_after(1), |w| w.status(&joiner) == Some(SiloStatus::Active));
}

/// Scenario 34637 of the class `alone`. The silos that a joiner asked to dial it are gone, and its
/// row is no longer among the living.
#[test]
fn a_joiner_that_nobody_reaches_hears_of_its_death_from_the_table() {
    let mut world = World::cluster(&Config::default(), 2);
    let joiner = address(2_000, 1);
    world.refusing.insert(joiner);
    let at = world.start(&Config::default(), joiner, 2_000);
    world.run(secs(2));
    assert_eq!(world.status(&joiner), Some(SiloStatus::Joining));
    for member in 0..2 {
        world.silos[member].silent = true;
        world.offline.insert(world.silos[member].machine.me());
    }
    world.rows.get_mut(&joiner).unwrap().status = SiloStatus::Dead;
    world.write_a_row_again();
    world.until(secs(6), |w| w.silos[at].machine.is_over());
}

/// A silo is voted dead without proof; another one starts in its place at once. It has not seen the
/// death, and learns the rest of the wait.
#[test]
fn a_newcomer_waits_no_longer_for_the_dead_than_those_that_saw_them_die() {
    let config = Config::default();
    for port in 3_000..3_020 {
        let mut world = World::cluster(&config, 3);
        let lost = world.silos[0].machine.me();
        world.silos[0].silent = true;
        world.until(secs(20), |w| w.status(&lost) == Some(SiloStatus::Dead));
        let newcomer = world.start(&config, address(port, 1), u64::from(port));
        let me = world.silos[newcomer].machine.me();
        world.until(secs(5), |w| {
            w.status(&me) == Some(SiloStatus::Active)
                && w.silos[newcomer].machine.view().status_of(&lost) == Some(SiloStatus::Dead)
        });
        let until = |i: usize| world.silos[i].machine.fading().first().map(|(_, until)| *until);
        let saw = [1, 2].map(|i| until(i).unwrap_or(world.now)).into_iter().max().unwrap();
        let waits = until(newcomer).unwrap_or(world.now);
        // Its own allowance for clocks and for a turn comes on top.
        assert!(waits <= saw + ms(70), "{waits:?} after {saw:?}");
    }
}
