//! State whose writes fail, are dropped, or are slow; in virtual time.
use emmer::prelude::*;
use emmer::test::{Failure, World};

#[grain_interface(key = String)]
pub trait Safe {
    async fn add(&mut self) -> Result<u64, StateError>;
    /// Writes, but gives up after so many milliseconds.
    async fn hasty(&mut self, ms: u64) -> bool;
    /// Polls a write once and drops it.
    async fn glimpse(&mut self) -> u64;
    async fn swallow(&mut self) -> String;
    async fn twice(&mut self) -> String;
    async fn total(&self) -> u64;
    async fn life(&self) -> u64;
    async fn clear(&mut self, ms: u64) -> bool;
}

#[derive(Grain)]
struct SafeGrain {
    #[state("total")]
    total: Persistent<u64>,
    life: Life,
}
struct Life(u64);
static LIVES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
impl Default for Life {
    fn default() -> Self {
        Self(LIVES.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
    }
}

#[grain]
impl Safe for SafeGrain {
    async fn add(&mut self) -> Result<u64, StateError> {
        self.total.modify(|t| *t += 1);
        self.total.write().await?;
        Ok(*self.total)
    }
    async fn hasty(&mut self, ms: u64) -> bool {
        self.total.modify(|t| *t += 1);
        matches!(tokio::time::timeout(millis(ms), self.total.write()).await, Ok(Ok(())))
    }
    async fn glimpse(&mut self) -> u64 {
        self.total.modify(|t| *t += 1);
        let _ = super::imp::poll_some(Box::pin(self.total.write()), 1).await;
        *self.total
    }
    async fn swallow(&mut self) -> String {
        self.total.modify(|t| *t += 1);
        format!("{:?}", self.total.write().await)
    }
    async fn twice(&mut self) -> String {
        self.total.modify(|t| *t += 1);
        let a = self.total.write().await;
        let b = self.total.write().await;
        format!("{a:?} then {b:?}")
    }
    async fn total(&self) -> u64 {
        *self.total
    }
    async fn life(&self) -> u64 {
        self.life.0
    }
    async fn clear(&mut self, ms: u64) -> bool {
        matches!(tokio::time::timeout(millis(ms), self.total.clear()).await, Ok(Ok(())))
    }
}

/// After a write that failed, no call sees the value that was in memory only.
#[emmer::test(seeds = 5)]
async fn writes_that_do_not_succeed(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Safe, SafeGrain>()).await;
    let client = cluster.client().await;
    for (n, how) in [Failure::Unavailable, Failure::Refused, Failure::Conflict, Failure::LostAnswer]
        .into_iter()
        .enumerate()
    {
        for kind in 0..3 {
            let g = client.grain::<dyn Safe>(format!("w{n}{kind}"));
            assert_eq!(g.add().await.unwrap(), 1);
            let life = g.life().await.unwrap();
            world.store().fail_next_write(&format!("w{n}{kind}"), how);
            let end = match kind {
                0 => format!("{:?}", g.add().await),
                1 => g.swallow().await.unwrap(),
                _ => g.twice().await.unwrap(),
            };
            let total = g.total().await.unwrap();
            let again = g.life().await.unwrap();
            assert!(
                life != again,
                "{how:?} {kind}: the activation went on after a write that failed: {end}"
            );
            let third = g.add().await.unwrap();
            assert_eq!(third, total + 1);
        }
    }
}

/// A write that is dropped half way has not succeeded either.
#[emmer::test(seeds = 5)]
async fn writes_that_are_dropped(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Safe, SafeGrain>()).await;
    let client = cluster.client().await;
    let mut stale = Vec::new();
    for kind in 0..3 {
        let g = client.grain::<dyn Safe>(format!("d{kind}"));
        assert_eq!(g.add().await.unwrap(), 1);
        let life = g.life().await.unwrap();
        world.store().be_slow(millis(500));
        let fine = match kind {
            0 => g.hasty(100).await.unwrap(),
            1 => {
                g.glimpse().await.unwrap();
                false
            }
            _ => g.clear(100).await.unwrap(),
        };
        assert!(!fine);
        world.store().recover();
        let again = g.life().await.unwrap();
        if life == again {
            stale.push(kind);
        }
        world.advance(secs(5)).await;
        g.add().await.unwrap();
    }
    assert!(stale.is_empty(), "the activation went on after a dropped write: {stale:?}");
}

/// A kill shows if a turn saw a total that was stored nowhere.
#[emmer::test]
async fn a_dropped_write_is_seen_by_nobody(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Safe, SafeGrain>()).await;
    let client = cluster.client().await;
    let g = client.grain::<dyn Safe>("k");
    assert_eq!(g.add().await.unwrap(), 1);
    world.store().be_slow(millis(500));
    assert!(!g.hasty(100).await.unwrap());
    world.store().recover();
    let seen = g.total().await.unwrap();
    world.advance(secs(5)).await;
    let host = (0..2).find(|n| cluster.node(*n).statistics().activations > 0).unwrap();
    cluster.kill(host);
    world.advance(secs(10)).await;
    let stored = g.total().await.unwrap();
    assert_eq!(seen, stored, "a turn saw a total that was stored nowhere");
}
