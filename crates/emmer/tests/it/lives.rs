//! The life of an activation: whatever a grain's own code does, its silo stays whole, and no call
//! sees a half-done grain.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Waker};

use emmer::errors::TerminateReason;
use emmer::prelude::*;
use emmer::tables::SiloStatus;
use tokio::sync::Notify;

use crate::common::{self, held::HeldStore, settle};

/// Events that the grains report to the tests.
static SAID: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);
/// Signals by which the tests let them continue, by key.
static GO: LazyLock<Mutex<BTreeMap<String, Arc<Notify>>>> = LazyLock::new(Mutex::default);

fn go(key: &str) -> Arc<Notify> {
    GO.lock().unwrap().entry(key.to_owned()).or_default().clone()
}

fn said(what: &str) -> usize {
    SAID.lock().unwrap().iter().filter(|line| line.as_str() == what).count()
}

fn say(what: impl Into<String>) {
    SAID.lock().unwrap().push(what.into());
}

async fn until_said(what: &str) {
    while said(what) == 0 {
        tokio::task::yield_now().await;
    }
}

static INSTANCES: AtomicU64 = AtomicU64::new(1);

/// The number of an instance. The key of its grain names its fault.
struct Instance(u64);

impl Default for Instance {
    fn default() -> Self {
        Self(INSTANCES.fetch_add(1, Ordering::Relaxed))
    }
}

#[grain_interface(key = String)]
trait Fragile {
    async fn instance(&self) -> u64;
    async fn host(&self) -> String;
    async fn rest(&mut self);
    /// Waits until told, then panics.
    async fn fail_late(&mut self);
    /// Panics in place.
    async fn fail(&mut self);
    /// Fails while others run.
    async fn fail_together(&self);
    /// Begins and waits until told.
    async fn stay(&mut self);
    async fn set(&mut self, value: u64) -> Result<(), StateError>;
    async fn add(&mut self, n: u64) -> Result<u64, StateError>;
    /// Waits until told, then writes.
    async fn set_late(&mut self, value: u64) -> Result<(), StateError>;
    async fn get(&self) -> u64;
}

#[derive(Grain)]
#[placement(prefer_local)]
struct FragileGrain {
    #[context]
    ctx: Ctx,
    #[state("value")]
    value: Persistent<u64>,
    instance: Instance,
    bomb: Bomb,
}

/// Panics when it is dropped, if it is armed.
#[derive(Default)]
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0, "a bomb in a grain");
    }
}

impl FragileGrain {
    fn key(&self) -> String {
        self.ctx.key().to_string()
    }

    /// Waits until the test lets it continue.
    async fn wait(&self) {
        let go = go(&self.key());
        say(format!("{} inside", self.key()));
        go.notified().await;
    }
}

impl Lifecycle for FragileGrain {
    async fn activate(&mut self, _: &Ctx) -> Result<(), ActivationError> {
        let key = self.key();
        self.bomb.0 = key.contains("bomb");
        if key.contains("stillborn") {
            say(format!("{key} activates"));
            assert!(said(&format!("{key} activates")) > 1, "an activate hook of the test");
        }
        Ok(())
    }

    async fn deactivate(&mut self, _: &Ctx, reason: DeactivationReason) {
        let key = self.key();
        say(format!("{key} goes"));
        if let DeactivationReason::Broken(why) = reason {
            say(format!("{key} goes: {why}"));
        }
        assert!(!key.contains("hook"), "a deactivate hook of the test");
    }
}

#[grain]
impl Fragile for FragileGrain {
    async fn instance(&self) -> u64 {
        self.instance.0
    }

    async fn host(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }

    async fn rest(&mut self) {
        self.ctx.deactivate_on_idle();
    }

    async fn fail_late(&mut self) {
        self.wait().await;
        panic!("late");
    }

    async fn fail(&mut self) {
        panic!("in place");
    }

    async fn fail_together(&self) {
        panic!("together");
    }

    async fn stay(&mut self) {
        self.wait().await;
    }

