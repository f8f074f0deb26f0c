//! The rules of recovery: locking, asking, answering, unlocking.

use crate::common::{Active, Bench, Dead, Joining, ShuttingDown, at, complete, silo};
use emmer_core::ring::RingRange;
use emmer_core::{GrainId, SiloAddress};
use emmer_directory::{Answer, Config, Effect, Message, Operation, Outcome};

/// The recovery questions among `effects`: receiver, number.
fn questions(effects: &[Effect]) -> Vec<(SiloAddress, u64)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send { to, message: Message::Recover { recovery, .. } } => {
                Some((*to, *recovery))
            }
            _ => None,
        })
        .collect()
}

fn report(recovery: u64, view: u64, entries: &[(&GrainId, u64)]) -> Message {
    let entries =
        entries.iter().map(|(grain, activation)| ((*grain).clone(), *activation)).collect();
    Message::Report { recovery, view, series: 1, batch: 0, last: true, entries }
}

/// Silo 1 takes over from silo 2, which is Dead in view 3; silo 3 is there too. Everything is
/// locked. Returns the number of the recovery. View 2 was skipped, so no silo collects, and silo 1
/// asks by itself.
fn taking_over() -> (Bench, GrainId, u64) {
    let mut bench = Bench::new(1, Config::default());
    bench.view(1, &[(1, Joining), (2, Active), (3, ShuttingDown)]);
    let grain = bench.grain_of(2, 0);
    bench.view(3, &[(1, Active), (2, Dead), (3, ShuttingDown)]);
    let effects = bench.report_all(&[]);
    let asked = questions(&effects);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0, silo(3));
    (bench, grain, asked[0].1)
}

#[test]
fn gained_ranges_are_locked_until_every_host_has_reported() {
    let (mut bench, grain, recovery) = taking_over();
    assert!(bench.dir.is_locked(&grain) && !bench.dir.serves(&grain));
    assert_eq!(bench.ask(3, 3, Operation::Lookup, &grain), Answer::Busy);
    assert_eq!(bench.lookup(1, &grain), None, "a command of one's own waits");
    assert!(bench.from(3, report(recovery + 50, 3, &[])).is_empty(), "another recovery's report");
    let effects = bench.from(3, report(recovery, 3, &[(&grain, 6)]));
    assert_eq!(effects, [complete(1, Outcome::Found(Some(at(3, 6))))]);
    assert_eq!(bench.ask(3, 3, Operation::Lookup, &grain), Answer::Found(Some(at(3, 6))));
    assert!(bench.dir.poll_timeout().is_none());
}

#[test]
fn the_local_report_counts_as_well() {
    let mut bench = Bench::new(1, Config::default());
    bench.view(1, &[(1, Active)]);
    let grain = bench.grain_of(1, 0);
    assert!(bench.dir.is_locked(&grain));
    bench.report_all(&[(grain.clone(), 3)]);
    assert_eq!(bench.register(1, &grain, 4), Some(Outcome::Taken(at(1, 3))));
}

#[test]
fn a_host_that_dies_is_waited_for_no_more() {
    let (mut bench, grain, _) = taking_over();
    bench.view(4, &[(1, Active), (2, Dead), (3, Dead)]);
    assert!(bench.dir.serves(&grain) && bench.effects().is_empty());
}

#[test]
fn an_answer_from_a_later_view_counts_when_that_view_is_here() {
    let (mut bench, grain, recovery) = taking_over();
    bench.from(3, report(recovery, 5, &[]));
    assert!(bench.dir.is_locked(&grain), "by view 5 another silo may own it");
    bench.view(4, &[(1, Active), (3, ShuttingDown)]);
    assert!(bench.dir.is_locked(&grain));
    bench.view(5, &[(1, Active), (3, Dead)]);
    assert!(bench.dir.serves(&grain));
}

#[test]
fn a_skipped_view_voids_answers_but_not_what_was_unlocked() {
    let mut bench = Bench::with_peer();
    let kept = bench.grain_of(1, 0);
    assert_eq!(bench.register(1, &kept, 1), Some(Outcome::Registered));
    bench.view(4, &[(1, Active), (2, Dead), (3, ShuttingDown)]);
    let first = questions(&bench.report_all(&[]))[0];
    assert_eq!(first.0, silo(3));
    let stale =
        (0..).map(|nth| bench.grain_of(1, nth)).find(|grain| bench.dir.is_locked(grain)).unwrap();
    let half = vec![(stale.clone(), 8)];
    bench.from(
        3,
        Message::Report {
            recovery: first.1,
            view: 4,
            series: 1,
            batch: 0,
            last: false,
            entries: half,
        },
    );
    bench.view(7, &[(1, Active), (3, ShuttingDown)]);
    let again = questions(&bench.report_all(&[]))[0];
    assert_ne!(first.1, again.1);
    assert!(bench.from(3, report(first.1, 3, &[])).is_empty());
    assert!(bench.dir.is_recovering(), "the first recovery's answer is void");
    assert_eq!(bench.lookup(2, &kept), Some(Outcome::Found(Some(at(1, 1)))));
    bench.from(3, report(again.1, 7, &[]));
    assert!(!bench.dir.is_recovering());
    assert_eq!(bench.lookup(3, &stale), Some(Outcome::Found(None)), "it was not said again");
}

