//! A service that throttles, fails and loses answers: never a conflict, and never a wrong outcome
//! of a commit.

use emmer_store::{CommitOutcome, Mutation};
use emmer_store_azure::AzureTableStore;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::between::{Between, Do, Speech, replace};
use emmer_test_servers::suite::rows::{NUMBERS, all, must_commit, number_of, row};
use emmer_test_servers::{AzuriteServer, store};

const STORE: Store = store!(AzureTableStore);
const SPEECH: Speech = Speech {
    reads: |request| request.starts_with(b"GET"),
    error: |code| {
        format!("{{\"odata.error\":{{\"code\":\"{code}\",\"message\":{{\"value\":\"So.\"}}}}}}")
    },
};
const BUSY: Do = Do::Answer(503, "ServerBusy", "");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_throttled_is_sent_again_and_is_no_conflict() {
    let Some(server) = AzuriteServer::start_or_skip("what_is_throttled") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    for (n, busy) in (2..).zip([
        BUSY,
        Do::Answer(429, "", "Retry-After: 0\r\n"),
        Do::Answer(429, "TooManyRequests", ""),
    ]) {
        let commit = replace(&store, n).await;
        between.writes([busy.clone(), busy.clone(), busy.clone()]);
        between.seen();
        let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        assert_eq!(between.seen(), 4, "three refusals and the commit");
        between.reads([busy.clone(), busy]);
        assert_eq!(number_of(&store, "r").await, n);
        assert_eq!(between.seen(), 3);
    }
    // A touch and an append too.
    between.writes([BUSY, BUSY]);
    let at = emmer_store::Value::Time(emmer_core::Timestamp::from_millis(7));
    store.touch(&NUMBERS, "p", "r", "At", at).await.unwrap();
    between.writes([BUSY]);
    store.append(&NUMBERS, "q", vec![row("a", 1)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_throttles_for_ever_is_unavailable_and_nothing_happened() {
    let Some(server) = AzuriteServer::start_or_skip("a_service_that_throttles") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let commit = replace(&store, 2).await;
    // It asks for more time than there is: told at once, and again while the house waits for a
    // server that is away.
    for busy in [Do::Answer(503, "ServerBusy", "Retry-After: 3600\r\n"), BUSY] {
        between.throttles_for_ever(busy, &store, &commit).await;
    }
    let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_happened_is_unknown_and_what_did_is_committed() {
    let Some(server) = AzuriteServer::start_or_skip("what_may_have_happened") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let mut n = 1;
    for what in [
        Do::PassAndCut,
        Do::PassAndAnswer(500, "OperationTimedOut"),
        Do::PassAndAnswer(500, "InternalError"),
        Do::PassAndAnswer(503, ""),
        Do::PassAndAnswer(202, ""),
    ] {
        n += 1;
        let commit = replace(&store, n).await;
        between.writes([what.clone()]);
        let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{what:?}: {outcome:?}");
        assert_eq!(number_of(&store, "r").await, n, "{what:?}");
    }
    // A refusal of what happened all the same: the next attempt finds its own mark, and not a
    // conflict.
    let commit = replace(&store, n + 1).await;
    between.writes([Do::PassAndAnswer(503, "ServerBusy")]);
    let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
    let row = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
    assert_eq!(outcome, CommitOutcome::Committed(vec![Some(row.etag)]));
    assert_eq!(number_of(&store, "r").await, n + 1);
    // A new row, whose insert then finds it there.
    between.writes([Do::PassAndAnswer(503, "ServerBusy")]);
    let outcome =
        store.commit(&NUMBERS, "p", vec![Mutation::Insert { row: row_of("new") }]).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

fn row_of(key: &str) -> emmer_store::Row {
    row(key, 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_after_a_read_is_one_request_and_a_heartbeat_costs_two_more() {
    let Some(server) = AzuriteServer::start_or_skip("a_commit_after_a_read") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let other = STORE.patient(&server.url()).await;
    let commit = replace(&store, 2).await;
    between.seen();
    must_commit(&store, "p", commit).await;
    assert_eq!(between.seen(), 1);
    let commit = replace(&store, 3).await;
    let at = emmer_store::Value::Time(emmer_core::Timestamp::from_millis(7));
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
