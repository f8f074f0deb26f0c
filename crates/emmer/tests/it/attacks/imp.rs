//! A grain that does whatever the attacker wants, and the ledger of what ran.

use std::collections::{HashMap, HashSet};
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use emmer::prelude::*;

use super::rings::{Line, LineGrain, Ring, RingGrain};

/// Calls that ran, over all silos of this process.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Number of times each call began.
    pub ran: Mutex<HashMap<u64, u32>>,
    /// Exclusive turns and shared turns inside each grain now.
    pub inside: Mutex<HashMap<String, (i64, i64)>>,
    /// Activations of each grain between `activate` and the end of `deactivate` or the drop.
    pub alive: Mutex<HashMap<String, i64>>,
    /// Violations.
    pub wrong: Mutex<Vec<String>>,
    /// The activation of each grain that began last.
    pub latest: Mutex<HashMap<String, u64>>,
    /// Events of each grain.
    pub events: Mutex<HashMap<String, Vec<(std::time::Instant, String)>>>,
    /// Activations whose grain has moved on.
    pub moved: Mutex<HashSet<u64>>,
    /// Hooks that ran for each grain.
    pub hooks: Mutex<HashMap<String, (u64, u64)>>,
}

pub(crate) static LEDGER: LazyLock<Ledger> = LazyLock::new(Ledger::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no other call of this process has.
pub(crate) fn id() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Ledger {
    pub(crate) fn runs(&self, id: u64) -> u32 {
        self.ran.lock().unwrap().get(&id).copied().unwrap_or(0)
    }
    pub(crate) fn wrong(&self, text: String) {
        self.wrong.lock().unwrap().push(text);
    }
    pub(crate) fn faults(&self) -> Vec<String> {
        self.wrong.lock().unwrap().clone()
    }
    pub(crate) fn event(&self, key: &str, text: String) {
        self.events
            .lock()
            .unwrap()
            .entry(key.to_owned())
            .or_default()
            .push((std::time::Instant::now(), text));
    }
    pub(crate) fn story(&self, key: &str) -> String {
        let events = self.events.lock().unwrap();
        let now = std::time::Instant::now();
        let list = &events[key];
        list[list.len().saturating_sub(25)..]
            .iter()
            .map(|(t, e)| format!("   -{:?} {e}\n", now - *t))
            .collect()
    }
    fn begin(&self, id: u64) {
        *self.ran.lock().unwrap().entry(id).or_default() += 1;
    }
}

/// A turn inside a grain; looks whether the borrow rules hold over all activations.
struct Inside {
    key: String,
    alone: bool,
}

impl Inside {
    fn new(key: &str, alone: bool) -> Self {
        let mut inside = LEDGER.inside.lock().unwrap();
        let slot = inside.entry(key.to_owned()).or_default();
        if alone {
            slot.0 += 1;
        } else {
            slot.1 += 1;
        }
        if slot.0 > 1 || (slot.0 == 1 && slot.1 > 0) {
            LEDGER
                .wrong(format!("{key}: {} exclusive and {} shared turns at once", slot.0, slot.1));
        }
        Self { key: key.to_owned(), alone }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = LEDGER.inside.lock().unwrap();
        let slot = inside.entry(self.key.clone()).or_default();
        if self.alone { slot.0 -= 1 } else { slot.1 -= 1 }
    }
}

/// Stands for one activation.
#[derive(Default)]
struct Alive(Option<String>, u64);

impl Alive {
    fn begin(&mut self, key: String) {
        let mut alive = LEDGER.alive.lock().unwrap();
        let n = alive.entry(key.clone()).or_default();
        *n += 1;
        if *n > 1 {
            LEDGER.wrong(format!("{key}: {n} activations at once\n{}", LEDGER.story(&key)));
        }
        drop(alive);
        self.0 = Some(key);
    }
    fn end(&mut self) {
        if let Some(key) = self.0.take() {
            LEDGER.event(&key, format!("{} ends", self.1));
            if LEDGER.moved.lock().unwrap().remove(&self.1) {
                return;
            }
            *LEDGER.alive.lock().unwrap().entry(key).or_default() -= 1;
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let moved = LEDGER.moved.lock().unwrap().contains(&self.1);
        if let Some(key) = self.0.as_ref().filter(|_| !moved) {
            LEDGER.event(key, format!("{} is dropped without its hook", self.1));
        }
        self.end();
    }
}

#[grain_interface(key = String)]
pub trait Imp {
    async fn quick(&mut self, id: u64) -> u64;
    async fn glance(&self, id: u64) -> u64;
    async fn slow(&mut self, id: u64, us: u64) -> u64;
    async fn look(&self, id: u64, us: u64) -> u64;
    #[always_interleave]
    async fn peek(&self, id: u64, us: u64) -> u64;
    async fn piece(this: Interleaved<Self>, id: u64, us: u64) -> Result<u64, String>;
    async fn boom(&mut self, id: u64, us: u64) -> u64;
    async fn leave(&mut self, id: u64) -> u64;
    async fn save(&mut self, id: u64) -> Result<u64, StateError>;
    async fn saved(&self) -> u64;
    /// Calls itself along a path of keys, then ends.
    async fn chain(&mut self, id: u64, path: Vec<String>, ms: u64) -> Result<u64, (bool, String)>;
}

#[derive(Grain)]
pub(crate) struct ImpGrain {
    #[context]
    ctx: Ctx,
    #[state("n")]
    n: Persistent<u64>,
    alive: Alive,
    /// The activation that has the grain.
    #[carry]
    number: u64,
}

impl ImpGrain {
    fn key(&self) -> String {
        self.ctx.key().to_string()
    }
    fn fresh(&self, what: &str) {
        let key = self.key();
        let latest = LEDGER.latest.lock().unwrap().get(&key).copied();
        if latest != Some(self.alive.1) {
            LEDGER.wrong(format!(
                "STALE {key}: {what} of {} ran after {latest:?} began\n{}",
                self.alive.1,
                LEDGER.story(&key)
            ));
        }
    }
}

pub(crate) async fn nap(us: u64) {
    match us {
        0 => tokio::task::yield_now().await,
        _ => tokio::time::sleep(Duration::from_micros(us)).await,
    }
}

impl Lifecycle for ImpGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        let key = ctx.key().to_string();
        LEDGER.hooks.lock().unwrap().entry(key.clone()).or_default().0 += 1;
        self.alive.1 = id();
        self.number = self.alive.1;
        LEDGER.event(&key, format!("{} activate on {:?}", self.alive.1, ctx.silo()));
        LEDGER.latest.lock().unwrap().insert(key.clone(), self.alive.1);
        self.alive.begin(key.clone());
        nap(0).await;
        LEDGER.event(&key, format!("{} is active", self.alive.1));
        Ok(())
    }
    async fn arrive(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        let key = ctx.key().to_string();
        self.alive = Alive(Some(key.clone()), id());
        LEDGER.moved.lock().unwrap().insert(self.number);
        LEDGER.event(&key, format!("{} arrives on {:?}", self.alive.1, ctx.silo()));
        self.number = self.alive.1;
        LEDGER.latest.lock().unwrap().insert(key, self.number);
        nap(0).await;
        Ok(())
    }
    async fn deactivate(&mut self, ctx: &Ctx, reason: DeactivationReason) {
        let key = ctx.key().to_string();
        LEDGER.event(&key, format!("{} deactivate {reason:?}", self.alive.1));
        self.fresh("deactivate, begun,");
        nap(0).await;
        LEDGER.hooks.lock().unwrap().entry(key).or_default().1 += 1;
        self.alive.end();
    }
}

