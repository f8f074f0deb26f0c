//! Every grain is asked for its totals, and the answers are compared with the file's.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use emmer::{CallError, Client};
use emmer_example_flights::streams::{Streams, Target};
use emmer_example_flights::truth::Truth;
use emmer_example_flights::{Aircraft, AircraftTotals, Airport, AirportTotals};
use tokio::task::JoinSet;

use crate::exit::{Failure, Result};

/// Number of questions on their way at once.
const ASKERS: usize = 32;

/// Longest time for a grain to answer, all attempts together.
const PATIENCE: Duration = Duration::from_secs(30);

/// Totals of the cluster.
pub(super) struct Verdict {
    pub(super) cluster: Truth,
}

enum Totals {
    Airport(Arc<str>, AirportTotals),
    Aircraft(Arc<str>, AircraftTotals),
}

/// Asks every grain of `streams`.
pub(super) async fn verify(streams: &Arc<Streams>, client: &Arc<Client>) -> Result<Verdict> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut askers = JoinSet::new();
    for _ in 0..ASKERS {
        let (streams, client, next) = (streams.clone(), client.clone(), next.clone());
        askers.spawn(async move {
            let mut found = Vec::new();
            while let Some(stream) = streams.all().get(next.fetch_add(1, Ordering::Relaxed)) {
                found.push(ask(&client, stream.target()).await?);
            }
            Ok::<_, Failure>(found)
        });
    }
    let mut cluster = Truth::default();
    while let Some(found) = askers.join_next().await {
        for totals in found.map_err(Failure::other)?? {
            match totals {
                Totals::Airport(code, totals) => drop(cluster.airports.insert(code, totals)),
                Totals::Aircraft(tail, totals) => drop(cluster.aircraft.insert(tail, totals)),
            }
        }
    }
    Ok(Verdict { cluster })
}

async fn ask(client: &Client, target: &Target) -> Result<Totals> {
    let begun = Instant::now();
    loop {
        let answer: std::result::Result<_, CallError<Infallible>> = match target {
            Target::Airport(code) => {
                let totals =
                    client.grain::<dyn Airport>(&**code).totals().timeout(PATIENCE / 3).await;
                totals.map(|totals| Totals::Airport(code.clone(), totals))
            }
            Target::Aircraft(tail) => {
                let totals =
                    client.grain::<dyn Aircraft>(&**tail).totals().timeout(PATIENCE / 3).await;
                totals.map(|totals| Totals::Aircraft(tail.clone(), totals))
            }
        };
        match answer {
            Ok(totals) => return Ok(totals),
            Err(error) if begun.elapsed() > PATIENCE => {
                return Err(Failure::other(format!("{target} does not tell its totals: {error}")));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Verdict {
    /// The grains whose totals are not `truth`'s, each with both.
    pub(super) fn differing(&self, truth: &Truth) -> Vec<String> {
        let mut found = differences("airport", &self.cluster.airports, &truth.airports);
        found.extend(differences("aircraft", &self.cluster.aircraft, &truth.aircraft));
        found
    }
}

fn differences<T: PartialEq + std::fmt::Debug>(
    kind: &str,
    cluster: &BTreeMap<Arc<str>, T>,
    truth: &BTreeMap<Arc<str>, T>,
) -> Vec<String> {
    let wrong = |(key, right): (&Arc<str>, &T)| {
        let found = cluster.get(key);
        (found != Some(right))
            .then(|| format!("{kind} {key} holds {found:?} where the file says {right:?}"))
    };
    let unknown = |key: &&Arc<str>| !truth.contains_key(*key);
    let extra =
        cluster.keys().filter(unknown).map(|key| format!("{kind} {key} is not in the file"));
    truth.iter().filter_map(wrong).chain(extra).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_every_grain_that_differs() {
        let right =
            emmer_example_flights::file::read(emmer_example_flights::BUNDLED, Some(100)).unwrap();
        let truth = Truth::of(&right);
        let mut verdict = Verdict { cluster: truth.clone() };
        assert!(verdict.differing(&truth).is_empty());
        verdict.cluster.airports.entry("EWR".into()).or_default().miles += 1;
        verdict.cluster.airports.remove("ATL");
        verdict.cluster.aircraft.insert("N1".into(), AircraftTotals::default());
        let found = verdict.differing(&truth);
        assert_eq!(found.len(), 3);
        for name in ["airport EWR", "airport ATL holds None", "aircraft N1 is not in the file"] {
            assert!(found.iter().any(|line| line.starts_with(name)), "{name}: {found:?}");
        }
    }
}
