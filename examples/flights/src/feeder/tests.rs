//! The feeder against grains that fail in every way a cluster can.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::protocol::{Applied, unapplied};
use crate::truth::Truth;
use crate::{AircraftTotals, AirportTotals, ApplyError, Departure};

/// Pretended grains. Every `n`-th call fails; every second failure happens after the batch was
/// applied, every third one makes the grain forget its last batch (an activation older than its
/// state).
#[derive(Default)]
struct Shaky {
    every: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: u64,
    airports: BTreeMap<Arc<str>, [AirportTotals; 2]>,
    aircraft: BTreeMap<Arc<str>, [AircraftTotals; 2]>,
}

fn step<T: Clone>(
    kept: &mut [T; 2],
    forget: bool,
    applied: impl Fn(&T) -> u64,
    from: u64,
    batch: &[Departure],
    add: impl Fn(&mut T, &Departure),
) -> Result<u64, Failure> {
    if forget {
        kept[1] = kept[0].clone();
    }
    let fresh = unapplied(applied(&kept[1]), from, batch).map_err(|error| {
        let ApplyError::Gap { expected, .. } = error else { panic!("{error}") };
        Failure { expected: Some(expected), detail: "gap".into() }
    })?;
    kept[0] = kept[1].clone();
    fresh.iter().for_each(|d| add(&mut kept[1], d));
    Ok(applied(&kept[1]))
}

impl Sink for Shaky {
    async fn apply(
        &self,
        target: &Target,
        from: u64,
        batch: Vec<Departure>,
    ) -> Result<Applied, Failure> {
        tokio::task::yield_now().await;
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let fails = self.every > 0 && state.calls.is_multiple_of(self.every);
        let (late, forget) = (
            (state.calls / self.every.max(1)).is_multiple_of(2),
            state.calls.is_multiple_of(3) && fails,
        );
        let failure = || Err(Failure { expected: None, detail: "shaky".into() });
        if fails && !late {
            return failure();
        }
        let applied = match target {
            Target::Airport(code) => {
                let kept = state.airports.entry(code.clone()).or_default();
                step(kept, forget, |t| t.applied, from, &batch, |t, d| t.add(code, d))?
            }
            Target::Aircraft(tail) => {
                let kept = state.aircraft.entry(tail.clone()).or_default();
                step(kept, forget, |t| t.applied, from, &batch, AircraftTotals::add)?
            }
        };
        if fails { failure() } else { Ok(Applied { applied, silo: None }) }
    }
}

fn streams(rows: usize) -> Arc<Streams> {
    Arc::new(Streams::new(crate::file::read(crate::BUNDLED, Some(rows)).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn totals_are_exact_whatever_fails() {
    let streams = streams(3_000);
    let sink = Arc::new(Shaky { every: 4, ..Shaky::default() });
    let progress = Arc::new(Progress::default());
    feed(streams.clone(), sink.clone(), FeederOptions::default(), progress.clone()).await.unwrap();
    let state = sink.state.lock().unwrap();
    let airports: BTreeMap<_, _> =
        state.airports.iter().map(|(k, v)| (k.clone(), v[1].clone())).collect();
    let aircraft: BTreeMap<_, _> =
        state.aircraft.iter().map(|(k, v)| (k.clone(), v[1].clone())).collect();
    assert_eq!(Truth { airports, aircraft }, Truth::of(streams.departures()));
    let seen = progress.snapshot();
    assert_eq!(seen.applied, streams.deliveries());
    assert!(seen.failures > 100 && seen.rewinds > 0, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn gives_up_on_a_grain_that_never_answers() {
    let sink = Arc::new(Shaky { every: 1, ..Shaky::default() });
    struct Never(Arc<Shaky>);
    impl Sink for Never {
        async fn apply(
            &self,
            target: &Target,
            from: u64,
            batch: Vec<Departure>,
        ) -> Result<Applied, Failure> {
            if *target == Target::Airport("JFK".into()) {
                return Err(Failure { expected: None, detail: "nobody there".into() });
            }
            self.0
                .apply(target, from, batch)
                .await
                .or(Ok(Applied { applied: u64::MAX, silo: None }))
        }
    }
    let options = FeederOptions { callers: 4, ..FeederOptions::default() };
    let patience = options.give_up_after;
    let error =
        feed(streams(500), Arc::new(Never(sink)), options, Arc::default()).await.unwrap_err();
    let FeedError::GaveUp { target, attempts, waited, last } = error else { panic!("{error}") };
    assert_eq!((target, last.as_str()), (Target::Airport("JFK".into()), "nobody there"));
    assert!(waited >= patience && (100..200).contains(&attempts), "{attempts} in {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn measures_the_longest_gap_of_a_caller() {
    struct Once(Mutex<Option<Duration>>);
    impl Sink for Once {
        async fn apply(
            &self,
            _: &Target,
            from: u64,
            batch: Vec<Departure>,
        ) -> Result<Applied, Failure> {
            let pause = self.0.lock().unwrap().take();
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
                return Err(Failure { expected: None, detail: "slow".into() });
            }
            Ok(Applied { applied: from + batch.len() as u64, silo: None })
        }
    }
    let sink = Once(Mutex::new(Some(Duration::from_secs(7))));
    let options = FeederOptions::default();
    let expected = Duration::from_secs(7) + options.retry_min;
    let report = feed(streams(200), Arc::new(sink), options, Arc::default()).await.unwrap();
    assert!(report.longest_gap >= expected && report.longest_call >= expected, "{report:?}");
    assert!(report.longest_call <= report.elapsed && report.elapsed < 2 * expected, "{report:?}");
}
