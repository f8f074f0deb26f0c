//! Long chains of calls, and circles that are long or hidden among many other waits.
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::process::Command;
use std::task::Poll;

use emmer::prelude::*;

use super::imp::run;

type Answer = Result<u64, String>;

#[grain_interface(key = String)]
pub trait Step {
    /// Calls the first of the path with the rest of it.
    async fn walk(&mut self, path: Vec<String>) -> Result<u64, String>;
    /// Waits for many that sleep, and in their midst for one that calls back.
    async fn wide(&mut self, many: u64) -> Result<u64, String>;
    async fn back(&mut self, to: String) -> Result<u64, String>;
    async fn sleep(&mut self, ms: u64) -> u64;
}

#[derive(Grain)]
struct StepGrain {
    #[context]
    ctx: Ctx,
}

fn told(result: Result<u64, CallError<String>>) -> Answer {
    result.map_err(|error| match error {
        CallError::App(text) => text,
        other => format!("{} {other}", other.code()),
    })
}

#[grain]
impl Step for StepGrain {
    async fn walk(&mut self, mut path: Vec<String>) -> Result<u64, String> {
        if path.is_empty() {
            return Ok(0);
        }
        let next = self.ctx.grains().grain::<dyn Step>(path.remove(0));
        told(next.walk(path).await).map(|n| n + 1)
    }
    async fn wide(&mut self, many: u64) -> Result<u64, String> {
        let GrainKey::Text(key) = self.ctx.key().clone() else {
            return Err("no text".to_owned());
        };
        let client = self.ctx.grains();
        let mut waits: Vec<Pin<Box<dyn Future<Output = Answer> + Send>>> = Vec::new();
        for n in 0..many {
            let call = client.grain::<dyn Step>(format!("{key}-{n}")).sleep(20_000).into_future();
            waits.push(Box::pin(async move { call.await.map_err(|error| error.to_string()) }));
        }
        let call =
            client.grain::<dyn Step>(format!("{key}-back")).back(key.to_string()).into_future();
        waits.insert(many as usize / 2, Box::pin(async move { told(call.await) }));
        // The first that ends ends it all.
        std::future::poll_fn(|cx| {
            let ended = waits.iter_mut().find_map(|wait| match wait.as_mut().poll(cx) {
                Poll::Ready(end) => Some(end),
                Poll::Pending => None,
            });
            ended.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
    async fn back(&mut self, to: String) -> Result<u64, String> {
        told(self.ctx.grains().grain::<dyn Step>(to).walk(Vec::new()).await)
    }
    async fn sleep(&mut self, ms: u64) -> u64 {
        tokio::time::sleep(millis(ms)).await;
        ms
    }
}

async fn silos(n: u64, store: &str) -> Vec<Silo> {
    let mut silos = Vec::new();
    for _ in 0..n {
        let silo = Silo::builder().store(format!("memory://{store}")).host::<dyn Step, StepGrain>();
        silos.push(
            silo.configure(|options| options.shutdown_timeout = secs(6)).start().await.unwrap(),
        );
    }
    silos
}

/// Walks over `n` grains; in a circle the last calls the first again.
async fn walk(silos: &[Silo], store: &str, n: usize, circle: bool) -> Answer {
    let mut path: Vec<_> = (1..n).map(|k| format!("{store}-{n}-{circle}-{k}")).collect();
    let first = format!("{store}-{n}-{circle}-0");
    if circle {
        path.push(first.clone());
    }
    told(silos[0].grains().grain::<dyn Step>(first).walk(path).timeout(secs(20)).await)
}

/// A circle among hundreds of ordinary waits.
#[test]
fn a_circle_among_many_waits_is_found() {
    for count in [1, 3] {
        run(2, 60, async move {
            let store = format!("d1-{count}");
            let silos = silos(count, &store).await;
            for many in [2, 40, 400] {
                let first = silos[0].grains().grain::<dyn Step>(format!("{store}-{many}"));
                let end = told(first.wide(many).timeout(secs(15)).await);
                assert!(
                    end.as_ref().is_err_and(|text| text.starts_with("deadlock")),
                    "{many}: {end:?}"
                );
            }
            for silo in silos {
                silo.abort();
            }
        });
    }
}

/// Walks of many grains on several silos: straight ones succeed, circles end with Deadlock.
fn walks(sizes: &'static [usize]) {
    run(2, 120, async {
        let store = format!("d2-{}", sizes[0]);
        let silos = silos(3, &store).await;
        for &n in sizes {
            assert_eq!(walk(&silos, &store, n, false).await, Ok(n as u64 - 1));
            let end = walk(&silos, &store, n, true).await;
            assert!(end.as_ref().is_err_and(|text| text.starts_with("deadlock")), "{n}: {end:?}");
        }
        for silo in silos {
            silo.stop().await.unwrap();
        }
    });
}

#[test]
fn circles_of_a_dozen_grains_are_found() {
    walks(&[2, 5, 8, 12]);
}

#[test]
fn circles_of_thirty_grains_are_found() {
    walks(&[22, 26, 30]);
}

/// Tells the child process of [`a_long_chain_harms_nobody`] how long its chain is.
const LENGTH: &str = "EMMER_TEST_CHAIN";

/// Body of the child process; nothing in the test run itself.
#[test]
fn long_chain_child() {
    let Ok(length) = std::env::var(LENGTH) else { return };
    run(2, 60, async move {
        let silos = silos(1, "d3").await;
        let end = walk(&silos, "d3", length.parse().unwrap(), false).await;
        println!("\nthe walk ended: {end:?}");
    });
}

/// A chain of calls, each of another grain, may fail; it must not end the process.
#[test]
fn a_long_chain_harms_nobody() {
    for length in [50, 60, 200] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attacks::deep::long_chain_child", "--nocapture"])
            .env(LENGTH, length.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("the walk ended: "),
            "{length} grains: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
