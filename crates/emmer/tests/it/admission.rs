//! Admission: calls that wait for each other.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::{Arc, LazyLock, Mutex};

use emmer::prelude::*;
use tokio::sync::{Barrier, Notify};

use crate::common::{self, settle};

/// Where turns of the tests meet, by name: so many.
static MEETINGS: LazyLock<Mutex<BTreeMap<String, Arc<Barrier>>>> = LazyLock::new(Mutex::default);
/// Signals by which the tests let turns continue, by name.
static GO: LazyLock<Mutex<BTreeMap<String, Arc<Notify>>>> = LazyLock::new(Mutex::default);

fn meeting(name: &str, n: usize) -> Arc<Barrier> {
    MEETINGS
        .lock()
        .unwrap()
        .entry(name.to_owned())
        .or_insert_with(|| Arc::new(Barrier::new(n)))
        .clone()
}

fn go(name: &str) -> Arc<Notify> {
    GO.lock().unwrap().entry(name.to_owned()).or_default().clone()
}

/// Number of turns that came to a place, by name.
static PASSED: LazyLock<Mutex<BTreeMap<String, u64>>> = LazyLock::new(Mutex::default);

fn passed(place: &str) -> u64 {
    PASSED.lock().unwrap().get(place).copied().unwrap_or_default()
}

/// Step of a turn, one after the other.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Do {
    /// Waits until so many turns are at the meeting of this name.
    Meet(String, usize),
    /// Waits until the test says so.
    Await(String),
    /// Calls the grain of this key with `&mut self`, which does this.
    Write(String, Vec<Self>),
    /// Calls it with `&self`.
    Read(String, Vec<Self>),
    /// As `Write`, and gives the call up when a turn tells so.
    WriteUntil(String, Vec<Self>, String),
    /// Lets a turn continue that waits for this.
    Tell(String),
    /// Counts one more that came to this place.
    Pass(String),
}

fn write(key: &str) -> Do {
    Do::Write(key.to_owned(), Vec::new())
}

fn read(key: &str) -> Do {
    Do::Read(key.to_owned(), Vec::new())
}

fn meet(name: &str, n: usize) -> Do {
    Do::Meet(name.to_owned(), n)
}

#[grain_interface(key = String)]
trait Knot {
    async fn write(&mut self, what: Vec<Do>) -> Result<(), String>;
    async fn read(&self, what: Vec<Do>) -> Result<(), String>;
    async fn rest(&mut self);
    /// One run more.
    async fn count(&mut self) -> u64;
}

#[derive(Grain)]
#[placement(prefer_local)]
struct KnotGrain {
    #[context]
    ctx: Ctx,
    runs: u64,
}

/// The innermost error, in words.
fn told(result: Result<(), CallError<String>>) -> Result<(), String> {
    result.map_err(|error| match error {
        CallError::App(inner) => inner,
        other => other.to_string(),
    })
}

async fn perform(ctx: &Ctx, what: Vec<Do>) -> Result<(), String> {
    let knot = |key| ctx.grains().grain::<dyn Knot>(key);
    for step in what {
        match step {
            Do::Meet(name, n) => {
                meeting(&name, n).wait().await;
            }
            Do::Await(name) => go(&name).notified().await,
            Do::Write(key, what) => told(knot(key).write(what).await)?,
            Do::Read(key, what) => told(knot(key).read(what).await)?,
            Do::Pass(place) => *PASSED.lock().unwrap().entry(place).or_default() += 1,
            Do::WriteUntil(key, what, told) => tokio::select! {
                ended = knot(key).write(what).into_future() => panic!("{ended:?} before {told}"),
                () = async { go(&told).notified().await } => {}
            },
            Do::Tell(name) => go(&name).notify_one(),
        }
    }
    Ok(())
}

impl Lifecycle for KnotGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        let key = ctx.key().to_string();
        if key.contains("calls-itself-when-it-comes") {
            perform(ctx, vec![read(&key)]).await.map_err(ActivationError::new)?;
        }
        Ok(())
    }

    async fn deactivate(&mut self, ctx: &Ctx, _: DeactivationReason) {
        let key = ctx.key().to_string();
        if key.contains("calls-itself-when-it-goes") {
            say(&key, perform(ctx, vec![read(&key)]).await);
        } else if let Some(other) = key.strip_prefix("when-it-goes-calls-") {
            say(&key, perform(ctx, vec![meet(&key, 2), write(other)]).await);
        }
    }
}

