//! A living owner hands over its entries to the new owner; no other silo is asked.

use std::time::Duration;

use crate::common::{Active, Bench, Dead, Joining, ShuttingDown, at, complete, silo};
use emmer_core::GrainId;
use emmer_directory::{Answer, Config, Effect, FailReason, Message, Operation, Outcome};

/// Messages that are sent, and their silos.
fn sent(effects: &[Effect]) -> Vec<(u16, &Message)> {
    let number = |to| (1..10).find(|n| silo(*n) == to);
    let send = |effect| match effect {
        &Effect::Send { to, ref message } => Some((number(to)?, message)),
        _ => None,
    };
    effects.iter().filter_map(send).collect()
}

fn asks_everybody(effects: &[Effect]) -> bool {
    sent(effects).iter().any(|(_, message)| matches!(message, Message::Recover { .. }))
}

/// Silo 2, Active since view 2; view 1 had only silo 1. It waits for a grain that it gained.
fn gainer() -> (Bench, Vec<Effect>, GrainId) {
    let mut bench = Bench::new(2, Config::default());
    bench.view(1, &[(1, Active), (2, Joining), (3, ShuttingDown)]);
    bench.view(2, &[(1, Active), (2, Active), (3, ShuttingDown)]);
    let grain = bench.grain_of(2, 0);
    let effects = bench.effects();
    (bench, effects, grain)
}

fn handed(
    view: u64,
    last: bool,
    entries: &[(&GrainId, u16, u64)],
    fading: &[(u16, u64)],
) -> Message {
    let entries = entries
        .iter()
        .map(|(grain, n, activation)| ((*grain).clone(), at(*n, *activation)))
        .collect();
    let fading = fading.iter().map(|(n, millis)| (silo(*n), *millis)).collect();
    Message::Handed { view, series: 5, batch: 0, last, fading, entries }
}

#[test]
fn a_loser_seals_as_it_installs_the_view_and_keeps_what_it_had() {
    let mut bench = Bench::new(1, Config { report_batch_max: 20, ..Config::default() });
    bench.view(1, &[(1, Active), (2, Joining)]);
    bench.report_all(&[]);
    let early = Message::Take { view: 2 };
    assert!(bench.from(2, early).is_empty(), "it waits for the view");
    let grains: Vec<_> = (0..100).map(|nth| bench.grain_of(1, nth)).collect();
    for (n, grain) in grains.iter().enumerate() {
        assert_eq!(bench.register(n as u64, grain, n as u64), Some(Outcome::Registered));
    }
    bench.view(2, &[(1, Active), (2, Active)]);
    let lost: Vec<_> = grains.iter().filter(|g| bench.dir.owner_of(g) == Some(silo(2))).collect();
    let mut passed = Vec::new();
    let mut effects = bench.effects();
    assert!(bench.dir.is_handing_over());
    loop {
        let list = sent(&effects);
        let Some((2, Message::Handed { view: 2, series, batch, last, entries, .. })) = list.last()
        else {
            panic!("{effects:?}")
        };
        let (series, batch, last) = (*series, *batch, *last);
        assert!(entries.len() <= 20);
        for (_, message) in sent(&effects) {
            if let Message::Handed { entries, .. } = message {
                passed.extend(entries.iter().map(|(grain, held)| (grain.clone(), held.silo)));
            }
        }
        effects = bench.from(2, Message::Credit { series, batches: batch + 1 });
        if last {
            break;
        }
    }
    assert!(!bench.dir.is_handing_over() && effects.is_empty());
    assert_eq!(passed.len(), lost.len());
    assert!(lost.iter().all(|grain| passed.contains(&((**grain).clone(), silo(1)))));
    assert_eq!(bench.dir.entries_count(), grains.len() - lost.len());
    assert_eq!(bench.ask(2, 2, Operation::Lookup, lost[0]), Answer::WrongView);
    // A later request finds nothing left.
    let again = bench.from(2, Message::Take { view: 2 });
    assert_eq!(sent(&again), [(2, &Message::Unheld { view: 2 })]);
}

