//! A service that throttles, fails and loses answers: never a conflict, and never a wrong outcome
//! of a commit.

use emmer_core::Timestamp;
use emmer_store::{CommitOutcome, Mutation, StoreErrorKind, Value};
use emmer_store_cosmos::CosmosStore;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::between::{Between, Do, Speech, replace};
use emmer_test_servers::suite::rows::{NUMBERS, all, must_commit, number_of, row};
use emmer_test_servers::{CosmosServer, store};

const STORE: Store = store!(CosmosStore);
const SPEECH: Speech = Speech {
    // A row is read by a batch.
    reads: |request| {
        let text = String::from_utf8_lossy(request);
        text.contains(r#"[{"operationType":"Read""#) || text.contains("x-ms-documentdb-isquery")
    },
    error: |code| format!("{{\"code\":\"{code}\",\"message\":\"So it is.\"}}"),
};
const BUSY: Do = Do::Answer(429, "429", "x-ms-retry-after-ms: 1\r\nx-ms-substatus: 3200\r\n");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_throttled_is_sent_again_and_is_no_conflict() {
    let Some(server) = CosmosServer::start_or_skip("what_is_throttled") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    for (n, busy) in (2..).zip([BUSY, Do::Answer(429, "429", ""), Do::Answer(449, "449", "")]) {
        let commit = replace(&store, n).await;
        between.writes([busy.clone(), busy.clone()]);
        between.seen();
        let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        assert_eq!(between.seen(), 3, "two refusals and the commit: {busy:?}");
        between.reads([busy.clone(), busy]);
        assert_eq!(number_of(&store, "r").await, n);
        assert_eq!(between.seen(), 3);
    }
    // A touch and an append too.
    between.writes([BUSY, BUSY]);
    store.touch(&NUMBERS, "p", "r", "At", Value::Time(Timestamp::from_millis(7))).await.unwrap();
    between.writes([BUSY]);
    store.append(&NUMBERS, "q", vec![row("a", 1)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_throttles_for_ever_is_unavailable_and_nothing_happened() {
    let Some(server) = CosmosServer::start_or_skip("a_service_that_throttles") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let commit = replace(&store, 2).await;
    for busy in [Do::Answer(429, "429", "x-ms-retry-after-ms: 3600000\r\n"), BUSY] {
        between.throttles_for_ever(busy, &store, &commit).await;
    }
    let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_happened_is_found_out() {
    let Some(server) = CosmosServer::start_or_skip("what_may_have_happened") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let mut n = 1;
    for what in [
        Do::PassAndCut,
        Do::PassAndAnswer(408, "408"),
        Do::PassAndAnswer(500, "500"),
        Do::PassAndAnswer(503, "503"),
        Do::PassAndAnswer(200, ""),
        // The service did nothing, and says so in the same words.
        Do::Answer(503, "503", ""),
        Do::Answer(408, "408", ""),
    ] {
        n += 1;
        let commit = replace(&store, n).await;
        between.writes([what.clone()]);
        let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
        let row = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
        assert_eq!(outcome, CommitOutcome::Committed(vec![Some(row.etag)]), "{what:?}");
        assert_eq!(number_of(&store, "r").await, n, "{what:?}");
    }
    // A row that is only made is looked for, and not sent again.
    let insert = |key: &str| vec![Mutation::Insert { row: row(key, 1) }];
    between.writes([Do::PassAndCut]);
    let outcome = store.commit(&NUMBERS, "p", insert("made")).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    between.writes([Do::Answer(503, "503", "")]);
    let outcome = store.commit(&NUMBERS, "p", insert("perhaps")).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    // So is one that is only deleted.
    between.writes([Do::PassAndCut]);
    let delete = vec![Mutation::Delete { row_key: "made".into(), etag: None }];
    let outcome = store.commit(&NUMBERS, "p", delete).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_was_written_over_before_it_was_looked_for_is_unknown() {
    let Some(server) = CosmosServer::start_or_skip("a_commit_that_was_written_over") else {
        return;
    };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let other = STORE.patient(&server.url()).await;
    let commit = replace(&store, 2).await;
    // The answer is lost, and the service is busy until another writer wrote over the row.
    between.writes([Do::PassAndCut]);
    between.reads(std::iter::repeat_n(BUSY, 6));
    let over = async {
        while number_of(&other, "r").await != 2 {}
        must_commit(&other, "p", replace(&other, 3).await).await;
    };
    let (outcome, ()) = tokio::join!(store.commit(&NUMBERS, "p", commit), over);
    let outcome = outcome.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
}

/// An upsert has no condition of its own: sent again it would undo later writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upsert_that_was_written_over_is_not_applied_twice() {
    let Some(server) = CosmosServer::start_or_skip("an_upsert_written_over") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let other = STORE.patient(&server.url()).await;
    assert_eq!(number_of(&store, "r").await, 1);
    between.writes([Do::PassAndCut]);
    between.reads(std::iter::repeat_n(BUSY, 6));
    let upsert = vec![Mutation::Upsert { row: row("r", 2) }];
    let over = async {
        while number_of(&other, "r").await != 2 {}
        must_commit(&other, "p", replace(&other, 3).await).await;
    };
    let (outcome, ()) = tokio::join!(store.commit(&NUMBERS, "p", upsert), over);
    let outcome = outcome.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(number_of(&other, "r").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_after_a_read_is_one_request_and_a_heartbeat_costs_two_more() {
    let Some(server) = CosmosServer::start_or_skip("a_commit_after_a_read") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let other = STORE.patient(&server.url()).await;
    let commit = replace(&store, 2).await;
    between.seen();
    must_commit(&store, "p", commit).await;
    assert_eq!(between.seen(), 1);
    let commit = replace(&store, 3).await;
    let at = Value::Time(Timestamp::from_millis(7));
    other.touch(&NUMBERS, "p", "r", "At", at.clone()).await.unwrap();
    between.seen();
    must_commit(&store, "p", commit).await;
    assert_eq!(between.seen(), 3, "the commit, a look, the commit");
    let found = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
    assert_eq!(found.row.get("At"), Some(&at), "the heartbeat is not turned back");
    // A commit that lost hears so after one look.
    let stale = replace(&store, 4).await;
    must_commit(&other, "p", all(1, 4)).await;
    must_commit(&other, "p", replace(&other, 5).await).await;
    between.seen();
    assert_eq!(store.commit(&NUMBERS, "p", stale).await.unwrap(), CommitOutcome::Conflict(0));
    assert_eq!(between.seen(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_key_is_refused_in_words_and_without_it() {
    let Some(server) = CosmosServer::start_or_skip("a_wrong_key") else { return };
    let between = Between::start(server.port(), SPEECH).await;
    between.always(Some(Do::Answer(401, "Unauthorized", "")));
    let url = format!("cosmos://a:c2VjcmV0@127.0.0.1:{}/emmer?tls=false", between.port());
    let error = (STORE.open)(url).await.map(drop).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("401") && !error.to_string().contains("c2Vj"), "{error}");
}
