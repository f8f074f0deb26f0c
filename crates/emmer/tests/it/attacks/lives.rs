//! Panics in every place of a grain's life.

use std::future::IntoFuture;
use std::sync::Mutex;

use emmer::prelude::*;
use serde::{Deserialize, Serialize};

use super::imp::run;

/// A value that panics at a chosen moment of its travel.
#[derive(Default, Debug)]
pub struct Bomb(pub u8);

impl Serialize for Bomb {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        assert!(self.0 != 1, "boom on purpose: encode");
        if self.0 == 3 {
            return Err(serde::ser::Error::custom("will not be encoded"));
        }
        s.serialize_u8(self.0)
    }
}
impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let n = u8::deserialize(d)?;
        assert!(n != 2, "boom on purpose: decode");
        if n == 4 {
            return Err(serde::de::Error::custom("will not be decoded"));
        }
        Ok(Self(n))
    }
}
impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 == 5 && !std::thread::panicking() {
            panic!("boom on purpose: drop of a value");
        }
    }
}

/// A panic whose own payload panics when it is dropped.
struct Payload;
impl Drop for Payload {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("boom on purpose: drop of the payload");
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum Where {
    #[default]
    Nowhere,
    Make,
    Activate,
    ActivateLater,
    Deactivate,
    DeactivateLater,
    Drop,
    DropAndDeactivate,
    ActivateErr,
}
static WHERE: Mutex<Where> = Mutex::new(Where::Nowhere);
fn at(place: Where) -> bool {
    *WHERE.lock().unwrap() == place
}
fn arm(place: Where) {
    *WHERE.lock().unwrap() = place;
}

struct Fragile(#[allow(unused)] u8);
impl Default for Fragile {
    fn default() -> Self {
        assert!(!at(Where::Make), "boom on purpose: make");
        Self(0)
    }
}
impl Drop for Fragile {
    fn drop(&mut self) {
        if (at(Where::Drop) || at(Where::DropAndDeactivate)) && !std::thread::panicking() {
            panic!("boom on purpose: drop of the grain");
        }
    }
}

#[grain_interface(key = String)]
pub trait Frail {
    async fn quick(&mut self) -> u64;
    async fn glance(&self) -> u64;
    async fn wait(&mut self, ms: u64) -> u64;
    async fn panic_now(&mut self, how: u8);
    async fn panic_later(&mut self, how: u8);
    async fn panic_shared(&self, how: u8, ms: u64);
    async fn panic_piece(this: Interleaved<Self>, how: u8);
    async fn bomb(&mut self, bomb: Bomb) -> Bomb;
    async fn make_bomb(&self, n: u8) -> Bomb;
    async fn bomb_err(&mut self, n: u8) -> Result<(), Bomb>;
    async fn leave(&mut self);
}

#[derive(Grain)]
struct FrailGrain {
    #[context]
    ctx: Ctx,
    #[allow(unused)]
    fragile: Fragile,
    n: u64,
}

fn explode(how: u8) {
    match how {
        0 => panic!("boom on purpose"),
        1 => std::panic::panic_any(17u64),
        2 => std::panic::panic_any(Payload),
        3 => panic!("boom on purpose {}", "x".repeat(100_000)),
        _ => drop(Bomb(5)),
    }
}

impl Lifecycle for FrailGrain {
    async fn activate(&mut self, _ctx: &Ctx) -> Result<(), ActivationError> {
        assert!(!at(Where::Activate), "boom on purpose: activate");
        tokio::task::yield_now().await;
        assert!(!at(Where::ActivateLater), "boom on purpose: activate later");
        if at(Where::ActivateErr) {
            return Err(ActivationError::new("no thanks"));
        }
        Ok(())
    }
    async fn deactivate(&mut self, _ctx: &Ctx, _reason: DeactivationReason) {
        assert!(
            !(at(Where::Deactivate) || at(Where::DropAndDeactivate)),
            "boom on purpose: deactivate"
        );
        tokio::task::yield_now().await;
        assert!(!at(Where::DeactivateLater), "boom on purpose: deactivate later");
    }
}

#[grain]
impl Frail for FrailGrain {
    async fn quick(&mut self) -> u64 {
        self.n += 1;
        self.n
    }
    async fn glance(&self) -> u64 {
        self.n
    }
    async fn wait(&mut self, ms: u64) -> u64 {
        tokio::time::sleep(millis(ms)).await;
        self.n += 1;
        self.n
    }
    async fn panic_now(&mut self, how: u8) {
        self.n += 1;
        explode(how);
    }
    async fn panic_later(&mut self, how: u8) {
        tokio::time::sleep(millis(5)).await;
        explode(how);
    }
    async fn panic_shared(&self, how: u8, ms: u64) {
        tokio::time::sleep(millis(ms)).await;
        explode(how);
    }
    async fn panic_piece(this: Interleaved<Self>, how: u8) {
        let _ = this
            .write(|g| {
                g.n += 1;
                explode(how);
            })
            .await;
    }
    async fn bomb(&mut self, bomb: Bomb) -> Bomb {
        self.n += 1;
        drop(bomb);
        Bomb(0)
    }
    async fn make_bomb(&self, n: u8) -> Bomb {
        Bomb(n)
    }
    async fn bomb_err(&mut self, n: u8) -> Result<(), Bomb> {
        self.n += 1;
        Err(Bomb(n))
    }
    async fn leave(&mut self) {
        self.ctx.deactivate_on_idle();
    }
}

async fn start(store: &str) -> Silo {
    Silo::builder()
        .store(format!("memory://{store}"))
        .gateway("127.0.0.1:0")
        .configure(|o| o.response_timeout = secs(5))
        .host::<dyn Frail, FrailGrain>()
        .start()
        .await
        .unwrap()
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn panics_in_every_place_of_a_life() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    for threads in [0, 2] {
        run(threads, 60, async move {
            let silo = start(&format!("l1-{threads}")).await;
            let outside =
                Client::builder().store(format!("memory://l1-{threads}")).connect().await.unwrap();
            for (place, client) in [silo.grains(), outside.grains()].into_iter().enumerate() {
                for what in [Where::Make, Where::Activate, Where::ActivateLater, Where::ActivateErr]
                {
                    let g = client.grain::<dyn Frail>(format!("{place}{what:?}"));
                    arm(what);
                    for _ in 0..3 {
                        let err = g.quick().await.unwrap_err();
                        assert!(matches!(err, CallError::Rejected { .. }), "{what:?}: {err:?}");
                    }
                    arm(Where::Nowhere);
                    assert_eq!(g.quick().await.unwrap(), 1, "{what:?}");
                }
                for what in [
                    Where::Deactivate,
                    Where::DeactivateLater,
                    Where::Drop,
                    Where::DropAndDeactivate,
                ] {
                    let g = client.grain::<dyn Frail>(format!("{place}{what:?}"));
                    arm(what);
                    for _ in 0..3 {
                        assert_eq!(g.quick().await.unwrap(), 1, "{what:?}");
                        g.leave().await.unwrap();
                        // The grain goes, and comes back.
                        let n = g.quick().await.unwrap();
                        assert_eq!(n, 1, "{what:?}");
                        g.leave().await.unwrap();
                    }
                    arm(Where::Nowhere);
                    assert!(g.glance().await.is_ok());
                }
                for how in 0..5 {
                    let g = client.grain::<dyn Frail>(format!("{place}how{how}"));
                    for round in 0..5 {
                        g.quick().await.unwrap();
                        let waiting = tokio::spawn(g.wait(30).into_future());
                        tokio::task::yield_now().await;
                        let err = match round {
                            0 => g.panic_now(how).await.unwrap_err(),
                            1 => g.panic_later(how).await.unwrap_err(),
                            2 => g.panic_shared(how, 1).await.unwrap_err(),
                            3 => g.panic_shared(how, 0).await.unwrap_err(),
                            _ => g.panic_piece(how).await.unwrap_err(),
                        };
                        assert!(matches!(err, CallError::Panicked { .. }), "{err:?}");
                        waiting.await.unwrap().unwrap();
                        let n = g.glance().await.unwrap();
                        assert!(n <= 1, "how {how} round {round}: {n}");
                    }
                }
                if client.silo().is_none() {
                    let unreadable =
                        client.grain::<dyn Frail>("unreadable").make_bomb(2).await.unwrap_err();
                    assert!(
                        matches!(unreadable, CallError::Codec { maybe_executed: true, .. }),
                        "{unreadable}"
                    );
                }
                for n in 1..6u8 {
                    let g = client.grain::<dyn Frail>(format!("{place}bomb{n}"));
                    // A value of the caller's own may panic in the caller's own task.
                    let heard = tokio::spawn(g.bomb(Bomb(n)).into_future()).await;
                    if let Ok(Err(err)) = heard {
                        assert!(
                            err.maybe_executed() || g.glance().await.unwrap() == 0,
                            "{err:?} ran"
                        );
                    }
                    if n != 5 {
                        let _ = tokio::spawn(g.make_bomb(n).into_future()).await;
                        let _ = tokio::spawn(g.bomb_err(n).into_future()).await;
                    }
                    assert!(g.quick().await.is_ok());
                }
            }
            silo.stop().await.unwrap();
            let s = silo.statistics();
            assert_eq!((s.activations, s.activated), (0, s.deactivated));
        });
    }
}

#[test]
fn a_stop_with_panicking_hooks() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    for what in [Where::Deactivate, Where::DeactivateLater, Where::Drop, Where::DropAndDeactivate] {
        run(2, 20, async move {
            let silo = start(&format!("l2-{what:?}")).await;
            for n in 0..20 {
                silo.grain::<dyn Frail>(n.to_string()).quick().await.unwrap();
            }
            arm(what);
            let calls: Vec<_> = (0..20)
                .map(|n| {
                    tokio::spawn(
                        silo.grains()
                            .grain::<dyn Frail>(n.to_string())
                            .panic_later(0)
                            .into_future(),
                    )
                })
                .collect();
            tokio::task::yield_now().await;
            tokio::time::timeout(secs(8), silo.stop()).await.unwrap().unwrap();
            arm(Where::Nowhere);
            for call in calls {
                let end = call.await.unwrap().unwrap_err();
                assert!(
                    matches!(end, CallError::Panicked { .. }) || !end.maybe_executed(),
                    "{end:?}"
                );
            }
            assert_eq!(silo.statistics().activations, 0);
            assert!(silo.has_ended());
        });
    }
}
