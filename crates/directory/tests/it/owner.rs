//! The owner's rules: which requests it serves, for which silos, when.

use crate::common;
use crate::common::{Active, Bench, Dead, Joining, ShuttingDown, at, silo};
use emmer_core::GrainId;
use emmer_directory::{Answer, Config, FailReason, Operation, Outcome, Token};

#[test]
fn the_fast_path_answers_at_once_and_without_effects() {
    let mut bench = Bench::alone();
    let grain = bench.grain_of(1, 0);
    assert_eq!(bench.lookup(1, &grain), Some(Outcome::Found(None)));
    assert_eq!(bench.register(2, &grain, 5), Some(Outcome::Registered));
    assert_eq!(bench.register(3, &grain, 5), Some(Outcome::Registered));
    assert_eq!(bench.register(4, &grain, 6), Some(Outcome::Taken(at(1, 5))));
    assert_eq!(bench.lookup(5, &grain), Some(Outcome::Found(Some(at(1, 5)))));
    let now = bench.now;
    // Another activation's number removes nothing.
    assert_eq!(bench.dir.unregister(now, None, &grain, 6), Some(Outcome::Unregistered));
    assert_eq!(bench.dir.entries_count(), 1);
    assert_eq!(bench.dir.unregister(now, None, &grain, 5), Some(Outcome::Unregistered));
    assert_eq!(bench.lookup(6, &grain), Some(Outcome::Found(None)));
    assert!(bench.effects().is_empty() && bench.dir.poll_timeout().is_none());
}

#[test]
fn requests_of_others_are_idempotent_and_exact() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(1, 0);
    assert_eq!(bench.ask(2, 2, Operation::Register(9), &grain), Answer::Registered);
    assert_eq!(bench.ask(2, 2, Operation::Register(9), &grain), Answer::Registered);
    assert_eq!(bench.register(1, &grain, 9), Some(Outcome::Taken(at(2, 9))));
    // Silo 1 has an activation 9 as well: that is not the one registered.
    let now = bench.now;
    bench.dir.unregister(now, None, &grain, 9);
    assert_eq!(bench.ask(2, 2, Operation::Lookup, &grain), Answer::Found(Some(at(2, 9))));
    assert_eq!(bench.ask(2, 2, Operation::Unregister(9), &grain), Answer::Unregistered);
    assert_eq!(bench.ask(2, 2, Operation::Unregister(9), &grain), Answer::Unregistered);
    assert_eq!(bench.ask(2, 2, Operation::Lookup, &grain), Answer::Found(None));
}

#[test]
fn a_registration_is_replaced_only_where_it_is() {
    let mut bench = Bench::with_peer();
    let (grain, now) = (bench.grain_of(1, 0), bench.now);
    let replace = |activation, instead| Operation::Replace { activation, instead, view: 2 };
    assert_eq!(bench.ask(2, 2, replace(5, at(1, 9)), &grain), Answer::Absent);
    assert_eq!(bench.dir.entries_count(), 0, "nothing is registered in the place of nothing");
    assert_eq!(bench.register(1, &grain, 9), Some(Outcome::Registered));
    assert_eq!(bench.ask(2, 2, replace(5, at(1, 8)), &grain), Answer::Taken(at(1, 9)));
    assert_eq!(bench.ask(2, 2, replace(5, at(1, 9)), &grain), Answer::Registered);
    assert_eq!(bench.ask(2, 2, replace(5, at(1, 9)), &grain), Answer::Registered, "again");
    let back = bench.dir.replace(now, Token(2), &grain, 10, (at(1, 9), 2));
    assert_eq!(back, Some(Outcome::Taken(at(2, 5))));
    let back = bench.dir.replace(now, Token(3), &grain, 10, (at(2, 5), 2));
    assert_eq!(back, Some(Outcome::Registered));
    assert_eq!(bench.ask(2, 2, replace(5, at(1, 9)), &grain), Answer::Taken(at(1, 10)), "late");
    let newer = Operation::Replace { activation: 1, instead: at(1, 10), view: 3 };
    assert_eq!(bench.ask(2, 2, newer, &grain), Answer::Busy, "its source has seen more");
    bench.view(3, &[(1, Active), (2, Active), (3, Joining)]);
    assert_eq!(bench.ask(3, 3, replace(1, at(1, 10)), &grain), Answer::WrongView, "no host");
}

