//! Grains that keep an order, and grains that call each other in every way.

use std::future::{Future, IntoFuture};
use std::sync::Mutex;

use emmer::prelude::*;

use super::imp::nap;

#[grain_interface(key = String)]
pub trait Line {
    async fn add(&mut self, n: u64);
    async fn add_later(&mut self, n: u64);
    async fn note(&self, n: u64);
    async fn list(&self) -> Vec<u64>;
}

#[derive(Grain)]
pub(crate) struct LineGrain {
    list: Mutex<Vec<u64>>,
}

#[grain]
impl Line for LineGrain {
    async fn add(&mut self, n: u64) {
        self.list.lock().unwrap().push(n);
    }
    async fn add_later(&mut self, n: u64) {
        self.list.lock().unwrap().push(n);
        nap(0).await;
    }
    async fn note(&self, n: u64) {
        self.list.lock().unwrap().push(n);
    }
    async fn list(&self) -> Vec<u64> {
        self.list.lock().unwrap().clone()
    }
}

/// Waits and calls in every combination.
#[grain_interface(key = String)]
pub trait Ring {
    /// An exclusive turn that calls the next of the path exclusively.
    async fn alone(&mut self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)>;
    async fn shared(&self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)>;
    async fn piece(
        this: Interleaved<Self>,
        path: Vec<String>,
        kind: Vec<u8>,
    ) -> Result<u64, (bool, String)>;
    async fn both(&mut self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)>;
    async fn spawned(&mut self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)>;
}

#[derive(Grain)]
pub(crate) struct RingGrain {
    #[context]
    ctx: Ctx,
}

pub(crate) fn go(
    ctx: &Ctx,
    mut path: Vec<String>,
    mut kind: Vec<u8>,
) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, (bool, String)>> + Send>> {
    if path.is_empty() {
        return Box::pin(async {
            nap(2000).await;
            Ok(1)
        });
    }
    let g = ctx.grains().grain::<dyn Ring>(path.remove(0));
    let call: std::pin::Pin<
        Box<dyn Future<Output = Result<u64, CallError<(bool, String)>>> + Send>,
    > = match kind.remove(0) {
        0 => Box::pin(g.alone(path, kind).into_future()),
        1 => Box::pin(g.shared(path, kind).into_future()),
        2 => Box::pin(g.piece(path, kind).into_future()),
        3 => Box::pin(g.both(path, kind).into_future()),
        _ => Box::pin(g.spawned(path, kind).into_future()),
    };
    Box::pin(async move {
        nap(1000).await;
        match call.await {
            Ok(n) => Ok(n + 1),
            Err(CallError::App(err)) => Err(err),
            Err(err) => Err((err.maybe_executed(), format!("{} {err:?}", err.code()))),
        }
    })
}

#[grain]
impl Ring for RingGrain {
    async fn alone(&mut self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)> {
        go(&self.ctx, path, kind).await
    }
    async fn shared(&self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)> {
        go(&self.ctx, path, kind).await
    }
    async fn piece(
        this: Interleaved<Self>,
        path: Vec<String>,
        kind: Vec<u8>,
    ) -> Result<u64, (bool, String)> {
        let ctx = this.read(|g| g.ctx.clone()).await.map_err(|l| (false, format!("left {l}")))?;
        let end = go(&ctx, path, kind).await;
        this.write(|_| ()).await.map_err(|l| (false, format!("left {l}")))?;
        end
    }
    async fn both(&mut self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)> {
        let (a, b) =
            tokio::join!(go(&self.ctx, path.clone(), kind.clone()), go(&self.ctx, path, kind));
        match (a, b) {
            (Ok(a), Ok(b)) => Ok(a.min(b)),
            (Err(e), _) | (_, Err(e)) => Err(e),
        }
    }
    async fn spawned(&mut self, path: Vec<String>, kind: Vec<u8>) -> Result<u64, (bool, String)> {
        tokio::spawn(go(&self.ctx, path, kind)).await.unwrap()
    }
}