#[test]
fn the_gainer_asks_the_one_before_and_serves_what_that_had() {
    let (mut bench, effects, grain) = gainer();
    assert_eq!(sent(&effects), [(1, &Message::Take { view: 2 })]);
    assert!(bench.dir.is_locked(&grain));
    assert_eq!(bench.lookup(1, &grain), None);
    let effects = bench.from(1, handed(2, true, &[(&grain, 1, 7)], &[]));
    assert!(effects.contains(&complete(1, Outcome::Found(Some(at(1, 7))))));
    assert!(sent(&effects).contains(&(1, &Message::Credit { series: 5, batches: 1 })));
    assert!(!bench.dir.is_recovering() && bench.dir.poll_timeout().is_none());
}

#[test]
fn it_is_not_served_before_the_last_batch_or_from_another_view() {
    let (mut bench, _, grain) = gainer();
    bench.from(1, handed(1, true, &[], &[]));
    bench.from(3, handed(2, true, &[], &[]));
    bench.from(1, handed(2, false, &[], &[]));
    assert!(bench.dir.is_locked(&grain));
}

#[test]
fn a_living_owner_knows_who_fades_and_only_those_entries_wait() {
    let mut bench = Bench::new(2, Config::default());
    bench.view(1, &[(1, Active), (2, Joining), (3, Dead), (4, Dead)]);
    let own = bench.now + Duration::from_secs(3);
    bench.view_fading(2, &[(1, Active), (2, Active), (3, Dead), (4, Dead)], &[(4, own)]);
    bench.effects();
    let grains: Vec<_> = (0..4).map(|nth| bench.grain_of(2, nth)).collect();
    let entries = [(&grains[0], 3, 1), (&grains[1], 4, 2), (&grains[2], 5, 3)];
    bench.from(1, handed(2, true, &entries, &[(3, 100), (4, 50)]));
    assert!(bench.dir.serves(&grains[3]), "all that it does not name is free");
    assert!(bench.dir.serves(&grains[2]), "silo 5 is neither there nor fading");
    assert!(bench.dir.is_fading(&grains[0]) && bench.dir.is_fading(&grains[1]));
    let start = bench.now;
    bench.elapse();
    let waited = bench.now.saturating_since(start);
    // A little longer than said, for clocks that run at different rates.
    assert!(
        waited > Duration::from_millis(101) && waited < Duration::from_millis(110),
        "{waited:?}"
    );
    assert!(bench.dir.serves(&grains[0]) && !bench.dir.serves(&grains[1]));
    bench.elapse();
    assert_eq!(bench.now, own);
    assert!(bench.dir.serves(&grains[1]));
}

#[test]
fn the_loser_says_for_how_long_who_fades() {
    let mut bench = Bench::alone();
    bench.view(2, &[(1, Active), (2, Joining), (3, ShuttingDown), (4, ShuttingDown)]);
    let grains: Vec<_> = (0..60).map(|nth| bench.grain_of(1, nth)).collect();
    for (n, grain) in grains.iter().enumerate() {
        let host = if n % 2 == 0 { 3 } else { 4 };
        assert_eq!(bench.ask(host, 2, Operation::Register(n as u64), grain), Answer::Registered);
    }
    let until = bench.now + Duration::from_millis(300);
    let view = [(1, Active), (2, Active), (3, Dead), (4, ShuttingDown)];
    bench.view_fading(3, &view, &[(3, until), (5, until)]);
    bench.now = until - Duration::from_micros(99_500);
    let effects = bench.from(2, Message::Take { view: 3 });
    let list = sent(&effects);
    let [(2, Message::Handed { fading, entries, .. })] = &list[..] else { panic!("{effects:?}") };
    assert_eq!(fading, &[(silo(3), 100)], "rounded up; and silo 5 has nothing in it");
    assert!(entries.iter().any(|(_, held)| held.silo == silo(3)));
}

