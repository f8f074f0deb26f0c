//! The requester's rules: attempts, retries, new numbers, giving up.

use std::time::Duration;

use crate::common::{Active, Bench, Dead, at, complete, silo};
use emmer_core::ring::RingRange;
use emmer_directory::{Answer, Config, Effect, FailReason, Message, Operation, Outcome, Token};

#[test]
fn a_remote_registration_completes_by_the_owners_answer() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    assert_eq!(bench.register(1, &grain, 4), None);
    let (to, id, view, operation) = Bench::request(&bench.effects());
    assert_eq!((to, view, operation), (silo(2), 2, Operation::Register(4)));
    assert!(bench.respond(3, id, Answer::Registered).is_empty(), "not the one that was asked");
    assert!(bench.respond(2, id + 1, Answer::Registered).is_empty(), "not what was asked");
    assert_eq!(bench.respond(2, id, Answer::Registered), [complete(1, Outcome::Registered)]);
    assert!(bench.respond(2, id, Answer::Registered).is_empty(), "once");
    assert!(bench.dir.poll_timeout().is_none() && bench.dir.pending_count() == 0);
}

#[test]
fn busy_is_tried_again_ever_more_slowly_and_silence_after_a_second() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    bench.lookup(1, &grain);
    let mut effects = bench.effects();
    let mut delays = Vec::new();
    for _ in 0..7 {
        let (_, id, ..) = Bench::request(&effects);
        bench.respond(2, id, Answer::Busy);
        let before = bench.now;
        effects = bench.elapse();
        delays.push(bench.now.saturating_since(before).as_millis());
    }
    assert_eq!(delays, [5, 10, 20, 40, 80, 100, 100]);
    let before = bench.now;
    let (_, id, ..) = Bench::request(&bench.elapse());
    assert_eq!(bench.now.saturating_since(before), Duration::from_secs(1));
    assert_eq!(bench.respond(2, id, Answer::Found(None)), [complete(1, Outcome::Found(None))]);
}

#[test]
fn what_a_broken_way_may_have_lost_is_sent_again_at_once_but_not_twice_in_a_row() {
    let mut bench = Bench::with_peer();
    let (grain, other) = (bench.grain_of(2, 0), bench.grain_of(2, 1));
    bench.register(1, &grain, 4);
    let first = Bench::request(&bench.effects());
    bench.lookup(2, &other);
    let (_, busy, ..) = Bench::request(&bench.effects());
    bench.respond(2, busy, Answer::Busy);

    bench.dir.handle_broken_way(bench.now, silo(3));
    assert_eq!(bench.effects(), [], "nothing waits for that one");
    bench.dir.handle_broken_way(bench.now, silo(2));
    assert_eq!(Bench::request(&bench.effects()), first, "what was answered is not asked again");
    for _ in 0..3 {
        bench.dir.handle_broken_way(bench.now, silo(2));
    }
    assert_eq!(bench.effects(), [], "a way that breaks all the time is not flooded");

    // Its own time comes as ever, and then a broken way counts again.
    bench.respond(2, busy, Answer::Found(None));
    let before = bench.now;
    assert_eq!(Bench::request(&bench.elapse()), first);
    assert_eq!(bench.now.saturating_since(before), Duration::from_secs(1));
    bench.dir.handle_broken_way(bench.now, silo(2));
    assert_eq!(Bench::request(&bench.effects()), first);
    assert_eq!(bench.respond(2, first.1, Answer::Registered), [complete(1, Outcome::Registered)]);
    assert_eq!(bench.dir.pending_count(), 0);
}

#[test]
fn wrong_view_is_tried_again_when_a_view_arrives() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    bench.lookup(1, &grain);
    let (_, id, ..) = Bench::request(&bench.effects());
    assert!(bench.respond(2, id, Answer::WrongView).is_empty());
    bench.view(3, &[(1, Active), (2, Active), (9, Dead)]);
    let (to, _, view, _) = Bench::request(&bench.effects());
    assert_eq!((to, view), (silo(2), 3));
}

#[test]
fn a_new_owner_is_asked_under_a_new_number_and_the_old_grant_is_void() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    bench.register(1, &grain, 4);
    let (_, old, ..) = Bench::request(&bench.effects());
    bench.view(3, &[(1, Active), (2, Dead), (3, Active)]);
    let owner = bench.dir.owner_of(&grain).unwrap();
    let effects = bench.effects();
    assert!(bench.respond(2, old, Answer::Registered).is_empty());
    if owner == silo(3) {
        assert_ne!(Bench::request(&effects).1, old);
    } else {
        assert!(bench.dir.is_locked(&grain));
    }
    assert_eq!(bench.dir.pending_count(), 1);
}

#[test]
fn a_grant_on_its_way_is_void_once_the_recovery_question_is_taken() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    bench.register(1, &grain, 4);
    let (_, old, ..) = Bench::request(&bench.effects());
    let recover = Message::Recover { recovery: 8, view: 2, ranges: vec![RingRange::FULL] };
    let effects = bench.from(2, recover);
    let (_, new, ..) = Bench::request(&effects);
    assert!(new != old && matches!(effects.last(), Some(Effect::ReportLocal { .. })));
    assert!(bench.respond(2, old, Answer::Registered).is_empty());
    assert_eq!(bench.respond(2, new, Answer::Registered), [complete(1, Outcome::Registered)]);
}

