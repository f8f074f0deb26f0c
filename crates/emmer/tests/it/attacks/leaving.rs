//! Silos that leave under load.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emmer::prelude::*;

use super::imp::*;

/// Errors in the activations of grains on silos that have begun to leave.
fn begun_again(prefix: &str, round: u64) -> (usize, Vec<String>) {
    let mut bad = Vec::new();
    let mut shuts = 0;
    for key in 0..20 {
        let key = format!("{prefix}{key}");
        let events = LEDGER.events.lock().unwrap().remove(&key).unwrap_or_default();
        for (at, (t0, event)) in events.iter().enumerate() {
            if !event.contains("ShuttingDown") {
                continue;
            }
            shuts += 1;
            let number = event.split(' ').next().unwrap();
            let begun = events
                .iter()
                .find(|(_, e)| {
                    ["activate", "arrives"]
                        .iter()
                        .any(|how| e.starts_with(&format!("{number} {how} on")))
                })
                .unwrap();
            let silo = begun.1.split(" on ").nth(1).unwrap();
            let again =
                events[at..].iter().find(|(_, e)| e.contains("activate on") && e.contains(silo));
            if let Some((_, again)) = again {
                let second = again.split(' ').next().unwrap();
                let story: Vec<_> = events[at..]
                    .iter()
                    .filter(|(_, e)| !e.starts_with(&format!("{second} quick")))
                    .take(12)
                    .map(|(t, e)| format!("  +{:?} {e}", *t - *t0))
                    .collect();
                bad.push(format!("round {round} {key}:\n{}", story.join("\n")));
            }
        }
    }
    (shuts, bad)
}

async fn leave_one_after_another(name: &'static str, together: bool) {
    let a = silo(name).await;
    let c = silo(name).await;
    let outside = client(name).await;
    let clients = [a.grains(), outside.grains()];
    let (mut bad, mut shuts) = (Vec::new(), 0);
    for round in 0..8u64 {
        let b = silo(name).await;
        let over = Arc::new(AtomicBool::new(false));
        let mut work = Vec::new();
        for n in 0..60u64 {
            let (client, over) = (clients[n as usize % 2].clone(), Arc::clone(&over));
            work.push(tokio::spawn(async move {
                let mut dice = Dice(n + round * 1000);
                while !over.load(Ordering::Relaxed) {
                    let log = Log::default();
                    super::storm::one(
                        client.grain::<dyn Imp>(format!("{name}-{round}-{}", dice.roll(20))),
                        &mut dice,
                        &log,
                    )
                    .await;
                }
            }));
        }
        tokio::time::sleep(millis(50)).await;
        let new = silo(name).await;
        if together {
            let (x, y) = tokio::join!(b.stop(), new.stop());
            x.unwrap();
            y.unwrap();
        } else {
            b.stop().await.unwrap();
            LEDGER.event(&format!("{name}-{round}-0"), "second stop begins".to_owned());
            new.stop().await.unwrap();
        }
        tokio::time::sleep(millis(20)).await;
        over.store(true, Ordering::Relaxed);
        for w in work {
            w.await.unwrap();
        }
        let (n, mut more) = begun_again(&format!("{name}-{round}-"), round);
        shuts += n;
        bad.append(&mut more);
    }
    c.stop().await.unwrap();
    a.stop().await.unwrap();
    assert!(bad.is_empty(), "{} of {shuts}:\n{}", bad.len(), bad[..bad.len().min(3)].join("\n"));
}

/// No activation begins on a silo that deactivates its grains because it stops.
#[test]
fn a_silo_that_leaves_behind_another_takes_no_new_activations() {
    run(2, 100, leave_one_after_another("va", false));
}

/// Two silos leave together.
#[test]
fn silos_that_leave_together_take_no_new_activations() {
    run(2, 100, leave_one_after_another("vb", true));
}

#[grain_interface(key = String)]
pub trait Stopper {
    async fn stop_me(&mut self) -> u64;
    async fn block(&mut self, ms: u64) -> u64;
    async fn nap(&mut self, ms: u64) -> u64;
    async fn touch(&mut self) -> u64;
}

