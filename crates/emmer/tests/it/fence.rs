//! The fence holds for every poll of a grain's own code: turns that begin, turns that continue, and
//! the hooks.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::sync::{Arc, Condvar, LazyLock, Mutex};

use emmer::membership::Config;
use emmer::prelude::*;
use tokio::sync::Semaphore;

use crate::common::{self, held::HeldStore, until_dead};

/// Messages of a test and its grain, by the grain's key.
#[derive(Default)]
struct Stage {
    log: Mutex<Vec<&'static str>>,
    /// A turn or hook continues when it gets a permit.
    go: Option<Semaphore>,
    /// The activate hook holds its thread until this is true.
    thread: (Mutex<bool>, Condvar),
}

static STAGES: LazyLock<Mutex<HashMap<String, Arc<Stage>>>> = LazyLock::new(Mutex::default);

fn stage(key: &str) -> Arc<Stage> {
    let new = || Arc::new(Stage { go: Some(Semaphore::new(0)), ..Stage::default() });
    STAGES.lock().unwrap().entry(key.to_owned()).or_insert_with(new).clone()
}

impl Stage {
    fn say(&self, what: &'static str) {
        self.log.lock().unwrap().push(what);
    }

    fn said(&self) -> Vec<&'static str> {
        self.log.lock().unwrap().clone()
    }

    async fn until_said(&self, what: &str) {
        while !self.said().contains(&what) {
            tokio::task::yield_now().await;
        }
    }

    async fn wait(&self) {
        self.go.as_ref().unwrap().acquire().await.unwrap().forget();
    }

    fn go(&self) {
        self.go.as_ref().unwrap().add_permits(1);
    }

    fn hold_thread(&self) {
        let mut free = self.thread.0.lock().unwrap();
        while !*free {
            free = self.thread.1.wait(free).unwrap();
        }
    }

    fn free_thread(&self) {
        *self.thread.0.lock().unwrap() = true;
        self.thread.1.notify_all();
    }
}

/// Reports its drop before its time.
struct Inside(Option<Arc<Stage>>);

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(stage) = self.0.take() {
            stage.say("dropped");
        }
    }
}

#[grain_interface(key = String)]
trait Actor {
    /// Begins, waits, continues.
    async fn play(&mut self);
    async fn rest(&mut self);
    async fn begin(&mut self);
}

#[derive(Grain)]
#[placement(prefer_local)]
struct ActorGrain {
    #[context]
    ctx: Ctx,
}

impl ActorGrain {
    fn key(&self) -> String {
        match self.ctx.key() {
            GrainKey::Text(key) => key.to_string(),
            other => other.to_string(),
        }
    }
}

impl Lifecycle for ActorGrain {
    async fn activate(&mut self, _: &Ctx) -> Result<(), ActivationError> {
        let (key, stage) = (self.key(), stage(&self.key()));
        if key.starts_with("waking") {
            stage.say("activating");
            stage.wait().await;
            stage.say("activated");
        }
        if key.starts_with("stopped") {
            stage.say("activating");
            stage.hold_thread();
            stage.say("activated");
        }
        Ok(())
    }

    async fn deactivate(&mut self, _: &Ctx, _: DeactivationReason) {
        let (key, stage) = (self.key(), stage(&self.key()));
        if key.starts_with("resting") {
            stage.say("deactivating");
            stage.wait().await;
            stage.say("deactivated");
        }
    }
}

#[grain]
impl Actor for ActorGrain {
    async fn play(&mut self) {
        let stage = stage(&self.key());
        let mut inside = Inside(Some(stage.clone()));
        stage.say("begun");
        stage.wait().await;
        inside.0 = None;
        stage.say("went on");
    }

    async fn rest(&mut self) {
        self.ctx.deactivate_on_idle();
    }

    async fn begin(&mut self) {
        stage(&self.key()).say("begun");
    }
}

fn builder(store: Arc<dyn emmer::store::SystemStore>) -> emmer::SiloBuilder {
    Silo::builder()
        .store(store)
        .configure(|options| options.membership = Config::fast())
        .host::<dyn Actor, ActorGrain>()
        .on_terminate(|_| {})
}

/// A silo whose fence can be closed, and the only other silo.
struct Pair {
    silo: Silo,
    other: Silo,
    store: Arc<HeldStore>,
}

impl Pair {
    async fn start() -> Self {
        let shared = common::store();
        let store = HeldStore::over(&shared);
        let other = builder(shared).start().await.unwrap();
        let silo = builder(store.clone()).start().await.unwrap();
        let pair = Self { silo, other, store };
        common::settle(std::slice::from_ref(&pair.silo), 2).await;
        pair
    }

