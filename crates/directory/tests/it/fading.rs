//! Silos that are Dead and may still run turns: no silo is granted one of their grains before their
//! time is over (invariant I8).

use std::time::Duration;

use crate::common::{Active, Bench, Dead, Joining, ShuttingDown, at, complete, silo};
use emmer_core::SiloAddress;
use emmer_directory::{Answer, Config, Effect, Message, Operation, Outcome};

const FADE: Duration = Duration::from_millis(500);

fn asked(effects: &[Effect]) -> Vec<SiloAddress> {
    let question = |effect: &Effect| match effect {
        Effect::Send { to, message: Message::Recover { .. } } => Some(*to),
        _ => None,
    };
    effects.iter().filter_map(question).collect()
}

fn recovery(effects: &[Effect]) -> u64 {
    let question = |effect: &Effect| match effect {
        Effect::Send { message: Message::Recover { recovery, .. }, .. } => Some(*recovery),
        _ => None,
    };
    effects.iter().find_map(question).unwrap()
}

fn report(recovery: u64, entries: Vec<(emmer_core::GrainId, u64)>) -> Message {
    Message::Report { recovery, view: 3, series: 1, batch: 0, last: true, entries }
}

#[test]
fn an_entry_of_a_fading_silo_is_busy_until_its_time_and_gone_after_it() {
    let mut bench = Bench::with_peer();
    let (a, b) = (bench.grain_of(1, 0), bench.grain_of(1, 1));
    assert_eq!(bench.ask(2, 2, Operation::Register(1), &a), Answer::Registered);
    let until = bench.now + FADE;
    // Everything else that silo 2 owned comes from a recovery, which waits as well: check the kept
    // entries.
    bench.view_fading(4, &[(1, Active), (2, Dead), (3, ShuttingDown)], &[(2, until)]);
    bench.report_all(&[]);
    assert!(bench.dir.is_fading(&a) && !bench.dir.serves(&a) && bench.dir.serves(&b));
    assert_eq!(bench.ask(3, 3, Operation::Register(7), &a), Answer::Busy);
    assert_eq!(bench.ask(3, 3, Operation::Lookup, &a), Answer::Busy);
    assert_eq!(bench.ask(3, 3, Operation::Register(8), &b), Answer::Registered);
    assert_eq!(bench.register(1, &a, 9), None, "one's own command waits");
    assert_eq!(bench.dir.poll_timeout(), Some(until));
    assert_eq!(bench.elapse(), [complete(1, Outcome::Registered)]);
    assert_eq!(bench.now, until);
    assert_eq!(bench.ask(3, 3, Operation::Register(7), &a), Answer::Taken(at(1, 9)));
}

#[test]
fn one_moment_before_the_time_nothing_is_granted() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(1, 0);
    assert_eq!(bench.ask(2, 2, Operation::Register(1), &grain), Answer::Registered);
    let until = bench.now + FADE;
    bench.view_fading(4, &[(1, Active), (2, Dead), (3, ShuttingDown)], &[(2, until)]);
    bench.report_all(&[]);
    bench.now = until - Duration::from_nanos(1);
    bench.dir.handle_timeout(bench.now);
    assert_eq!(bench.ask(3, 3, Operation::Register(7), &grain), Answer::Busy);
    // Another view does not shorten it, even a view that no longer names the silo.
    bench.view(5, &[(1, Active), (3, ShuttingDown)]);
    assert_eq!(bench.ask(3, 4, Operation::Register(7), &grain), Answer::Busy);
    bench.now = until;
    bench.dir.handle_timeout(until);
    assert_eq!(bench.ask(3, 4, Operation::Register(7), &grain), Answer::Registered);
}

#[test]
fn the_fading_silo_may_give_its_registration_back_and_register_nothing() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(1, 0);
    assert_eq!(bench.ask(2, 2, Operation::Register(1), &grain), Answer::Registered);
    let until = bench.now + FADE;
    bench.view_fading(4, &[(1, Active), (2, Dead), (3, ShuttingDown)], &[(2, until)]);
    bench.report_all(&[]);
    assert_eq!(bench.ask(2, 2, Operation::Register(1), &grain), Answer::Busy, "not even again");
    assert_eq!(bench.ask(3, 3, Operation::Unregister(1), &grain), Answer::Unregistered);
    assert_eq!(bench.ask(3, 3, Operation::Lookup, &grain), Answer::Busy, "that was not its own");
    assert_eq!(bench.ask(2, 2, Operation::Unregister(1), &grain), Answer::Unregistered);
    assert_eq!(bench.ask(2, 2, Operation::Register(2), &grain), Answer::WrongView);
    assert_eq!(bench.ask(3, 3, Operation::Register(4), &grain), Answer::Registered);
}