#[derive(Grain)]
struct StopperGrain {
    #[context]
    ctx: Ctx,
}

type Slot = std::sync::Mutex<std::collections::HashMap<String, Arc<Silo>>>;
static SILOS: std::sync::LazyLock<Slot> = std::sync::LazyLock::new(Slot::default);

impl Lifecycle for StopperGrain {
    async fn deactivate(&mut self, ctx: &Ctx, _reason: DeactivationReason) {
        let key = ctx.key().to_string();
        if key.contains("slowhook") {
            tokio::time::sleep(secs(100)).await;
        }
        if key.contains("blockhook") {
            std::thread::sleep(millis(700));
        }
        if key.contains("callhook") {
            // Another grain, its own grain, and one that was never there.
            for k in [key.replace("callhook", "other"), key.clone(), format!("{key}-new")] {
                let _ = ctx.grains().grain::<dyn Stopper>(k).touch().timeout(secs(3)).await;
            }
        }
        if key.contains("stophook") {
            let silo = SILOS.lock().unwrap().get(key.split('-').next().unwrap()).cloned();
            if let Some(silo) = silo {
                let _ = tokio::time::timeout(secs(20), silo.stop()).await;
            }
        }
    }
}

#[grain]
impl Stopper for StopperGrain {
    async fn stop_me(&mut self) -> u64 {
        let silo =
            SILOS.lock().unwrap()[self.ctx.key().to_string().split('-').next().unwrap()].clone();
        let _ = tokio::time::timeout(secs(40), silo.stop()).await;
        1
    }
    async fn block(&mut self, ms: u64) -> u64 {
        std::thread::sleep(millis(ms));
        1
    }
    async fn nap(&mut self, ms: u64) -> u64 {
        tokio::time::sleep(millis(ms)).await;
        1
    }
    async fn touch(&mut self) -> u64 {
        1
    }
}

async fn stopper(store: &str) -> Arc<Silo> {
    let silo = Silo::builder()
        .store(format!("memory://{store}"))
        .gateway("127.0.0.1:0")
        .configure(|o| {
            o.deactivation_timeout = millis(500);
            o.shutdown_timeout = secs(3);
        })
        .host::<dyn Stopper, StopperGrain>()
        .start()
        .await
        .unwrap();
    Arc::new(silo)
}

#[test]
fn hooks_that_hold_a_stop_up() {
    for (threads, what) in [
        (0, "slowhook"),
        (2, "slowhook"),
        (2, "blockhook"),
        (0, "callhook"),
        (2, "callhook"),
        (2, "stophook"),
        (0, "stophook"),
    ] {
        run(threads, 40, async move {
            let name = format!("v2{what}{threads}");
            let silo = stopper(&name).await;
            SILOS.lock().unwrap().insert(name.clone(), Arc::clone(&silo));
            for n in 0..5 {
                silo.grains()
                    .grain::<dyn Stopper>(format!("{name}-{what}-{n}"))
                    .touch()
                    .await
                    .unwrap();
            }
            silo.grain::<dyn Stopper>(format!("{name}-other-0")).touch().await.unwrap();
            let end = tokio::time::timeout(secs(20), silo.stop()).await;
            assert!(end.is_ok(), "{name}: stop hangs");
            SILOS.lock().unwrap().remove(&name);
        });
    }
}

