//! Thousands of calls that are dropped, cancelled and late at any moment, on grains that end at any
//! moment.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use emmer::prelude::*;
use tokio_util::sync::CancellationToken;

use super::imp::*;

/// Outcome that a caller heard.
pub(crate) fn outcome<T, E: std::fmt::Debug>(end: Option<Result<T, CallError<E>>>) -> Outcome {
    match end {
        None => Outcome::Dropped,
        Some(Ok(_)) | Some(Err(CallError::App(_))) => Outcome::Done,
        Some(Err(err)) => Outcome::Failed(err.maybe_executed(), format!("{}: {err:?}", err.code())),
    }
}

/// Makes a call and gives it up in one of several ways, or not.
macro_rules! ended {
    ($call:expr, $dice:expr) => {{
        let call = $call;
        match $dice.roll(8) {
            0 => outcome(poll_some(call, 1 + $dice.roll(4)).await),
            1 => {
                let us = $dice.roll(3000);
                let end = tokio::time::timeout(Duration::from_micros(us), call.into_future()).await;
                outcome(end.ok())
            }
            2 => outcome(Some(call.timeout(Duration::from_micros($dice.roll(4000))).await)),
            3 => {
                let token = CancellationToken::new();
                let fire = token.clone();
                let us = $dice.roll(2000);
                tokio::spawn(async move {
                    match us {
                        0..200 => tokio::task::yield_now().await,
                        us => tokio::time::sleep(Duration::from_micros(us)).await,
                    }
                    fire.cancel();
                });
                outcome(Some(call.cancel_on(token).await))
            }
            4 => {
                // A task that is aborted.
                let task = tokio::spawn(call.into_future());
                for _ in 0..$dice.roll(4) {
                    tokio::task::yield_now().await;
                }
                task.abort();
                outcome(task.await.ok())
            }
            _ => outcome(Some(call.timeout(secs(20)).await)),
        }
    }};
}

/// One call of any kind, given up in any way.
pub(crate) async fn one(grain: ImpRef, dice: &mut Dice, log: &Log) {
    let id = id();
    let us = dice.roll(4) * dice.roll(500);
    let (what, end) = match dice.roll(10) {
        0 => ("quick", ended!(grain.quick(id), dice)),
        1 => ("glance", ended!(grain.glance(id), dice)),
        2 => ("slow", ended!(grain.slow(id, us), dice)),
        3 => ("look", ended!(grain.look(id, us), dice)),
        4 => ("peek", ended!(grain.peek(id, us), dice)),
        5 => ("piece", ended!(grain.piece(id, us), dice)),
        6 if dice.roll(4) == 0 => ("boom", ended!(grain.boom(id, us), dice)),
        7 if dice.roll(2) == 0 => ("leave", ended!(grain.leave(id), dice)),
        8 => ("save", ended!(grain.save(id), dice)),
        _ => ("quick", ended!(grain.quick(id), dice)),
    };
    log.lock().unwrap().push((id, what, end));
}

/// Calls by `tasks` tasks, each making `each` calls.
async fn storm(
    clients: Vec<GrainFactory>,
    tasks: u64,
    each: u64,
    keys: u64,
    prefix: &'static str,
    log: &Log,
) {
    let mut all = Vec::new();
    for task in 0..tasks {
        let (client, log) = (clients[task as usize % clients.len()].clone(), Arc::clone(log));
        all.push(tokio::spawn(async move {
            let mut dice = Dice(seed() * 1000 + task);
            for _ in 0..each {
                let grain = client.grain::<dyn Imp>(format!("{prefix}{}", dice.roll(keys)));
                one(grain, &mut dice, &log).await;
            }
        }));
    }
    for task in all {
        task.await.unwrap();
    }
}

/// Afterwards every silo can be reached, and all counters are back at zero.
pub(crate) async fn all_well(clients: &[GrainFactory], silos: &[&Silo], keys: u64, prefix: &str) {
    for key in 0..keys {
        for client in clients {
            let id = id();
            let end = client
                .grain::<dyn Imp>(format!("{prefix}{key}"))
                .slow(id, 0)
                .timeout(secs(10))
                .await;
            assert!(end.is_ok(), "{prefix}{key} cannot be reached: {end:?}");
        }
    }
    let mut last = String::new();
    for _ in 0..300 {
        let s: Vec<_> = silos.iter().map(|silo| silo.statistics()).collect();
        if s.iter().all(|s| s.turns_waiting == 0 && s.calls_in_flight == 0 && s.calls_serving == 0)
        {
            return;
        }
        last = format!("{s:?}");
        tokio::time::sleep(millis(10)).await;
    }
    panic!("something is counted for ever: {last}");
}

/// `ATTACK_SEED`, for other storms.
fn seed() -> u64 {
    std::env::var("ATTACK_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

fn a_storm_on_one_silo(threads: usize, name: &'static str, prefix: &'static str) {
    run(threads, 100, async move {
        let log = Log::default();
        let silo = silo(name).await;
        storm(vec![silo.grains()], 60, 80, 7, prefix, &log).await;
        all_well(&[silo.grains()], &[&silo], 7, prefix).await;
        silo.stop().await.unwrap();
        judge(&log, prefix, false);
    });
}

#[test]
fn a_storm_on_one_silo_of_one_thread() {
    a_storm_on_one_silo(0, "s1", "s1-");
}

#[test]
fn a_storm_on_one_silo_of_two_threads() {
    a_storm_on_one_silo(2, "s2", "s2-");
}

#[test]
fn a_storm_on_three_silos_and_a_client() {
    run(2, 100, async {
        let log = Log::default();
        let (a, b, c) = (silo("s3").await, silo("s3").await, silo("s3").await);
        let outside = client("s3").await;
        let clients = vec![a.grains(), b.grains(), outside.grains(), c.grains()];
        storm(clients.clone(), 60, 60, 20, "s3-", &log).await;
        all_well(&clients, &[&a, &b, &c], 20, "s3-").await;
        a.stop().await.unwrap();
        b.stop().await.unwrap();
        c.stop().await.unwrap();
        judge(&log, "s3-", false);
    });
}

#[test]
fn a_storm_while_silos_leave_and_come() {
    run(2, 100, async {
        let log = Log::default();
        let (a, b, c) = (silo("s4").await, silo("s4").await, silo("s4").await);
        let outside = client("s4").await;
        let clients = vec![a.grains(), outside.grains()];
        let work = tokio::spawn({
            let (clients, log) = (clients.clone(), Arc::clone(&log));
            async move { storm(clients, 60, 80, 20, "s4-", &log).await }
        });
        for round in 0..4 {
            tokio::time::sleep(millis(50)).await;
            let new = silo("s4").await;
            if round == 0 {
                b.stop().await.unwrap();
            }
            new.stop().await.unwrap();
        }
        c.stop().await.unwrap();
        work.await.unwrap();
        all_well(&clients, &[&a], 20, "s4-").await;
        a.stop().await.unwrap();
        judge(&log, "s4-", false);
    });
}