type Told = BTreeMap<String, Result<(), String>>;
static TOLD: LazyLock<Mutex<Told>> = LazyLock::new(Mutex::default);

fn say(key: &str, what: Result<(), String>) {
    TOLD.lock().unwrap().insert(key.to_owned(), what);
}

async fn until_told(key: &str) -> Result<(), String> {
    loop {
        if let Some(told) = TOLD.lock().unwrap().get(key) {
            return told.clone();
        }
        tokio::task::yield_now().await;
    }
}

#[grain]
impl Knot for KnotGrain {
    async fn write(&mut self, what: Vec<Do>) -> Result<(), String> {
        perform(&self.ctx, what).await
    }

    async fn read(&self, what: Vec<Do>) -> Result<(), String> {
        perform(&self.ctx, what).await
    }

    async fn rest(&mut self) {
        self.ctx.deactivate_on_idle();
    }

    async fn count(&mut self) -> u64 {
        self.runs += 1;
        tokio::task::yield_now().await;
        self.runs
    }
}

async fn silos(n: usize) -> Vec<Silo> {
    silos_over(&common::store(), n).await
}

async fn silos_over(store: &Arc<dyn emmer::store::SystemStore>, n: usize) -> Vec<Silo> {
    let mut silos = Vec::new();
    for _ in 0..n {
        let silo = Silo::builder()
            .store(store.clone())
            .gateway("127.0.0.1:0")
            .host::<dyn Knot, KnotGrain>()
            .on_terminate(|_| {});
        silos.push(silo.start().await.unwrap());
    }
    settle(&silos, n).await;
    silos
}

/// The grain `key`, active on this silo.
async fn on(silo: &Silo, key: &str) -> KnotRef {
    let knot = silo.grain::<dyn Knot>(key);
    knot.read(Vec::new()).await.unwrap();
    knot
}

/// The results of calls made at once, those that failed first.
async fn all<const N: usize>(
    calls: [emmer::calls::Call<KnotWriteArgs>; N],
) -> Vec<Result<(), String>> {
    let calls: Vec<_> =
        calls.into_iter().map(|call| tokio::spawn(async move { told(call.await) })).collect();
    let mut results = Vec::new();
    for call in calls {
        results.push(call.await.unwrap());
    }
    results.sort_by_key(Result::is_ok);
    results
}