    /// Takes everything away that confirms the silo, until its machine closes the fence.
    async fn close(&self) {
        self.store.hold(true);
        self.other.abort();
        while !self.silo.membership_statistics().fenced {
            tokio::task::yield_now().await;
        }
    }

    /// Gives it a table that confirms it.
    fn open(&self, stage: &Stage) {
        stage.say("opened");
        self.store.hold(false);
    }
}

/// Lets everything run that can.
async fn let_others_run() {
    for _ in 0..200 {
        tokio::spawn(tokio::task::yield_now()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_suspended_goes_on_only_when_the_fence_is_open() {
    let (pair, stage) = (Pair::start().await, stage("suspended"));
    let actor = pair.silo.grain::<dyn Actor>("suspended");
    let turn = tokio::spawn(actor.play().into_future());
    stage.until_said("begun").await;
    pair.close().await;
    stage.go();
    let_others_run().await;
    pair.open(&stage);
    turn.await.unwrap().unwrap();
    assert_eq!(stage.said(), ["begun", "opened", "went on"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activate_hook_goes_on_only_when_the_fence_is_open() {
    let (pair, stage) = (Pair::start().await, stage("waking"));
    let actor = pair.silo.grain::<dyn Actor>("waking");
    let turn = tokio::spawn(actor.begin().into_future());
    stage.until_said("activating").await;
    pair.close().await;
    stage.go();
    let_others_run().await;
    pair.open(&stage);
    turn.await.unwrap().unwrap();
    assert_eq!(stage.said(), ["activating", "opened", "activated", "begun"]);
}

/// As when the process is stopped in the middle of the hook: the fence has closed when it
/// continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_asks_the_fence_again_after_an_activation() {
    let (pair, stage) = (Pair::start().await, stage("stopped"));
    let actor = pair.silo.grain::<dyn Actor>("stopped");
    let turn = tokio::spawn(actor.begin().into_future());
    stage.until_said("activating").await;
    pair.close().await;
    stage.free_thread();
    stage.until_said("activated").await;
    let_others_run().await;
    pair.open(&stage);
    turn.await.unwrap().unwrap();
    assert_eq!(stage.said(), ["activating", "activated", "opened", "begun"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deactivate_hook_goes_on_only_when_the_fence_is_open() {
    let (pair, stage) = (Pair::start().await, stage("resting"));
    pair.silo.grain::<dyn Actor>("resting").rest().await.unwrap();
    stage.until_said("deactivating").await;
    pair.close().await;
    stage.go();
    let_others_run().await;
    pair.open(&stage);
    stage.until_said("deactivated").await;
    assert_eq!(stage.said(), ["deactivating", "opened", "deactivated"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_silo_that_was_aborted_are_dropped_where_they_stand() {
    let (pair, stage) = (Pair::start().await, stage("aborted"));
    let client = pair.silo.grains();
    let turn = tokio::spawn(client.grain::<dyn Actor>("aborted").play().into_future());
    stage.until_said("begun").await;
    let queued = tokio::spawn(client.grain::<dyn Actor>("aborted").begin().into_future());
    while pair.silo.longest_queues(1).is_empty() {
        tokio::task::yield_now().await;
    }
    pair.silo.abort();
    let failure = turn.await.unwrap().unwrap_err();
    assert!(matches!(failure, CallError::Unreachable { maybe_executed: true, .. }), "{failure}");
    stage.go();
    let failure = queued.await.unwrap().unwrap_err();
    assert!(!failure.maybe_executed(), "{failure}");
    let failure = client.grain::<dyn Actor>("aborted").begin().await.unwrap_err();
    assert!(matches!(failure, CallError::ShuttingDown { .. }), "{failure}");
    assert_eq!(stage.said(), ["begun", "dropped"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_met_its_limit_drops_its_turns_before_the_silo_is_dead() {
    let (shared, stage) = (common::store(), stage("limit"));
    let other = builder(shared.clone()).start().await.unwrap();
    let silo = builder(shared).configure(|options| options.shutdown_timeout = millis(200));
    let silo = silo.start().await.unwrap();
    common::settle(std::slice::from_ref(&silo), 2).await;
    let turn = tokio::spawn(silo.grain::<dyn Actor>("limit").play().into_future());
    stage.until_said("begun").await;
    let told = stage.clone();
    let left = silo.address();
    let watching = tokio::spawn(async move {
        until_dead(&other, left).await;
        told.say("dead");
    });
    silo.stop().await.unwrap();
    assert!(turn.await.unwrap().is_err());
    watching.await.unwrap();
    stage.go();
    let_others_run().await;
    assert_eq!(stage.said(), ["begun", "dropped", "dead"]);
}
