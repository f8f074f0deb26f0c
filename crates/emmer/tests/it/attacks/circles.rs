//! Circles of calls, and waits that only look like one.

use emmer::prelude::*;

use super::imp::*;
use super::rings::*;

/// Random call trees over few grains: every circle ends with Deadlock, quickly, and all other calls
/// succeed.
#[test]
fn random_circles_end() {
    for (threads, silos) in [(0, 1), (2, 1), (2, 3)] {
        run(threads, 120, async move {
            let store = format!("r1-{threads}-{silos}");
            let mut all = Vec::new();
            for _ in 0..silos {
                all.push(silo(&store).await);
            }
            let mut dice = Dice(threads as u64 * 7 + silos);
            for round in 0..2 {
                let mut calls = tokio::task::JoinSet::new();
                for n in 0..6 {
                    let client = all[n % all.len()].grains();
                    let long = 1 + dice.roll(4);
                    let path: Vec<String> = (0..long)
                        .map(|_| format!("{store}-{}-{}", round % 4, dice.roll(4)))
                        .collect();
                    let kind: Vec<u8> = (0..long).map(|_| dice.roll(4) as u8).collect();
                    let first =
                        client.grain::<dyn Ring>(format!("{store}-{}-{}", round % 4, dice.roll(4)));
                    let what = format!("{path:?} {kind:?}");
                    calls.spawn(async move {
                        let end = first.alone(path, kind).timeout(secs(12)).await;
                        (what, end)
                    });
                }
                while let Some(end) = calls.join_next().await {
                    let (what, end) = end.unwrap();
                    let word = match &end {
                        Ok(_) => "ok".to_owned(),
                        Err(CallError::App((maybe, text))) => {
                            format!("inner {maybe} {}", text.split([' ', '(']).next().unwrap())
                        }
                        Err(err) => format!("outer {} {}", err.maybe_executed(), err.code()),
                    };
                    let fine = word == "ok" || word.contains("deadlock") || word.contains("left");
                    assert!(fine, "{word}: {what} {end:?}");
                }
            }
            let statistics: Vec<_> = all.iter().map(|s| s.statistics().turns_waiting).collect();
            assert_eq!(statistics.iter().sum::<u64>(), 0);
            for silo in all {
                silo.stop().await.unwrap();
            }
        });
    }
}

/// Calls of a turn to its own grain, in every kind.
#[test]
fn a_grain_that_calls_itself() {
    run(2, 60, async {
        let (a, b) = (silo("r2").await, silo("r2").await);
        let outside = client("r2").await;
        for (at, client) in [a.grains(), b.grains(), outside.grains()].into_iter().enumerate() {
            for first in 0..4u8 {
                for second in 0..4u8 {
                    let key = format!("r2-{at}-{first}-{second}");
                    let g = client.grain::<dyn Ring>(key.clone());
                    let (path, kind) = (vec![key.clone()], vec![second]);
                    let end = match first {
                        0 => g.alone(path, kind).await,
                        1 => g.shared(path, kind).await,
                        2 => g.piece(path, kind).await,
                        3 => g.both(path, kind).await,
                        _ => g.spawned(path, kind).await,
                    };
                    let text = format!("{end:?}");
                    let circle = text.to_lowercase().contains("deadlock");
                    let fine = match (first, second) {
                        (2, _) | (1, 1) => end.is_ok(),
                        _ => circle,
                    };
                    assert!(fine, "{first} -> {second}: {text}");
                }
            }
        }
        b.stop().await.unwrap();
        a.stop().await.unwrap();
    });
}
