//! Requests that share a message: how many, which answer is whose, and what a loss leaves behind.

use crate::common::{Active, Bench, at, complete, silo};
use emmer_core::{GrainId, SiloAddress};
use emmer_directory::{Answer, Ask, Config, Effect, Message, Operation, Outcome};

/// A message with requests: its receiver, its view, and the requests' numbers and grains.
type Sent = (SiloAddress, u64, Vec<(u64, GrainId)>);

fn sent(effects: &[Effect]) -> Vec<Sent> {
    let sent = |effect: &Effect| match effect {
        Effect::Send { to, message: Message::Requests { view, asks } } => {
            let asks = asks.iter().map(|ask| (ask.id, ask.grain.clone())).collect();
            Some((*to, *view, asks))
        }
        _ => None,
    };
    effects.iter().filter_map(sent).collect()
}

fn sizes(effects: &[Effect]) -> Vec<usize> {
    sent(effects).iter().map(|(_, _, asks)| asks.len()).collect()
}

impl Bench {
    /// Asks for grains `from` to `to` of silo 2, with their places as tokens.
    fn look_up(&mut self, from: usize, to: usize) -> Vec<Effect> {
        for nth in from..to {
            let grain = self.grain_of(2, nth);
            assert_eq!(self.lookup(nth as u64, &grain), None);
        }
        self.effects()
    }

    /// Answers a message: grain number n of silo 2 is on silo 3 as activation n.
    fn find(&mut self, asks: &[(u64, GrainId)], places: &[GrainId]) -> Vec<Effect> {
        let place = |grain| places.iter().position(|other| other == grain).unwrap() as u64;
        let answers = asks
            .iter()
            .map(|(id, grain)| (*id, Answer::Found(Some(at(3, place(grain))))))
            .collect();
        self.from(2, Message::Responses { view: 2, answers })
    }
}

#[test]
fn requests_that_come_up_while_the_owner_is_busy_share_a_message_and_each_gets_its_answer() {
    let mut bench = Bench::with_peer();
    let places: Vec<_> = (0..12).map(|nth| bench.grain_of(2, nth)).collect();
    let lone = bench.look_up(0, 12);
    assert_eq!(sizes(&lone), [1, 1], "a lone request does not wait, nor does the next");
    let [(.., first), (.., second)] = &sent(&lone)[..] else { unreachable!() };
    let mut done = bench.find(first, &places);
    let shared = sent(&done);
    assert_eq!(sizes(&done), [10]);
    done.extend(bench.find(second, &places));
    done.extend(bench.find(&shared[0].2, &places));
    for token in 0..12 {
        let found = complete(token, Outcome::Found(Some(at(3, token))));
        assert!(done.contains(&found), "{token}: {done:?}");
    }
    assert_eq!(bench.dir.unfinished(), None);
    assert_eq!(sizes(&bench.look_up(0, 1)), [1], "the owner owes nothing");
}

#[test]
fn an_owner_answers_the_requests_of_one_message_in_one() {
    let mut bench = Bench::with_peer();
    let ask = |id, grain, operation| Ask { id, operation, grain };
    let (own, other) = (bench.grain_of(1, 0), bench.grain_of(2, 0));
    let asks = vec![
        ask(5, own.clone(), Operation::Register(9)),
        ask(6, own.clone(), Operation::Lookup),
        ask(7, other, Operation::Lookup),
        ask(8, own.clone(), Operation::Register(10)),
        ask(9, own, Operation::Unregister(9)),
    ];
    let answers = vec![
        (5, Answer::Registered),
        (6, Answer::Found(Some(at(2, 9)))),
        (7, Answer::WrongView),
        (8, Answer::Taken(at(2, 9))),
        (9, Answer::Unregistered),
    ];
    let message = Message::Responses { view: 2, answers };
    assert_eq!(
        bench.from(2, Message::Requests { view: 2, asks }),
        [Effect::Send { to: silo(2), message }]
    );
    assert_eq!(bench.dir.entries_count(), 0);
}

#[test]
fn a_message_has_at_most_256_requests() {
    let mut bench = Bench::with_peer();
    assert_eq!(sizes(&bench.look_up(0, 600)), [1, 1, 256, 256]);
    let config = Config { report_batch_max: 10, ..Config::default() };
    let mut bench = Bench::new(1, config);
    bench.view(1, &[(1, Active), (2, Active)]);
    bench.report_all(&[]);
    assert_eq!(sizes(&bench.look_up(0, 25)), [1, 1, 10, 10], "or as many as a report has");
}

#[test]
fn what_waits_for_an_answer_that_is_lost_goes_when_its_loss_is_noticed() {
    // By the end of the connection.
    let mut bench = Bench::with_peer();
    bench.look_up(0, 8);
    bench.dir.handle_broken_way(bench.now, silo(2));
    let again = bench.effects();
    let ids: Vec<u64> = sent(&again).iter().flat_map(|(.., asks)| asks).map(|ask| ask.0).collect();
    let mut known = ids.clone();
    known.sort_unstable();
    known.dedup();
    assert!(known.len() >= 7, "{ids:?}");
    // By time.
    let mut bench = Bench::with_peer();
    bench.look_up(0, 8);
    let mut later = bench.elapse();
    later.extend(bench.effects());
    let asked = sent(&later).iter().map(|(.., asks)| asks.len()).sum::<usize>();
    assert!(asked >= 8, "{later:?}");
    // A caller that gives up holds none of the others.
    let mut bench = Bench::with_peer();
    bench.look_up(0, 3);
    for token in 0..3 {
        assert!(bench.dir.forget(bench.now, emmer_directory::Token(token)));
    }
    assert_eq!(bench.dir.pending_count(), 0);
    assert!(bench.look_up(3, 4).is_empty(), "as far as this silo knows, the owner is busy");
    assert_eq!(sizes(&bench.elapse()).iter().sum::<usize>(), 3, "until it has had time");
}

#[test]
fn what_waits_leaves_with_the_view_that_it_was_asked_in() {
    let mut bench = Bench::with_peer();
    bench.look_up(0, 5);
    bench.view(3, &[(1, Active), (2, Active), (3, Active)]);
    let effects = bench.effects();
    let [(to, view, asks), ..] = &sent(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((*to, *view, asks.len()), (silo(2), 2, 3));
    assert!(sent(&effects)[1..].iter().all(|(_, view, _)| *view == 3));
}