#[grain]
impl Imp for ImpGrain {
    async fn quick(&mut self, id: u64) -> u64 {
        let _inside = Inside::new(&self.key(), true);
        LEDGER.event(&self.key(), format!("{} quick {id}", self.alive.1));
        self.fresh("quick");
        LEDGER.begin(id);
        id
    }
    async fn glance(&self, id: u64) -> u64 {
        let _inside = Inside::new(&self.key(), false);
        LEDGER.begin(id);
        id
    }
    async fn slow(&mut self, id: u64, us: u64) -> u64 {
        let _inside = Inside::new(&self.key(), true);
        LEDGER.event(&self.key(), format!("{} slow {id}", self.alive.1));
        LEDGER.begin(id);
        self.fresh("slow, begun,");
        nap(us).await;
        self.fresh("slow");
        id
    }
    async fn look(&self, id: u64, us: u64) -> u64 {
        let _inside = Inside::new(&self.key(), false);
        LEDGER.begin(id);
        self.fresh("look, begun,");
        nap(us).await;
        self.fresh("look");
        id
    }
    async fn peek(&self, id: u64, us: u64) -> u64 {
        let _inside = Inside::new(&self.key(), false);
        LEDGER.begin(id);
        self.fresh("peek, begun,");
        nap(us).await;
        self.fresh("peek");
        id
    }
    async fn piece(this: Interleaved<Self>, id: u64, us: u64) -> Result<u64, String> {
        LEDGER.begin(id);
        this.write(|imp| drop(Inside::new(&imp.key(), true)))
            .await
            .map_err(|left| left.to_string())?;
        nap(us).await;
        this.read(|imp| drop(Inside::new(&imp.key(), false)))
            .await
            .map_err(|left| left.to_string())?;
        Ok(id)
    }
    async fn boom(&mut self, id: u64, us: u64) -> u64 {
        let _inside = Inside::new(&self.key(), true);
        LEDGER.begin(id);
        nap(us).await;
        LEDGER.event(&self.key(), format!("{} booms", self.alive.1));
        panic!("boom on purpose");
    }
    async fn leave(&mut self, id: u64) -> u64 {
        let _inside = Inside::new(&self.key(), true);
        LEDGER.begin(id);
        self.ctx.deactivate_on_idle();
        id
    }
    async fn save(&mut self, id: u64) -> Result<u64, StateError> {
        let _inside = Inside::new(&self.key(), true);
        LEDGER.begin(id);
        self.n.modify(|n| *n += 1);
        self.n.write().await?;
        Ok(*self.n)
    }
    async fn saved(&self) -> u64 {
        *self.n
    }
    async fn chain(
        &mut self,
        id: u64,
        mut path: Vec<String>,
        ms: u64,
    ) -> Result<u64, (bool, String)> {
        let _inside = Inside::new(&self.key(), true);
        LEDGER.begin(id);
        if path.is_empty() {
            return Ok(id);
        }
        let next = self.ctx.grains().grain::<dyn Imp>(path.remove(0));
        match next.chain(id + 1, path, ms).timeout(millis(ms)).await {
            Ok(id) => Ok(id),
            Err(CallError::App(err)) => Err(err),
            Err(err) => Err((err.maybe_executed(), format!("{}: {err:?}", err.code()))),
        }
    }
}