#[test]
fn a_silo_that_does_not_fade_costs_no_wait() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(1, 0);
    assert_eq!(bench.ask(2, 2, Operation::Register(1), &grain), Answer::Registered);
    let past = bench.now;
    bench.view_fading(3, &[(1, Active), (2, Dead)], &[(2, past)]);
    bench.report_all(&[]);
    assert_eq!(bench.register(1, &grain, 9), Some(Outcome::Registered));
    assert!(!bench.dir.is_recovering() && bench.dir.poll_timeout().is_none());
}

#[test]
fn ranges_of_a_dead_owner_stay_locked_until_every_fading_silo_is_over() {
    let mut bench = Bench::new(1, Config::default());
    bench.view(1, &[(1, Joining), (2, Active), (3, ShuttingDown), (4, ShuttingDown)]);
    let grain = bench.grain_of(2, 0);
    let (two, four) = (bench.now + FADE, bench.now + FADE * 2);
    bench.view_fading(
        3,
        &[(1, Active), (2, Dead), (3, ShuttingDown), (4, Dead)],
        &[(2, two), (4, four)],
    );
    let effects = bench.report_all(&[]);
    assert_eq!(asked(&effects), [silo(3)]);
    bench.from(3, report(recovery(&effects), vec![]));
    bench.now = two;
    bench.dir.handle_timeout(two);
    assert!(bench.dir.is_locked(&grain), "silo 4 may have been given it by silo 2");
    assert_eq!(bench.register(1, &grain, 1), None);
    bench.now = four;
    bench.dir.handle_timeout(four);
    assert!(bench.effects().contains(&complete(1, Outcome::Registered)));
}

#[test]
fn a_host_that_dies_before_it_reported_has_to_fade_and_one_that_reported_only_where_it_was() {
    for reported in [false, true] {
        let mut bench = Bench::new(1, Config::default());
        bench.view(1, &[(1, Joining), (2, Active), (3, ShuttingDown)]);
        let (grain, other) = (bench.grain_of(2, 0), bench.grain_of(2, 1));
        bench.view(3, &[(1, Active), (2, Dead), (3, ShuttingDown)]);
        let effects = bench.report_all(&[]);
        if reported {
            bench.from(3, report(recovery(&effects), vec![(grain.clone(), 6)]));
        }
        let until = bench.now + FADE;
        bench.view_fading(4, &[(1, Active), (2, Dead), (3, Dead)], &[(3, until)]);
        assert_eq!(bench.dir.is_locked(&other), !reported);
        let first = bench.register(1, &grain, 1);
        assert_eq!(first, None);
        let second = bench.register(2, &other, 2);
        assert_eq!(second, reported.then_some(Outcome::Registered));
        bench.now = until;
        bench.dir.handle_timeout(until);
        assert!(bench.effects().contains(&complete(1, Outcome::Registered)));
        assert!(bench.dir.serves(&grain) && bench.dir.serves(&other));
    }
}

#[test]
fn a_recovery_that_begins_anew_after_skipped_views_waits_for_those_who_died_between() {
    let mut bench = Bench::new(1, Config::default());
    bench.view(1, &[(1, Joining), (2, Active), (3, ShuttingDown)]);
    let grain = bench.grain_of(2, 0);
    bench.view(3, &[(1, Active), (2, Dead), (3, ShuttingDown)]);
    bench.report_all(&[]);
    let until = bench.now + FADE;
    bench.view_fading(7, &[(1, Active), (3, Dead)], &[(3, until)]);
    bench.report_all(&[]);
    assert!(bench.dir.is_locked(&grain));
    bench.now = until;
    bench.dir.handle_timeout(until);
    assert!(bench.dir.serves(&grain) && bench.dir.poll_timeout().is_none());
}
