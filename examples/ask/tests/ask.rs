//! The promises of a session, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use emmer::SiloBuilder;
use emmer::prelude::*;
use emmer::test::World;
use emmer_example_ask::model::Parrot;
use emmer_example_ask::session::{AskError, Ending, Part, Session, SessionRef};
use emmer_example_ask::sessions;

fn parrot(silo: SiloBuilder) -> SiloBuilder {
    sessions(silo, Arc::new(Parrot { word: millis(50) }))
}

async fn ask(session: &SessionRef, question: &str) {
    // The question is its own token.
    while session.ask(question.to_owned(), question.to_owned()).await.is_err() {
        tokio::time::sleep(millis(100)).await;
    }
}

/// Reads from the next part on until an answer has ended, whatever happens meanwhile.
async fn read(session: &SessionRef, shown: &mut Vec<Part>) {
    loop {
        let mut parts = session.read(shown.len() as u64);
        while let Some(Ok((number, part))) = parts.next().await {
            assert_eq!(number, shown.len() as u64, "a part is missing, or came twice");
            shown.push(part);
            if let Some(Part::End(_)) = shown.last() {
                return;
            }
        }
        tokio::time::sleep(millis(100)).await;
    }
}

fn words(parts: &[Part]) -> String {
    let words = parts.iter().filter_map(|part| match part {
        Part::Words(words) => Some(words.as_str()),
        _ => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The whole answer to a question.
async fn whole(session: &SessionRef, question: &str) -> String {
    ask(session, question).await;
    let mut shown = Vec::new();
    read(session, &mut shown).await;
    assert_eq!(shown.last(), Some(&Part::End(Ending::Complete)));
    words(&shown)
}

const QUESTION: &str = "What do grains remember?";

#[emmer::test(seeds = 3)]
async fn words_come_one_after_the_other_and_stay(world: World) {
    let cluster = world.cluster(2, parrot).await;
    let client = cluster.client().await;
    let session = client.grain::<dyn Session>("ann");
    let answer = whole(&session, QUESTION).await;
    assert!(answer.contains("grains is best kept") && answer.ends_with("That is all."), "{answer}");
    // A reload in the middle of the next answer: what was shown, and what follows.
    ask(&session, "And what about silos?").await;
    let mut parts = session.read(0);
    let mut shown = Vec::new();
    while shown.iter().filter(|part| matches!(part, Part::Question { .. })).count() < 2 {
        shown.push(parts.next().await.unwrap().unwrap().1);
    }
    drop(parts);
    let mut again = Vec::new();
    while again.len() <= shown.len() {
        read(&session, &mut again).await;
    }
    assert_eq!(again[..shown.len()], shown);
    assert!(words(&again[shown.len() - 1..]).contains("silos is best kept"));
    // A question whose token the session knows begins no answer.
    ask(&session, QUESTION).await;
    let nothing = tokio::time::timeout(secs(5), read(&session, &mut again)).await;
    assert!(nothing.is_err(), "{again:?}");
}

#[emmer::test]
async fn an_answer_is_stopped(world: World) {
    let cluster = world.cluster(2, parrot).await;
    let client = cluster.client().await;
    let session = client.grain::<dyn Session>("ann");
    let mut shown = Vec::new();
    // By the reader.
    ask(&session, "Will you stop?").await;
    world.advance(secs(1)).await;
    session.stop().await.unwrap();
    read(&session, &mut shown).await;
    assert_eq!(shown.last(), Some(&Part::End(Ending::Stopped)));
    assert!(!words(&shown).is_empty() && !words(&shown).ends_with("all."), "{shown:?}");
    session.stop().await.unwrap();
    // By the next question.
    ask(&session, "What do grains remember?").await;
    ask(&session, "What do silos remember?").await;
    read(&session, &mut shown).await;
    assert_eq!(shown.last(), Some(&Part::End(Ending::Stopped)));
    read(&session, &mut shown).await;
    assert_eq!(shown.last(), Some(&Part::End(Ending::Complete)));
    for wrong in [String::new(), "x".repeat(2_001)] {
        let answer = session.ask(wrong, String::new()).await;
        assert!(matches!(answer, Err(CallError::App(AskError::Length(_)))), "{answer:?}");
    }
}

#[emmer::test]
async fn an_answer_that_no_page_reads_is_stopped(world: World) {
    let slow = |silo| sessions(silo, Arc::new(Parrot { word: secs(3) }));
    let cluster = world.cluster(1, slow).await;
    let session = cluster.client().await.grain::<dyn Session>("ann");
    ask(&session, QUESTION).await;
    // A page reads for a minute, and goes.
    let mut shown = Vec::new();
    assert!(tokio::time::timeout(secs(60), read(&session, &mut shown)).await.is_err());
    assert!(words(&shown).split(' ').count() > 15, "{shown:?}");
    world.advance(secs(40)).await;
    read(&session, &mut shown).await;
    assert_eq!(shown.last(), Some(&Part::End(Ending::Unread)));
}

/// A stream ends where the reader's window is full, and the reader continues behind it.
#[emmer::test]
async fn a_reader_that_is_too_slow_continues_from_its_next_part(world: World) {
    let slow = |silo| sessions(silo, Arc::new(Parrot { word: millis(110) }));
    let cluster = world.cluster(1, slow).await;
    let session = cluster.client().await.grain::<dyn Session>("ann");
    let mut shown = Vec::new();
    for n in 0..5 {
        ask(&session, &format!("{n} alpha bravo charlie delta echoes")).await;
        read(&session, &mut shown).await;
    }
    let mut again = Vec::new();
    let mut streams = 0;
    while again.len() < shown.len() {
        let mut parts = session.read(again.len() as u64);
        // Half a second in which nothing is read: the window fills.
        tokio::time::sleep(millis(500)).await;
        while again.len() < shown.len()
            && let Some(part) = parts.next().await
        {
            again.push(part.unwrap().1);
        }
        streams += 1;
    }
    assert_eq!(again, shown);
    assert!(streams > 1, "{} parts fit into one window", shown.len());
}

/// A silo dies in the middle of an answer: the page reads on from its next part, and the answer is
/// the whole one.
#[emmer::test(seeds = 8)]
async fn an_answer_outlives_its_silo(world: World) {
    let mut cluster = world.cluster(3, parrot).await;
    let client = cluster.client().await;
    let calm = whole(&client.grain::<dyn Session>("calm"), QUESTION).await;
    let session = client.grain::<dyn Session>("ann");
    let reader = session.clone();
    ask(&session, QUESTION).await;
    let reads = tokio::spawn(async move {
        let mut shown = Vec::new();
        read(&reader, &mut shown).await;
        shown
    });
    for n in 0..3 {
        world.advance(millis(700)).await;
        cluster.kill(n);
        world.advance(millis(700)).await;
        cluster.restart(n).await;
    }
    let shown = reads.await.unwrap();
    assert_eq!(shown.last(), Some(&Part::End(Ending::Complete)));
    assert_eq!(words(&shown), calm);
}
