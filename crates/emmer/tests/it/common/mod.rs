//! Grains and clusters that the tests share.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test takes what it needs")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test support")]

pub mod held;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer::prelude::*;
use emmer::tables::{SiloAddress, SiloStatus};

/// An interface and its class. Several have the same method and differ in their placement.
#[cfg(feature = "test")]
macro_rules! class {
    ($interface:ident, $class:ident, $($placement:tt)*) => {
        #[grain_interface(key = u64)]
        trait $interface {
            async fn silo(&self) -> SiloAddress;
        }

        #[derive(Grain, Default)]
        $($placement)*
        struct $class {
            #[context]
            ctx: Option<Ctx>,
        }

        #[grain]
        impl $interface for $class {
            async fn silo(&self) -> SiloAddress {
                self.ctx.as_ref().unwrap().silo().unwrap()
            }
        }
    };
}
#[cfg(feature = "test")]
pub(crate) use class;

#[grain_interface(key = String)]
pub trait Counter {
    async fn add(&mut self, n: u64) -> Result<u64, StateError>;
    async fn total(&self) -> u64;
    async fn silo(&self) -> String;
    /// Waits for `millis` in an exclusive turn.
    async fn hold(&mut self, millis: u64);
    /// Calls `hold` of another counter, which may be this one.
    async fn hold_other(&mut self, other: String) -> Result<(), String>;
    async fn read_other(&self, other: String) -> Result<u64, String>;
    async fn fail(&mut self);
    async fn rest(&mut self);
}

#[derive(Grain)]
#[grain(idle = "2s")]
pub struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        self.total.modify(|t| *t += n);
        self.total.write().await?;
        Ok(*self.total)
    }

    async fn total(&self) -> u64 {
        *self.total
    }

    async fn silo(&self) -> String {
        self.ctx.silo().map(|s| s.to_string()).unwrap_or_default()
    }

    async fn hold(&mut self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    async fn hold_other(&mut self, other: String) -> Result<(), String> {
        self.ctx.grains().grain::<dyn Counter>(other).hold(1).await.map_err(|e| e.to_string())
    }

    async fn read_other(&self, other: String) -> Result<u64, String> {
        self.ctx.grains().grain::<dyn Counter>(other).total().await.map_err(|e| e.to_string())
    }

    async fn fail(&mut self) {
        panic!("as told");
    }

    async fn rest(&mut self) {
        self.ctx.deactivate_on_idle();
    }
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A store of its own for one test.
pub fn store() -> Arc<dyn emmer::store::SystemStore> {
    NEXT.fetch_add(1, Ordering::Relaxed);
    Arc::new(emmer::store::MemoryStore::new())
}

pub async fn silo(store: &Arc<dyn emmer::store::SystemStore>) -> Silo {
    Silo::builder()
        .store(store.clone())
        .gateway("127.0.0.1:0")
        .host::<dyn Counter, CounterGrain>()
        .on_terminate(|_| {})
        .start()
        .await
        .unwrap()
}

/// `n` Active silos that all know each other.
pub async fn cluster(n: usize) -> (Arc<dyn emmer::store::SystemStore>, Vec<Silo>) {
    let store = store();
    let mut silos = Vec::new();
    for _ in 0..n {
        silos.push(silo(&store).await);
    }
    settle(&silos, n).await;
    (store, silos)
}

/// Waits until each of `silos` sees `n` Active ones.
pub async fn settle(silos: &[Silo], n: usize) {
    for silo in silos {
        let mut view = silo.view();
        while view.active_count() != n {
            view = silo.view_after(view.version()).await;
        }
    }
}

/// Waits until `silo` sees `of` as Dead.
pub async fn until_dead(silo: &Silo, of: SiloAddress) {
    let mut view = silo.view();
    while view.status_of(&of) != Some(SiloStatus::Dead) {
        view = silo.view_after(view.version()).await;
    }
}