    async fn set(&mut self, value: u64) -> Result<(), StateError> {
        self.value.set(value);
        self.value.write().await
    }

    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        self.value.modify(|value| *value += n);
        self.value.write().await?;
        Ok(*self.value)
    }

    async fn set_late(&mut self, value: u64) -> Result<(), StateError> {
        self.wait().await;
        self.value.set(value);
        self.value.write().await
    }

    async fn get(&self) -> u64 {
        *self.value
    }
}

async fn silo(store: &Arc<dyn emmer::store::SystemStore>) -> Silo {
    let silo = Silo::builder().store(store.clone()).host::<dyn Fragile, FragileGrain>();
    silo.on_terminate(|_| {}).start().await.unwrap()
}

async fn until_empty(silo: &Silo) {
    while silo.statistics().activations > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_deactivate_hook_or_a_drop_is_that_grains_own_affair() {
    let silo = silo(&common::store()).await;
    for key in ["hook 1", "bomb 1", "hook and bomb 1"] {
        let grain = silo.grain::<dyn Fragile>(key);
        let first = grain.instance().await.unwrap();
        grain.rest().await.unwrap();
        until_empty(&silo).await;
        assert!(grain.instance().await.unwrap() > first, "{key}");
        assert_eq!(said(&format!("{key} goes")), 1);
        grain.rest().await.unwrap();
        until_empty(&silo).await;
    }
    silo.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_stops_in_good_order_whatever_the_hooks_do() {
    let silo = silo(&common::store()).await;
    for n in 0..60 {
        let kind = ["well", "hook", "bomb"][n % 3];
        silo.grain::<dyn Fragile>(format!("stop {kind} {n}")).instance().await.unwrap();
    }
    silo.stop().await.unwrap();
    assert_eq!(silo.terminated().await, TerminateReason::Left);
    assert_eq!(silo.view().status_of(&silo.address()), Some(SiloStatus::Dead));
    for n in 0..60 {
        let kind = ["well", "hook", "bomb"][n % 3];
        assert_eq!(said(&format!("stop {kind} {n} goes")), 1, "{kind} {n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_silo_drops_its_grains_whatever_their_drop_does() {
    let silo = silo(&common::store()).await;
    for n in 0..20 {
        silo.grain::<dyn Fragile>(format!("abort bomb {n}")).instance().await.unwrap();
    }
    silo.abort();
    assert_eq!(silo.statistics().activations, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_enters_a_grain_whose_turn_panicked() {
    let silo = silo(&common::store()).await;
    let grain = silo.grain::<dyn Fragile>("panic");
    let broken = grain.instance().await.unwrap();
    let failing = tokio::spawn(grain.fail_late().into_future());
    until_said("panic inside").await;
    let mut queued = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        queued.spawn(silo.grain::<dyn Fragile>("panic").instance().into_future());
    }
    while silo.longest_queues(1).first().is_none_or(|queue| queue.waiting < 1_000) {
        tokio::task::yield_now().await;
    }
    go("panic").notify_one();
    let error = failing.await.unwrap().unwrap_err();
    assert!(matches!(&error, CallError::Panicked { message, .. } if message == "late"), "{error}");
    let mut seen = BTreeSet::new();
    while let Some(instance) = queued.join_next().await {
        seen.insert(instance.unwrap().unwrap());
    }
    for _ in 0..100 {
        seen.insert(grain.instance().await.unwrap());
    }
    assert!(!seen.contains(&broken) && seen.len() == 1, "{broken} {seen:?}");
    assert_eq!(said("panic goes: late"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_in_place_that_panic_leave_a_fresh_grain_to_the_next() {
    let silo = silo(&common::store()).await;
    let grain = silo.grain::<dyn Fragile>("in place");
    for round in 0..50 {
        let before = grain.instance().await.unwrap();
        let failed = if round % 2 == 0 { grain.fail().await } else { grain.fail_together().await };
        assert!(matches!(failed, Err(CallError::Panicked { .. })), "{failed:?}");
        assert!(grain.instance().await.unwrap() > before);
    }
    assert_eq!(silo.statistics().activations, 1);
}

/// Two clusters that share their grains' state: each has an activation of its own.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_a_value_that_is_stored_nowhere() {
    let store = common::store();
    let mut silos = Vec::new();
    for name in ["blue", "green"] {
        let silo = Silo::builder().store(store.clone()).cluster_id(ClusterId::new(name).unwrap());
        let silo = silo.configure(|options| options.service_id = ClusterId::new("both").ok());
        let silo = silo.host::<dyn Fragile, FragileGrain>().on_terminate(|_| {});
        silos.push(silo.start().await.unwrap());
    }
    let [blue, green] = [0, 1].map(|at| silos[at].grains().grain::<dyn Fragile>("etag"));
    blue.set(1).await.unwrap();
    assert_eq!(green.get().await.unwrap(), 1);
    let late = tokio::spawn(blue.set_late(13).into_future());
    until_said("etag inside").await;
    let mut queued = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        queued.spawn(silos[0].grains().grain::<dyn Fragile>("etag").get().into_future());
    }
    while silos[0].longest_queues(1).first().is_none_or(|queue| queue.waiting < 1_000) {
        tokio::task::yield_now().await;
    }
    green.set(2).await.unwrap();
    go("etag").notify_one();
    let error = late.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::App(StateError::EtagMismatch { .. })), "{error}");
    while let Some(value) = queued.join_next().await {
        assert_eq!(value.unwrap().unwrap(), 2);
    }
    assert_eq!(blue.add(1).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_addition_whose_write_failed_is_not_stored_with_the_next_one() {
    let shared = common::store();
    let store = HeldStore::over(&shared);
    let silo = silo(&(store.clone() as _)).await;
    let grain = silo.grain::<dyn Fragile>("sum");
    assert_eq!(grain.add(1).await.unwrap(), 1);
    store.refuse(Some("grain_state"));
    let error = grain.add(1).await.unwrap_err();
    assert!(
        matches!(error, CallError::App(StateError::Store { maybe_written: false, .. })),
        "{error}"
    );
    assert_eq!(grain.get().await.unwrap(), 1);
    store.refuse(None);
    assert_eq!(grain.add(1).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activation_that_panics_leaves_nothing_behind() {
    let store = common::store();
    let silos = [silo(&store).await, silo(&store).await];
    settle(&silos, 2).await;
    for n in 0..20 {
        let key = format!("stillborn bomb {n}");
        let error = silos[0].grains().grain::<dyn Fragile>(&key).host().await.unwrap_err();
        assert!(
            matches!(&error, CallError::Rejected { why, .. } if why.to_string().contains("of the test")),
            "{error}"
        );
        assert_eq!(silos[0].statistics().activations, 0);
        // No registration is left that would lead back to the first silo.
        let host = silos[1].grains().grain::<dyn Fragile>(&key).host().await.unwrap();
        assert_eq!(host, silos[1].address().to_string());
    }
}

/// Polls a future once, as a `select!` does whose other branch is ready.
fn poll_once(future: &mut (impl Future + Unpin)) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_kept_and_not_polled_holds_nobody_up() {
    let silo = silo(&common::store()).await;
    let grain = silo.grain::<dyn Fragile>("kept");
    let staying = tokio::spawn(grain.stay().into_future());
    until_said("kept inside").await;
    let mut kept: Vec<_> = (0..100).map(|_| grain.instance().into_future()).collect();
    assert!(kept.iter_mut().all(|call| !poll_once(call)));
    let mut writers: Vec<_> = (0..100).map(|_| grain.set(7).into_future()).collect();
    assert!(writers.iter_mut().all(|call| !poll_once(call)));
    let behind = tokio::spawn(grain.get().into_future());
    go("kept").notify_one();
    staying.await.unwrap().unwrap();
    assert_eq!(behind.await.unwrap().unwrap(), 0);
    // A caller that comes back later is served, too.
    assert!(kept.pop().unwrap().await.unwrap() > 0);
    writers.pop().unwrap().await.unwrap();
    silo.stop().await.unwrap();
    assert_eq!(said("kept goes"), 1);
}