#[test]
fn stops_from_odd_places() {
    for threads in [0, 2] {
        run(threads, 60, async move {
            let name = format!("v3t{threads}");
            let silo = stopper(&name).await;
            SILOS.lock().unwrap().insert(name.clone(), Arc::clone(&silo));
            // In a turn of its own grain.
            let end = tokio::time::timeout(
                secs(30),
                silo.grains()
                    .grain::<dyn Stopper>(format!("{name}-a"))
                    .stop_me()
                    .timeout(secs(25))
                    .into_future(),
            )
            .await;
            assert!(end.is_ok());
            tokio::time::timeout(secs(10), silo.stop()).await.expect("second stop hangs").unwrap();
            SILOS.lock().unwrap().remove(&name);
            // A stop that is dropped, then another one; many at once.
            let silo = stopper(&format!("{name}b")).await;
            let nap = tokio::spawn(silo.grain::<dyn Stopper>("n").nap(300).into_future());
            tokio::time::sleep(millis(20)).await;
            let _ = poll_some(Box::pin(silo.stop()), 1).await;
            tokio::time::sleep(millis(20)).await;
            assert!(
                silo.grains()
                    .grain::<dyn Stopper>("n2")
                    .touch()
                    .timeout(millis(300))
                    .await
                    .is_err()
            );
            let (a, b) = tokio::join!(silo.stop(), silo.stop());
            a.unwrap();
            b.unwrap();
            assert!(nap.await.unwrap().is_ok(), "a turn that had begun was not waited for");
            // abort during stop; stop after abort.
            let silo = stopper(&format!("{name}c")).await;
            let nap = tokio::spawn(silo.grain::<dyn Stopper>("n").nap(3000).into_future());
            tokio::time::sleep(millis(20)).await;
            let stop = tokio::spawn({
                let silo = Arc::clone(&silo);
                async move { silo.stop().await }
            });
            tokio::time::sleep(millis(20)).await;
            silo.abort();
            tokio::time::timeout(secs(20), stop)
                .await
                .expect("a stop hangs after abort")
                .unwrap()
                .unwrap();
            let end = tokio::time::timeout(secs(5), nap)
                .await
                .expect("a call hangs after abort")
                .unwrap();
            assert!(end.is_err_and(|e| e.maybe_executed()));
            tokio::time::timeout(secs(10), silo.stop())
                .await
                .expect("stop after abort hangs")
                .unwrap();
            assert!(matches!(
                silo.grain::<dyn Stopper>("n").touch().await,
                Err(CallError::ShuttingDown { .. })
            ));
        });
    }
}

struct Tag(Arc<()>);
static TAG: std::sync::LazyLock<Arc<()>> = std::sync::LazyLock::new(|| Arc::new(()));
impl Default for Tag {
    fn default() -> Self {
        Self(Arc::clone(&TAG))
    }
}

#[grain_interface(key = u64)]
pub trait Held {
    async fn hold(&mut self) -> u64;
    async fn long(&mut self) -> u64;
}
#[derive(Grain)]
struct HeldGrain {
    tag: Tag,
}
#[grain]
impl Held for HeldGrain {
    async fn hold(&mut self) -> u64 {
        Arc::strong_count(&self.tag.0) as u64
    }
    async fn long(&mut self) -> u64 {
        tokio::time::sleep(secs(60)).await;
        1
    }
}

/// In every way that a silo ends, its grains are dropped.
#[test]
fn the_grains_of_an_ended_silo_are_given_back() {
    for how in 0..4 {
        run(2, 60, async move {
            let silo = Silo::builder()
                .store(format!("memory://v4{how}"))
                .configure(|o| o.shutdown_timeout = secs(2))
                .host::<dyn Held, HeldGrain>()
                .start()
                .await
                .unwrap();
            let client = silo.grains();
            for n in 0..100 {
                client.grain::<dyn Held>(n).hold().await.unwrap();
            }
            let mut long = Vec::new();
            for n in 0..5 {
                long.push(tokio::spawn(client.grain::<dyn Held>(n).long().into_future()));
            }
            tokio::time::sleep(millis(50)).await;
            match how {
                0 => silo.stop().await.unwrap(),
                1 => silo.stop_now().await,
                2 => silo.abort(),
                _ => {
                    silo.abort();
                    drop(silo);
                }
            }
            for _ in 0..300 {
                if Arc::strong_count(&TAG) == 1 {
                    break;
                }
                tokio::time::sleep(millis(10)).await;
            }
            for l in long {
                assert!(tokio::time::timeout(secs(5), l).await.expect("hangs").unwrap().is_err());
            }
            assert_eq!(Arc::strong_count(&TAG) - 1, 0, "how {how}");
            drop(client);
        });
    }
}
