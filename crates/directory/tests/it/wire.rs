//! Messages survive MessagePack, and stay small.

use emmer_core::ring::RingRange;
use emmer_core::{GrainId, GrainTypeId};
use emmer_directory::{Answer, Ask, Message, Operation, Registration};

fn messages() -> Vec<Message> {
    let grain = GrainId::new(GrainTypeId::of("airport"), "JFK");
    let silo = "10.0.0.1:11111:1795265085000000".parse().unwrap();
    let held = Registration { silo, activation: 7 };
    let answers = [
        Answer::Found(Some(held)),
        Answer::Found(None),
        Answer::Taken(held),
        Answer::WrongView,
        Answer::Absent,
    ];
    let response = |answer| Message::Responses { view: 2, answers: vec![(1, answer)] };
    let mut messages: Vec<_> = answers.into_iter().map(response).collect();
    let operation = Operation::Register(7);
    let ask = Ask { id: 1, operation, grain: grain.clone() };
    messages.push(Message::Requests { view: 2, asks: vec![ask] });
    let operation = Operation::Replace { activation: 8, instead: held, view: 2 };
    let ask = Ask { id: 1, operation, grain: grain.clone() };
    messages.push(Message::Requests { view: 2, asks: vec![ask] });
    messages.push(Message::Recover {
        recovery: 1,
        view: 2,
        ranges: vec![RingRange { after: 9, through: 3 }],
    });
    let entries = vec![(grain.clone(), 7)];
    messages.push(Message::Report {
        recovery: 1,
        view: 2,
        series: 3,
        batch: 4,
        last: true,
        entries,
    });
    let (missing, entries) = (vec![silo], vec![(grain.clone(), held)]);
    messages.push(Message::Collected {
        view: 2,
        at: 3,
        series: 4,
        batch: 0,
        last: true,
        missing,
        entries,
    });
    let (fading, entries) = (vec![(silo, 250)], vec![(grain.clone(), held)]);
    messages.push(Message::Handed { view: 2, series: 4, batch: 0, last: true, fading, entries });
    messages.push(Message::Take { view: 2 });
    messages.push(Message::Unheld { view: 2 });
    messages.push(Message::Credit { series: 4, batches: 1 });
    messages.push(Message::Await { view: 2 });
    messages.push(Message::Awaited { view: 2, known: true });
    messages.push(Message::Evict { grain, activation: 7 });
    messages
}

#[test]
fn messages_round_trip_with_named_fields() {
    for message in messages() {
        let bytes = rmp_serde::to_vec_named(&message).unwrap();
        assert_eq!(rmp_serde::from_slice::<Message>(&bytes).unwrap(), message);
        assert!(bytes.len() < 150, "{message:?} takes {} bytes", bytes.len());
    }
}

#[test]
fn the_largest_report_fits_a_frame() {
    let grain = |n: u64| GrainId::new(GrainTypeId::of("g"), format!("{n:01024}"));
    let entries = (0..4096).map(|n| (grain(n), u64::MAX)).collect();
    let message =
        Message::Report { recovery: 1, view: 2, series: 3, batch: 4, last: true, entries };
    let size = rmp_serde::to_vec_named(&message).unwrap().len();
    assert!(size < 5 << 20, "{size}");
    let silo = "[2001:db8:1234:5678:9abc:def0:1234:5678]:11111:1795265085000000".parse().unwrap();
    let held = Registration { silo, activation: u64::MAX };
    let entries = (0..4096).map(|n| (grain(n), held)).collect();
    let missing = vec![silo; 10_000];
    let message =
        Message::Collected { view: 2, at: 3, series: 3, batch: 4, last: true, missing, entries };
    let size = rmp_serde::to_vec_named(&message).unwrap().len();
    assert!(size < 8 << 20, "{size}");
}