/// End of a call for its caller.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done,
    #[allow(dead_code, reason = "read by whoever reads what failed")]
    Failed(bool, String),
    Dropped,
}

/// Small chance of its own.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Polls a future `polls` times at most, then drops it.
pub(crate) async fn poll_some<F: IntoFuture>(future: F, polls: u64) -> Option<F::Output> {
    let mut left = polls;
    let mut future = pin!(future.into_future());
    std::future::poll_fn(|cx| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            std::task::Poll::Ready(out) => std::task::Poll::Ready(Some(out)),
            std::task::Poll::Pending => {
                if left == 0 {
                    return std::task::Poll::Ready(None);
                }
                std::task::Poll::Pending
            }
        }
    })
    .await
}

/// One silo on a store of its own name.
pub(crate) async fn silo(store: &str) -> Silo {
    silo_with(store, |_| ()).await
}

pub(crate) async fn silo_with(
    store: &str,
    change: impl FnOnce(&mut emmer::options::SiloOptions),
) -> Silo {
    Silo::builder()
        .store(format!("memory://{store}"))
        .gateway("127.0.0.1:0")
        .configure(change)
        .host::<dyn Imp, ImpGrain>()
        .host::<dyn Line, LineGrain>()
        .host::<dyn Ring, RingGrain>()
        .start()
        .await
        .unwrap()
}

pub(crate) async fn client(store: &str) -> Client {
    Client::builder().store(format!("memory://{store}")).connect().await.unwrap()
}

/// Runs a test on a runtime of `threads` threads (0: the current one) with a time limit.
pub(crate) fn run<F: Future<Output = ()>>(threads: usize, limit: u64, test: F) {
    let runtime = match threads {
        0 => tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        n => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(n)
            .enable_all()
            .build()
            .unwrap(),
    };
    quiet();
    let ended = runtime.block_on(async { tokio::time::timeout(secs(limit), test).await });
    runtime.shutdown_timeout(secs(5));
    assert!(ended.is_ok(), "the test hung for {limit} s");
}

pub(crate) type Log = Arc<Mutex<Vec<(u64, &'static str, Outcome)>>>;

/// Compares callers' results with the executed calls, for grains whose keys begin with `prefix`:
/// all tests share the ledger.
pub(crate) fn judge(log: &Log, prefix: &str, cut: bool) {
    let mut bad = Vec::new();
    for (id, what, outcome) in log.lock().unwrap().iter() {
        let runs = LEDGER.runs(*id);
        let fine = match outcome {
            Outcome::Done => runs == 1,
            Outcome::Failed(false, _) => runs == 0,
            Outcome::Failed(true, _) | Outcome::Dropped => runs <= 1,
        };
        if !fine {
            bad.push(format!("{what} {id}: {outcome:?}, but it ran {runs} times"));
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad[..bad.len().min(20)].join("\n"));
    let mut faults = LEDGER.faults();
    faults.retain(|f| f.trim_start_matches("STALE ").starts_with(prefix));
    // A silo that is cut off still holds activations and turns, but no longer runs them.
    faults.retain(|f| !cut || f.starts_with("STALE"));
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults[..faults.len().min(20)].join("\n")
    );
}

/// Hides the panics that are made on purpose.
pub(crate) fn quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload_as_str().unwrap_or("without words");
            if !text.starts_with("boom on purpose") && text != "without words" {
                usual(info);
            }
        }));
    });
}