#[test]
fn who_is_silent_is_asked_again_after_a_second() {
    let (mut bench, grain, recovery) = taking_over();
    let effects = bench.elapse();
    assert_eq!(questions(&effects), [(silo(3), recovery)]);
    // A batch got lost on the way: the rest of that report does not count, the next one does.
    let batch = |series, batch, last, entries: Vec<(GrainId, u64)>| Message::Report {
        recovery,
        view: 3,
        series,
        batch,
        last,
        entries,
    };
    bench.from(3, batch(1, 0, false, vec![]));
    bench.from(3, batch(1, 2, true, vec![]));
    assert!(bench.dir.is_locked(&grain));
    bench.from(3, batch(2, 0, false, vec![]));
    bench.from(3, batch(1, 1, true, vec![]));
    assert!(bench.dir.is_locked(&grain), "batches of two reports do not mix");
    bench.from(3, batch(2, 1, true, vec![(grain.clone(), 6)]));
    assert_eq!(bench.lookup(1, &grain), Some(Outcome::Found(Some(at(3, 6)))));
}

#[test]
fn a_question_waits_for_its_view() {
    let mut bench = Bench::with_peer();
    let ranges = vec![RingRange::FULL];
    assert!(
        bench.from(2, Message::Recover { recovery: 8, view: 3, ranges: ranges.clone() }).is_empty()
    );
    bench.view(3, &[(1, ShuttingDown), (2, Active)]);
    let grain = bench.grain_of(2, 0);
    assert!(bench.report_all(&[(grain.clone(), 2)]).is_empty());
    match bench.effects().as_slice() {
        [
            Effect::Send {
                to,
                message: Message::Report { recovery: 8, view: 3, batch: 0, last: true, entries, .. },
            },
        ] => {
            assert_eq!((*to, entries.as_slice()), (silo(2), [(grain, 2)].as_slice()));
        }
        other => panic!("{other:?}"),
    }
    // An asker that is not Active by this view has no use for an answer.
    assert!(bench.from(3, Message::Recover { recovery: 1, view: 3, ranges }).is_empty());
}

#[test]
fn reports_come_in_batches() {
    let mut bench = Bench::new(1, Config { report_batch_max: 3, ..Config::default() });
    bench.view(1, &[(2, Active), (1, ShuttingDown)]);
    let mine: Vec<_> = (0..7).map(|nth| (bench.grain_of(2, nth), nth as u64)).collect();
    bench.dir.handle_message(
        bench.now,
        silo(2),
        Message::Recover { recovery: 8, view: 1, ranges: vec![RingRange::FULL] },
    );
    bench.report_all(&mine);
    let batches: Vec<_> = bench
        .effects()
        .into_iter()
        .map(|effect| match effect {
            Effect::Send { message: Message::Report { batch, last, entries, .. }, .. } => {
                (batch, last, entries.len())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(batches, [(0, false, 3), (1, false, 3), (2, true, 1)]);
}

#[test]
fn what_is_being_removed_is_not_reported() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    let now = bench.now;
    bench.dir.unregister(now, None, &grain, 4);
    bench.effects();
    let ranges = vec![RingRange::FULL];
    bench.dir.handle_message(now, silo(2), Message::Recover { recovery: 8, view: 2, ranges });
    bench.report_all(&[(grain, 4)]);
    match bench.effects().as_slice() {
        [Effect::Send { message: Message::Report { entries, .. }, .. }] => {
            assert!(entries.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_two_reported_activations_the_smaller_stays_and_the_other_silo_is_told() {
    let (mut bench, grain, recovery) = taking_over();
    bench.view(4, &[(1, Active), (3, ShuttingDown)]);
    let effects = bench.from(3, report(recovery, 3, &[(&grain, 6), (&grain, 5)]));
    let lost = Message::Evict { grain: grain.clone(), activation: 6 };
    assert_eq!(effects, [Effect::Send { to: silo(3), message: lost }]);
    assert_eq!(bench.lookup(1, &grain), Some(Outcome::Found(Some(at(3, 5)))));
    // The loser's directory tells its shell.
    let evict = Message::Evict { grain: grain.clone(), activation: 1 };
    assert_eq!(bench.from(3, evict), [Effect::Evict { grain, activation: 1 }]);
}

#[test]
fn the_local_activation_loses_to_an_older_silo() {
    let mut bench = Bench::new(4, Config::default());
    bench.view(1, &[(4, Active), (3, ShuttingDown)]);
    let grain = bench.grain_of(4, 0);
    let asked = questions(&bench.report_all(&[(grain.clone(), 1)]));
    let effects = bench.from(3, report(asked[0].1, 1, &[(&grain, 9)]));
    assert_eq!(effects, [Effect::Evict { grain: grain.clone(), activation: 1 }]);
    assert_eq!(bench.lookup(1, &grain), Some(Outcome::Found(Some(at(3, 9)))));
}

#[test]
fn views_that_are_not_newer_are_ignored() {
    let mut bench = Bench::with_peer();
    bench.view(2, &[(1, Dead)]);
    bench.view(1, &[(1, Dead)]);
    assert!(!bench.dir.is_closed() && bench.dir.view_version() == 2);
}
