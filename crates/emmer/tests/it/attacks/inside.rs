//! Code inside a turn that tries to enter its own grain a second time, and turns that end their own
//! silo.
use std::collections::HashMap;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::task::{Context, Poll, Waker};

use emmer::GrainFactory;
use emmer::prelude::*;

use super::imp::run;

/// Polls a future a single time.
fn once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

static INSIDE: AtomicI64 = AtomicI64::new(0);
static TWICE: AtomicU64 = AtomicU64::new(0);

/// Code that holds the borrow of its grain. Only one grain is called at a time here.
struct Holds;

impl Holds {
    fn new() -> Self {
        if INSIDE.fetch_add(1, Ordering::SeqCst) > 0 {
            TWICE.fetch_add(1, Ordering::SeqCst);
        }
        Self
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An answer whose encoding and `Drop` call its own grain.
#[derive(Default)]
pub struct Sly(Option<(GrainFactory, String)>);

impl Sly {
    fn call(&self) {
        if let Some((client, key)) = &self.0 {
            let _ = once(client.grain::<dyn Inner>(key.clone()).enter().into_future());
        }
    }
}

impl serde::Serialize for Sly {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.call();
        serializer.serialize_u8(0)
    }
}

impl<'de> serde::Deserialize<'de> for Sly {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u8::deserialize(deserializer).map(|_| Self::default())
    }
}

impl Drop for Sly {
    fn drop(&mut self) {
        self.call();
    }
}

#[grain_interface(key = String)]
pub trait Inner {
    async fn enter(&mut self) -> u64;
    async fn look(&self) -> u64;
    async fn in_place(&mut self) -> u64;
    async fn in_pieces(this: Interleaved<Self>) -> Result<u64, String>;
    async fn while_it_changes(&mut self) -> u64;
    async fn sly(&mut self) -> Sly;
}

#[derive(Grain)]
struct InnerGrain {
    #[context]
    ctx: Ctx,
    #[state("n")]
    n: Persistent<u64>,
}

impl InnerGrain {
    fn name(&self) -> String {
        match self.ctx.key() {
            GrainKey::Text(key) => key.to_string(),
            other => other.to_string(),
        }
    }

    fn own(&self) -> InnerRef {
        self.ctx.grains().grain::<dyn Inner>(self.name())
    }
}

/// Calls a grain in both ways, and waits for neither.
fn knock(own: &InnerRef) {
    let _ = once(own.enter().into_future());
    let _ = once(own.look().into_future());
}

#[grain]
impl Inner for InnerGrain {
    async fn enter(&mut self) -> u64 {
        drop(Holds::new());
        1
    }
    async fn look(&self) -> u64 {
        drop(Holds::new());
        1
    }
    async fn in_place(&mut self) -> u64 {
        let _holds = Holds::new();
        knock(&self.own());
        1
    }
    async fn in_pieces(this: Interleaved<Self>) -> Result<u64, String> {
        let own = this.read(|inner| inner.own()).await.map_err(|left| left.to_string())?;
        let attack = || {
            let _holds = Holds::new();
            let _ = once(this.write(|_| drop(Holds::new())));
            let _ = once(own.enter().into_future());
        };
        this.write(|_| attack()).await.map_err(|left| left.to_string())?;
        this.read(|_| attack()).await.map_err(|left| left.to_string())?;
        Ok(1)
    }
    async fn while_it_changes(&mut self) -> u64 {
        let own = self.own();
        let _holds = Holds::new();
        self.n.modify(|_| knock(&own));
        1
    }
    async fn sly(&mut self) -> Sly {
        Sly(Some((self.ctx.grains().clone(), self.name())))
    }
}

/// Wherever the code of a grain calls its own grain, the grain is not entered a second time, and
/// continues afterwards.
#[test]
fn nobody_enters_a_grain_from_inside() {
    for threads in [0, 2] {
        run(threads, 60, async move {
            let start = || {
                let silo = Silo::builder().store(format!("memory://i1-{threads}"));
                silo.host::<dyn Inner, InnerGrain>().start()
            };
            let (a, b) = (start().await.unwrap(), start().await.unwrap());
            for client in [a.grains(), b.grains()] {
                for key in 0..6 {
                    let inner = client.grain::<dyn Inner>(format!("i1-{key}"));
                    inner.in_place().timeout(secs(10)).await.unwrap();
                    inner.in_pieces().timeout(secs(10)).await.unwrap();
                    inner.while_it_changes().timeout(secs(10)).await.unwrap();
                    drop(inner.sly().timeout(secs(10)).await.unwrap());
                    inner.enter().timeout(secs(10)).await.unwrap();
                }
            }
            a.stop().await.unwrap();
            b.stop().await.unwrap();
        });
    }
    assert_eq!(
        TWICE.load(Ordering::SeqCst),
        0,
        "a grain was entered while its own code was inside"
    );
}

static SILOS: LazyLock<Mutex<HashMap<String, Silo>>> = LazyLock::new(Mutex::default);

#[grain_interface(key = String)]
pub trait Ender {
    async fn end(&mut self, how: u8) -> u64;
}

#[derive(Grain)]
struct EnderGrain {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Ender for EnderGrain {
    async fn end(&mut self, how: u8) -> u64 {
        tokio::task::yield_now().await;
        let silo = SILOS.lock().unwrap().remove(&self.ctx.key().to_string()).unwrap();
        match how {
            0 => drop(silo),
            1 => silo.abort(),
            2 => silo.stop_now().await,
            3 => {
                let _ = once(silo.stop());
                drop(silo);
            }
            _ => std::thread::spawn(move || drop(silo)).join().unwrap(),
        }
        tokio::task::yield_now().await;
        1
    }
}

/// A turn that ends its own silo, in any way: its caller hears the truth, and a later call learns
/// that the silo is gone.
#[test]
fn a_turn_ends_its_own_silo() {
    for (threads, how) in [0, 2].into_iter().flat_map(|t| (0..5).map(move |how| (t, how))) {
        run(threads, 60, async move {
            let key = format!("i2-{threads}-{how}");
            let silo = Silo::builder()
                .store(format!("memory://{key}"))
                .configure(|options| options.shutdown_timeout = secs(3))
                .host::<dyn Ender, EnderGrain>();
            let silo = silo.start().await.unwrap();
            let ender = silo.grain::<dyn Ender>(key.clone());
            SILOS.lock().unwrap().insert(ender.grain_id().key().to_string(), silo);
            let end = ender.end(how).timeout(secs(30)).await;
            assert!(
                end.as_ref().map_or_else(CallError::maybe_executed, |n| *n == 1),
                "{key}: {end:?}"
            );
            if matches!(how, 1 | 2) {
                let later = ender.end(how).timeout(secs(30)).await;
                assert!(later.is_err_and(|error| !error.maybe_executed()), "{key}");
            }
        });
    }
}