#[test]
fn a_registration_that_times_out_is_withdrawn() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    bench.register(1, &grain, 4);
    let start = bench.now;
    let effects = loop {
        let effects = bench.elapse();
        if effects.iter().any(|effect| matches!(effect, Effect::Complete { .. })) {
            break effects;
        }
    };
    assert_eq!(bench.now.saturating_since(start), Config::default().op_timeout);
    assert_eq!(effects[0], complete(1, Outcome::Failed(FailReason::TimedOut)));
    let (to, id, _, operation) = Bench::request(&effects);
    assert_eq!((to, operation), (silo(2), Operation::Unregister(4)));
    assert!(bench.respond(2, id, Answer::Unregistered).is_empty(), "nobody waits for it");
    assert_eq!((bench.dir.pending_count(), bench.dir.poll_timeout()), (0, None));
}

#[test]
fn a_refused_registration_is_withdrawn_while_another_attempt_is_on_its_way() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    bench.register(1, &grain, 4);
    let (_, id, ..) = Bench::request(&bench.effects());
    assert_eq!(Bench::request(&bench.elapse()).1, id, "after a second of silence");
    // The answer to the first attempt: by the time the second arrives the grain may be free.
    let effects = bench.respond(2, id, Answer::Taken(at(2, 9)));
    assert_eq!(effects[0], complete(1, Outcome::Taken(at(2, 9))));
    let (to, id, _, operation) = Bench::request(&effects[1..]);
    assert_eq!((to, operation), (silo(2), Operation::Unregister(4)));
    assert!(bench.respond(2, id, Answer::Unregistered).is_empty());
    assert_eq!((bench.dir.pending_count(), bench.dir.unfinished()), (0, None));
}

#[test]
fn a_removal_nobody_answers_ends_some_time() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    let (now, start) = (bench.now, bench.now);
    assert_eq!(bench.dir.unregister(now, None, &grain, 3), None);
    while bench.dir.poll_timeout().is_some() {
        assert!(!bench.elapse().iter().any(|e| matches!(e, Effect::Complete { .. })));
    }
    assert_eq!(bench.now.saturating_since(start), Config::default().unregister_timeout);
}

#[test]
fn forgetting_withdraws_registrations_and_drops_lookups() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    let now = bench.now;
    bench.lookup(1, &grain);
    let (_, looked_up, ..) = Bench::request(&bench.effects());
    bench.register(2, &grain, 4);
    bench.effects();
    assert!(bench.dir.forget(now, Token(1)) && bench.dir.forget(now, Token(2)));
    assert!(!bench.dir.forget(now, Token(2)), "it is forgotten already");
    let (_, id, _, operation) = Bench::request(&bench.respond(2, looked_up, Answer::Found(None)));
    assert_eq!((operation, bench.dir.pending_count()), (Operation::Unregister(4), 1));
    assert!(bench.respond(2, id, Answer::Unregistered).is_empty());
}

#[test]
fn ones_own_activation_under_removal_does_not_refuse_the_next() {
    let mut bench = Bench::with_peer();
    let grain = bench.grain_of(2, 0);
    let now = bench.now;
    bench.dir.unregister(now, None, &grain, 4);
    let (_, removal, ..) = Bench::request(&bench.effects());
    bench.register(1, &grain, 5);
    let (_, id, ..) = Bench::request(&bench.effects());
    bench.respond(2, removal, Answer::Busy);
    assert!(bench.respond(2, id, Answer::Taken(at(1, 4))).is_empty(), "wait for the removal");
    let effects = bench.elapse();
    assert_eq!(
        (effects.len(), Bench::request(&effects[..1]).1),
        (2, removal),
        "the removal goes first"
    );
    assert_eq!(Bench::request(&effects[1..]).1, id);
    bench.respond(2, removal, Answer::Unregistered);
    // A registration that is not being removed is for the shell to judge.
    let taken = complete(1, Outcome::Taken(at(1, 4)));
    assert_eq!(bench.respond(2, id, Answer::Taken(at(1, 4))), [taken]);
}

#[test]
fn too_many_waiting_commands_are_refused() {
    let mut bench = Bench::new(1, Config { pending_max: 2, ..Config::default() });
    bench.view(1, &[(2, Active)]);
    let grain = bench.grain_of(2, 0);
    assert_eq!([bench.lookup(1, &grain), bench.lookup(2, &grain)], [None, None]);
    assert_eq!(bench.lookup(3, &grain), Some(Outcome::Failed(FailReason::TooManyPending)));
}

#[test]
fn a_grain_does_not_move_while_an_attempt_to_register_it_is_unanswered() {
    let mut bench = Bench::with_peer();
    let (grain, other) = (bench.grain_of(2, 0), bench.grain_of(2, 1));
    for (token, grain, resends) in [(1, &grain, 1), (2, &other, 0)] {
        assert_eq!(bench.register(token, grain, token), None);
        let (_, id, ..) = Bench::request(&bench.effects());
        for _ in 0..resends {
            bench.elapse();
        }
        let done = bench.respond(2, id, Answer::Registered);
        assert_eq!(done, [complete(token, Outcome::Registered)]);
        assert_eq!(bench.dir.may_move(grain, token), resends == 0);
    }
    let now = bench.now;
    bench.dir.unregister(now, None, &grain, 1);
    assert!(bench.dir.may_move(&grain, 1), "its removal comes after the attempt");
}