#[test]
fn what_the_loser_did_not_know_itself_it_does_not_hand_over() {
    // It is still recovering as it loses the range.
    let mut bench = Bench::new(1, Config::default());
    bench.view(1, &[(1, Active), (2, Joining)]);
    bench.effects();
    bench.view(2, &[(1, Active), (2, Active)]);
    bench.effects();
    let answer = bench.from(2, Message::Take { view: 2 });
    assert_eq!(sent(&answer), [(2, &Message::Unheld { view: 2 })]);
    // It has skipped the view that took the range.
    let mut bench = Bench::alone();
    bench.view(3, &[(1, Active), (2, Active)]);
    let answer = bench.from(2, Message::Take { view: 2 });
    assert_eq!(sent(&answer), [(2, &Message::Unheld { view: 2 })]);
}

#[test]
fn everybody_is_asked_when_the_one_before_cannot_say() {
    for case in 0..4 {
        let (mut bench, _, grain) = gainer();
        // Half of it was there already.
        bench.from(1, handed(2, false, &[(&grain, 3, 7)], &[]));
        assert_eq!(bench.dir.entries_count(), 1);
        let effects = match case {
            0 => bench.from(1, Message::Unheld { view: 2 }),
            1 => {
                let first = bench.elapse();
                assert_eq!(sent(&first), [(1, &Message::Take { view: 2 })]);
                bench.elapse()
            }
            2 => {
                bench.view(3, &[(1, Dead), (2, Active), (3, ShuttingDown)]);
                bench.effects()
            }
            _ => {
                bench.view(4, &[(1, ShuttingDown), (2, Active), (3, ShuttingDown)]);
                bench.effects()
            }
        };
        assert!(asks_everybody(&effects), "{case}: {effects:?}");
        assert!(bench.dir.is_locked(&grain));
        bench.from(1, handed(2, true, &[], &[]));
        assert!(bench.dir.is_locked(&grain), "{case}: too late");
        assert_eq!(bench.dir.entries_count(), 0);
    }
}

#[test]
fn one_that_dies_before_it_handed_over_has_to_fade() {
    let (mut bench, _, grain) = gainer();
    let until = bench.now + Duration::from_millis(300);
    bench.view_fading(3, &[(1, Dead), (2, Active)], &[(1, until)]);
    bench.report_all(&[]);
    assert!(bench.dir.is_locked(&grain), "silo 1 may have given it to itself");
    bench.now = until;
    bench.dir.handle_timeout(until);
    assert!(bench.dir.serves(&grain));
}

#[test]
fn a_silo_that_leaves_hands_over_and_keeps_its_registrations() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(1, 0);
    assert_eq!(bench.register(1, &grain, 4), Some(Outcome::Registered));
    bench.view(3, &[(1, ShuttingDown), (2, Active)]);
    assert_eq!(bench.register(2, &grain, 4), None, "it asks the next owner now");
    let effects = bench.from(2, Message::Take { view: 3 });
    let handed = sent(&effects);
    let Some((2, Message::Handed { last: true, entries, .. })) = handed.last() else {
        panic!("{effects:?}")
    };
    assert_eq!(entries, &[(grain, at(1, 4))]);
}

#[test]
fn nobody_comes_for_it_for_ever() {
    let mut bench = Bench::alone();
    bench.view(2, &[(1, Active), (2, Active)]);
    assert!(bench.dir.is_handing_over());
    let start = bench.now;
    bench.elapse();
    assert_eq!(bench.now.saturating_since(start), Config::default().op_timeout);
    assert!(!bench.dir.is_handing_over());
    assert_ne!(bench.lookup(1, &bench.grain_of(1, 0)), Some(Outcome::Failed(FailReason::Closed)));
}
