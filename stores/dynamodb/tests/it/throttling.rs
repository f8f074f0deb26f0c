//! A service that throttles, cancels, fails and loses answers: never a conflict, and never a wrong
//! outcome of a commit.

use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Mutation};
use emmer_store_dynamodb::DynamoDbStore;
use emmer_test_servers::dynamodb::IN_MEMORY;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::between::{Between, Do, Speech, replace};
use emmer_test_servers::suite::rows::{NUMBERS, must_commit, number_of, row};
use emmer_test_servers::{DynamoDbServer, store};

const STORE: Store = store!(DynamoDbStore);
const SPEECH: Speech = Speech {
    reads: |request| {
        ["GetItem\r", "TransactGetItems\r", "Query\r"].iter().any(|name| is_about(request, name))
    },
    error,
};
/// Too much to do, in the three ways in which the service says so.
const BUSY: [Do; 3] = [
    Do::Answer(400, "ProvisionedThroughputExceededException", ""),
    Do::Answer(400, "ThrottlingException", ""),
    Do::Answer(400, "RequestLimitExceeded", ""),
];

fn is_about(request: &[u8], name: &str) -> bool {
    String::from_utf8_lossy(request).contains(&format!("DynamoDB_20120810.{name}"))
}

/// An error in the service's words. Of a cancelled transaction it has the reasons: `Cancelled None
/// TransactionConflict`.
fn error(code: &str) -> String {
    let reasons = code.strip_prefix("Cancelled ").map(|reasons| {
        reasons
            .split(' ')
            .map(|code| format!(r#"{{"Code":"{code}","Message":"So."}}"#))
            .collect::<Vec<_>>()
    });
    let (code, reasons) = match reasons {
        Some(reasons) => (
            "TransactionCanceledException",
            format!(r#","CancellationReasons":[{}]"#, reasons.join(",")),
        ),
        None => (code, String::new()),
    };
    format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","Message":"So."{reasons}}}"#)
}

fn server(test: &str) -> Option<DynamoDbServer> {
    DynamoDbServer::start_with_or_skip(test, &[IN_MEMORY])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_throttled_or_in_conflict_with_another_is_sent_again_and_is_no_conflict() {
    let Some(server) = server("what_is_throttled") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let cancelled = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
    let cancelled =
        cancelled.map(|reason| Do::Answer(400, ["Cancelled ", reason].concat().leak(), ""));
    for (n, busy) in (2..).zip(BUSY.into_iter().chain(cancelled)) {
        let commit = replace(&store, n).await;
        between.writes([busy.clone(), busy.clone(), busy.clone()]);
        between.seen();
        let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        assert_eq!(between.seen(), 4, "three refusals and the commit");
        between.reads([BUSY[0].clone(), BUSY[1].clone()]);
        assert_eq!(number_of(&store, "r").await, n);
        assert_eq!(between.seen(), 3);
    }
    // A touch, an append and a whole read too.
    between.writes([Do::Answer(400, "TransactionConflictException", ""), BUSY[0].clone()]);
    let at = emmer_store::Value::Time(emmer_core::Timestamp::from_millis(7));
    store.touch(&NUMBERS, "p", "r", "At", at).await.unwrap();
    between.writes([BUSY[1].clone()]);
    store.append(&NUMBERS, "q", vec![row("a", 1)]).await.unwrap();
    between.reads([
        BUSY[2].clone(),
        Do::Pass,
        Do::Answer(400, "Cancelled TransactionConflict", ""),
    ]);
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_reason_of_a_cancelled_commit_decides() {
    let Some(server) = server("the_first_reason") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let mut commit = replace(&store, 2).await;
    commit.push(Mutation::Insert { row: row("s", 2) });
    let failed = Do::Answer(400, "Cancelled None ConditionalCheckFailed", "");
    between.writes([
        Do::Answer(400, "Cancelled TransactionConflict ConditionalCheckFailed", ""),
        failed,
    ]);
    between.seen();
    assert_eq!(store.commit(&NUMBERS, "p", commit).await.unwrap(), CommitOutcome::Conflict(1));
    assert_eq!(between.seen(), 2, "what hides an earlier conflict is asked again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_throttles_for_ever_is_unavailable_and_nothing_happened() {
    let Some(server) = server("a_service_that_throttles") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let commit = replace(&store, 2).await;
    // A partition that was seen with a version is read by a transaction first, which may be
    // cancelled.
    must_commit(&store, "p", vec![Mutation::Upsert { row: row(VERSION_ROW, 1) }]).await;
    for busy in [BUSY[0].clone(), Do::Answer(400, "Cancelled TransactionConflict", "")] {
        between.throttles_for_ever(busy, &store, &commit).await;
    }
    let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_asked_for_again_and_applies_nothing_twice() {
    let Some(server) = server("a_lost_answer") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let mut n = 1;
    let lost = [
        Do::PassAndCut,
        Do::PassAndAnswer(500, "InternalServerError"),
        Do::PassAndAnswer(503, ""),
        Do::PassAndAnswer(400, "TransactionInProgressException"),
        Do::PassAndAnswer(400, "ThrottlingException"),
    ];
    for what in lost {
        n += 1;
        let commit = replace(&store, n).await;
        between.writes([what.clone()]);
        let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
        let found = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap();
        assert_eq!(outcome, CommitOutcome::Committed(vec![Some(found.etag)]), "{what:?}");
        assert_eq!(number_of(&store, "r").await, n, "{what:?}");
        // A new row, whose repetition finds it there.
        between.writes([what.clone()]);
        let insert = vec![Mutation::Insert { row: row(format!("new{n}"), n) }];
        let outcome = store.commit(&NUMBERS, "p", insert).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{what:?}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_can_tell_is_unknown() {
    let Some(server) = server("what_nobody_can_tell") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    // Lost again and again.
    let commit = replace(&store, 2).await;
    between.writes([Do::PassAndCut, Do::PassAndCut, Do::PassAndCut]);
    between.seen();
    let outcome = store.commit(&NUMBERS, "p", commit).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!((between.seen(), number_of(&store, "r").await), (3, 2));
    // The first attempt may come after the refused one. A wrong etag proves that it never happens;
    // an existing row does not.
    let lost = Do::Answer(500, "InternalServerError", "");
    let refused = Do::Answer(400, "Cancelled ConditionalCheckFailed", "");
    let commit = replace(&store, 3).await;
    between.writes([lost.clone(), refused.clone()]);
    assert_eq!(store.commit(&NUMBERS, "p", commit).await.unwrap(), CommitOutcome::Conflict(0));
    between.writes([lost, refused]);
    let insert = vec![Mutation::Insert { row: row("r", 3) }];
    let outcome = store.commit(&NUMBERS, "p", insert).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
}

/// The operations of the requests that came, and the keys that those of a transaction name.
fn operations(between: &Between) -> Vec<String> {
    let name = |request: String| {
        let operation =
            request.split("DynamoDB_20120810.").nth(1).and_then(|rest| rest.split('\r').next());
        let keys = ["r", "s", VERSION_ROW];
        let keys =
            keys.into_iter().filter(|key| request.contains(&format!(r#""Id":{{"S":"{key}"}}"#)));
        std::iter::once(operation.unwrap_or_default()).chain(keys).collect::<Vec<_>>().join(" ")
    };
    between.requests().into_iter().map(name).collect()
}

/// To the vendor a query is read-committed during a transaction; the emulator's never tears. So
/// this checks the requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_with_a_version_is_read_between_two_looks_that_refuse_what_is_on_its_way() {
    let Some(server) = server("a_partition_with_a_version") else { return };
    let (between, store) = Between::before(&server, SPEECH, STORE).await;
    let other = STORE.patient(&server.url()).await;
    let commit =
        |n| [VERSION_ROW, "r", "s"].map(|key| Mutation::Upsert { row: row(key, n) }).to_vec();
    must_commit(&other, "p", commit(2)).await;
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 3);
    must_commit(&other, "p", commit(3)).await;
    between.seen();
    assert_eq!(store.read_partition(&NUMBERS, "p").await.unwrap().len(), 3);
    let whole = "TransactGetItems r s VersionRow";
    let look = "TransactGetItems VersionRow";
    assert_eq!(
        operations(&between),
        [look, whole, "Query", look],
        "all rows of a new version at once, before the query"
    );
    store.read_partition(&NUMBERS, "p").await.unwrap();
    assert_eq!(operations(&between), [look, "Query", look]);
    // Its own commit is there whole: it was acknowledged. A reader gets no version otherwise.
    must_commit(&store, "p", commit(4)).await;
    store.read_row(&NUMBERS, "p", VERSION_ROW).await.unwrap().unwrap();
    assert_eq!(operations(&between), ["TransactWriteItems r s VersionRow", look]);
    must_commit(&other, "p", commit(5)).await;
    store.read_some(&NUMBERS, "p", "a", 3).await.unwrap();
    let sampled = operations(&between);
    assert_eq!(sampled[sampled.len() - 2..], [look, whole]);
    // A look that is refused is made again.
    between.reads([Do::Answer(400, "Cancelled TransactionConflict", "")]);
    store.read_partition(&NUMBERS, "p").await.unwrap();
    assert_eq!(operations(&between), [look, look, "Query", look]);
}