/// Checks that one of the results is a deadlock that names these grains, and the others are not
/// deadlocks.
fn one_deadlock(results: &[Result<(), String>], names: &[&str]) {
    let (first, rest) = results.split_first().unwrap();
    let words = first.clone().unwrap_err();
    assert!(words.contains(": deadlock: "), "{words}");
    assert!(names.iter().all(|name| words.contains(&format!("knot/{name}"))), "{words}");
    assert!(rest.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crossing_calls_end_with_one_deadlock() {
    let silos = silos(1).await;
    let (a, b) = (on(&silos[0], "a").await, on(&silos[0], "b").await);
    let results = all([
        a.write(vec![meet("crossing", 2), write("b")]),
        b.write(vec![meet("crossing", 2), write("a")]),
    ])
    .await;
    one_deadlock(&results, &["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_cross_between_silos_end_with_one_deadlock() {
    let silos = silos(3).await;
    let keys = ["r0", "r1", "r2"];
    let mut knots = Vec::new();
    for (silo, key) in silos.iter().zip(keys) {
        knots.push(on(silo, key).await);
    }
    // Through a grain on the same silo, so that the circle has both kinds of waits.
    let through = |n: usize| {
        let inner = format!("i{n}");
        vec![meet("ring", 3), Do::Write(inner, vec![write(keys[(n + 1) % 3])])]
    };
    for (n, silo) in silos.iter().enumerate() {
        on(silo, &format!("i{n}")).await;
    }
    let results =
        all([knots[0].write(through(0)), knots[1].write(through(1)), knots[2].write(through(2))])
            .await;
    one_deadlock(&results, &["r0", "r1", "r2", "i0", "i1", "i2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_chain_that_comes_back_to_its_grain_ends_with_a_deadlock() {
    for n in [1, 3] {
        let silos = silos(n).await;
        let (home, away, far) = (&silos[0], &silos[n / 2], &silos[n - 1]);
        let a = on(home, "a").await;
        on(away, "b").await;
        on(far, "c").await;
        let back = vec![Do::Write("b".to_owned(), vec![Do::Read("c".to_owned(), vec![read("a")])])];
        one_deadlock(&[told(a.write(back).await)], &["a", "b", "c"]);
        one_deadlock(&[told(a.write(vec![read("a")]).await)], &["a"]);
        let up = vec![Do::Read("b".to_owned(), vec![write("a")])];
        one_deadlock(&[told(a.read(up).await)], &["a", "b"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shared_turn_that_comes_back_behind_a_writer_ends_with_a_deadlock() {
    for n in [1, 2] {
        let silos = silos(n).await;
        let a = on(&silos[0], "a").await;
        on(&silos[n - 1], "b").await;
        let (name, inside) = (format!("behind {n}"), format!("inside {n}"));
        let what = vec![
            meet(&inside, 2),
            Do::Await(name.clone()),
            Do::Read("b".to_owned(), vec![read("a")]),
        ];
        let reader = tokio::spawn({
            let a = a.clone();
            async move { told(a.read(what).await) }
        });
        meeting(&inside, 2).wait().await;
        // The writer has its place when the reader continues.
        let mut writer = Box::pin(a.write(Vec::new()).into_future());
        assert!(futures_poll(writer.as_mut()));
        let writer = tokio::spawn(writer);
        go(&name).notify_one();
        one_deadlock(&[reader.await.unwrap(), told(writer.await.unwrap())], &["a", "b"]);
    }
}

/// Polls once; whether it is pending.
fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hook_that_calls_its_own_grain_ends_with_a_deadlock() {
    let silos = silos(1).await;
    let client = silos[0].grains();
    let comes = client.grain::<dyn Knot>("calls-itself-when-it-comes");
    for _ in 0..2 {
        let failed = comes.read(Vec::new()).await.unwrap_err().to_string();
        assert!(failed.contains("deadlock: knot/calls-itself-when-it-comes"), "{failed}");
    }
    let goes = client.grain::<dyn Knot>("calls-itself-when-it-goes");
    goes.rest().await.unwrap();
    let failed = until_told("calls-itself-when-it-goes").await.unwrap_err();
    assert!(failed.contains("deadlock: knot/calls-itself-when-it-goes"), "{failed}");
    goes.read(Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hook_and_a_turn_that_wait_for_each_other_end_with_one_deadlock() {
    let silos = silos(1).await;
    let goes = on(&silos[0], "when-it-goes-calls-z").await;
    let z = on(&silos[0], "z").await;
    goes.rest().await.unwrap();
    let call = z.write(vec![meet("when-it-goes-calls-z", 2), write("when-it-goes-calls-z")]);
    let turn = told(call.await);
    let hook = until_told("when-it-goes-calls-z").await;
    let mut results = [turn, hook];
    results.sort_by_key(Result::is_ok);
    one_deadlock(&results, &["when-it-goes-calls-z", "z"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_was_given_up_is_no_part_of_a_circle() {
    for n in [1, 2] {
        let silos = silos(n).await;
        let a = on(&silos[0], "a").await;
        on(&silos[n - 1], "b").await;
        let (begun, late, late_too) =
            (format!("begun {n}"), format!("late {n}"), format!("late too {n}"));
        // A calls B and gives up. B continues and calls A, which is busy with something else and
        // ends.
        let goes = format!("b goes {n}");
        let b = vec![
            Do::Tell(goes.clone()),
            meet(&begun, 3),
            Do::Await(late.clone()),
            write("a"),
            meet(&late_too, 2),
        ];
        let what = vec![
            Do::WriteUntil("b".to_owned(), b, goes),
            meet(&begun, 3),
            Do::Await(format!("end {n}")),
        ];
        let call = tokio::spawn(async move { told(a.write(what).await) });
        meeting(&begun, 3).wait().await;
        go(&late).notify_one();
        // As long as it takes to find what only looks like a circle.
        tokio::time::sleep(secs(1)).await;
        go(&format!("end {n}")).notify_one();
        assert_eq!(call.await.unwrap(), Ok(()));
        meeting(&late_too, 2).wait().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_only_wait_for_long_end_well() {
    let silos = silos(2).await;
    let (a, _) = (on(&silos[0], "a").await, on(&silos[1], "b").await);
    let (inside, name) = ("waiting long", "waiting ends");
    let held = tokio::spawn(async move {
        told(
            a.write(vec![Do::Write(
                "b".to_owned(),
                vec![meet(inside, 2), Do::Await(name.to_owned())],
            )])
            .await,
        )
    });
    meeting(inside, 2).wait().await;
    let mut others = Vec::new();
    for n in 0..20 {
        let c = on(&silos[n % 2], &format!("c{n}")).await;
        let next = if n % 3 == 0 { "b" } else { "a" };
        others.push(tokio::spawn(async move { told(c.write(vec![write(next)]).await) }));
    }
    tokio::time::sleep(secs(1)).await;
    go(name).notify_one();
    assert_eq!(held.await.unwrap(), Ok(()));
    for other in others {
        assert_eq!(other.await.unwrap(), Ok(()));
    }
}

const GIVEN_UP: usize = 900;

/// Makes calls through each of the references, which know the way, and gives them up.
fn give_up(knots: &[KnotRef]) {
    let mut calls: Vec<_> = knots
        .iter()
        .cycle()
        .take(GIVEN_UP)
        .map(|knot| Box::pin(knot.count().into_future()))
        .collect();
    assert!(calls.iter_mut().all(|call| futures_poll(call.as_mut())));
}

async fn until_serving(silo: &Silo, n: u64) {
    while silo.statistics().calls_serving != n {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_its_caller_gave_up_does_not_begin_on_another_silo() {
    let store = common::store();
    let silos = silos_over(&store, 3).await;
    let far = on(&silos[2], "far").await;
    let outside = Client::builder().store(store.clone()).connect().await.unwrap();
    let clients = [silos[0].grains(), silos[1].grains(), outside.grains()];
    let knots: Vec<_> = clients.iter().map(|client| client.grain::<dyn Knot>("far")).collect();
    for knot in &knots {
        knot.read(Vec::new()).await.unwrap();
    }
    let held =
        tokio::spawn(
            async move { far.write(vec![meet("far", 2), Do::Await("far".to_owned())]).await },
        );
    meeting("far", 2).wait().await;
    give_up(&knots);
    // A call that waits on has its turn. A call that a deadline ends has none.
    let waits = tokio::spawn({
        let knot = knots[0].clone();
        async move { knot.count().await }
    });
    let late = knots[1].count().timeout(millis(50)).await.unwrap_err();
    assert!(matches!(late, CallError::Timeout { .. }), "{late}");
    until_serving(&silos[2], 1).await;
    until_serving(&silos[0], 0).await;
    go("far").notify_one();
    held.await.unwrap().unwrap();
    assert_eq!(waits.await.unwrap().unwrap(), 1, "nobody else has run");
    assert_eq!(knots[2].count().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_has_begun_runs_to_its_end_for_nobody() {
    let silos = silos(2).await;
    on(&silos[1], "far").await;
    let knot = silos[0].grains().grain::<dyn Knot>("far");
    let what = vec![meet("begun for nobody", 2), Do::Await("nobody".to_owned()), meet("nobody", 2)];
    let call = tokio::spawn(knot.write(what).into_future());
    meeting("begun for nobody", 2).wait().await;
    call.abort();
    until_serving(&silos[1], 1).await;
    go("nobody").notify_one();
    meeting("nobody", 2).wait().await;
    until_serving(&silos[1], 0).await;
    assert_eq!(knot.count().await.unwrap(), 1);
}

/// The call and its end travel together, so the turn has begun and suspended just before its silo
/// hears of the end.
#[tokio::test]
async fn a_call_that_is_given_up_as_it_begins_runs_to_its_end() {
    const CALLS: u64 = 50;
    let silos = silos(2).await;
    let client = silos[0].grains();
    for n in 0..CALLS {
        let (key, name) = (format!("short{n}"), format!("go on {n}"));
        on(&silos[1], &key).await;
        let knot = client.grain::<dyn Knot>(key);
        knot.read(Vec::new()).await.unwrap();
        let what = vec![
            Do::Pass("begun".to_owned()),
            Do::Await(name.clone()),
            Do::Pass("ended".to_owned()),
        ];
        let mut call = Box::pin(knot.write(what).into_future());
        assert!(futures_poll(call.as_mut()));
        drop(call);
        while passed("begun") <= n {
            tokio::task::yield_now().await;
        }
        go(&name).notify_one();
        // It waits for the call that was given up.
        assert_eq!(knot.count().await.unwrap(), 1);
        assert_eq!(passed("ended"), n + 1, "a turn was left half way");
    }
}