#[test]
fn views_decide_who_is_served() {
    let mut bench = Bench::with_peer();
    let (mine, theirs) = (bench.grain_of(1, 0), bench.grain_of(2, 0));
    // A newer requester waits until this view catches up. An older one is served if the range is
    // still owned.
    assert_eq!(bench.ask(2, 3, Operation::Lookup, &mine), Answer::Busy);
    assert_eq!(bench.ask(2, 3, Operation::Lookup, &theirs), Answer::Busy);
    assert_eq!(bench.ask(2, 1, Operation::Lookup, &mine), Answer::Found(None));
    assert_eq!(bench.ask(2, 2, Operation::Lookup, &theirs), Answer::WrongView);
}

#[test]
fn only_hosts_register() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(1, 0);
    assert_eq!(bench.ask(3, 2, Operation::Register(1), &grain), Answer::WrongView);
    bench.view(3, &[(1, Active), (2, Active), (3, Joining)]);
    assert_eq!(bench.ask(3, 3, Operation::Register(1), &grain), Answer::WrongView);
    assert_eq!(bench.ask(3, 3, Operation::Lookup, &grain), Answer::Found(None));
    bench.view(4, &[(1, Active), (2, Active), (3, ShuttingDown)]);
    assert_eq!(bench.ask(3, 4, Operation::Register(1), &grain), Answer::Registered);
}

#[test]
fn a_dead_silo_takes_its_registrations_along_and_no_others() {
    let mut bench = Bench::with_peer();
    let (a, b) = (bench.grain_of(1, 0), bench.grain_of(1, 1));
    assert_eq!(bench.ask(2, 2, Operation::Register(1), &a), Answer::Registered);
    assert_eq!(bench.register(1, &b, 1), Some(Outcome::Registered));
    bench.view(3, &[(1, Active), (2, ShuttingDown)]);
    assert!(
        bench.dir.entries().any(|(grain, held)| *grain == a && held == at(2, 1)),
        "leaving is not gone"
    );
    bench.view(4, &[(1, Active), (2, Dead)]);
    let held: Vec<_> = bench.dir.entries().map(|(grain, held)| (grain.clone(), held)).collect();
    assert_eq!(held, [(b, at(1, 1))]);
}

#[test]
fn what_another_silo_takes_over_is_dropped() {
    let mut bench = Bench::alone();
    let mut registered = Vec::new();
    for nth in 0..200 {
        let grain = bench.grain_of(1, nth);
        assert_eq!(bench.register(nth as u64, &grain, nth as u64), Some(Outcome::Registered));
        registered.push(grain);
    }
    bench.view(2, &[(1, Active), (2, Active)]);
    let (kept, lost): (Vec<&GrainId>, Vec<_>) =
        registered.iter().partition(|grain| bench.dir.owner_of(grain) == Some(silo(1)));
    assert!(kept.len() > 20 && lost.len() > 20);
    assert_eq!(bench.dir.entries_count(), kept.len());
    assert!(kept.iter().all(|grain| bench.dir.serves(grain)));
    assert!(!lost.iter().any(|grain| bench.dir.serves(grain)));
}

#[test]
fn a_full_owner_says_so_and_still_knows_what_it_has() {
    let mut bench = Bench::new(1, Config { entries_max: 1, ..Config::default() });
    bench.view(1, &[(1, Active)]);
    bench.report_all(&[]);
    let (a, b) = (bench.grain_of(1, 0), bench.grain_of(1, 1));
    assert_eq!(bench.register(1, &a, 1), Some(Outcome::Registered));
    assert_eq!(bench.register(2, &b, 2), Some(Outcome::Failed(FailReason::Full)));
    assert_eq!(bench.register(3, &a, 1), Some(Outcome::Registered));
    assert_eq!(bench.lookup(4, &b), Some(Outcome::Found(None)));
}

#[test]
fn without_views_or_membership_commands_fail_at_once() {
    let mut bench = Bench::new(1, Config::default());
    let grain = GrainId::new(emmer_core::GrainTypeId::of("g"), 1u64);
    assert_eq!(bench.lookup(1, &grain), Some(Outcome::Failed(FailReason::NoActiveSilo)));
    bench.view(3, &[(1, Joining)]);
    assert_eq!(bench.register(2, &grain, 1), Some(Outcome::Failed(FailReason::NoActiveSilo)));
    bench.view(4, &[(1, Active), (2, Active)]);
    assert_eq!(bench.register(3, &grain, 1), None);
    bench.effects();
    bench.view(6, &[(2, Active)]);
    assert!(bench.dir.is_closed(), "a silo that vanished from the view is out");
    assert_eq!(bench.effects(), [common::complete(3, Outcome::Failed(FailReason::Closed))]);
    assert_eq!(bench.lookup(4, &grain), Some(Outcome::Failed(FailReason::Closed)));
    assert!(bench.dir.poll_timeout().is_none());
}
