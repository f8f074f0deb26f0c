//! Pictures as the pages read them: rows without names, silos by their places.
//!
//! `page/live.js` has the same order of fields.

use std::collections::HashMap;

use emmer_core::SiloAddress;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::{HotRow, Picture, SiloRow};

/// Number of changes of the membership in a picture.
const EVENTS_MAX: usize = 60;

/// Number of rows of a list in a picture.
const ROWS_MAX: usize = 200;

/// The places of the silos in a picture.
pub(super) struct Places(HashMap<SiloAddress, usize>);

impl Places {
    pub(super) fn of(picture: &Picture) -> Self {
        Self(picture.silos.iter().enumerate().map(|(at, row)| (row.silo, at)).collect())
    }

    /// Place of a silo. Its address for a silo that the picture does not have.
    fn at(&self, silo: &SiloAddress) -> Json {
        self.0.get(silo).map_or_else(|| json!(silo.to_string()), |at| json!(at))
    }
}

/// A number with as many digits as people read.
fn short(rate: f64) -> f64 {
    if rate >= 100.0 { rate.round() } else { (rate * 100.0).round() / 100.0 }
}

fn text(value: &impl Serialize) -> String {
    // Rows are plain values.
    serde_json::to_string(value).unwrap_or_default()
}

pub(super) fn base(picture: &Picture, places: &Places) -> String {
    let silos: Vec<_> = picture.silos.iter().map(|row| silo(row, places)).collect();
    let events = picture.events.iter().take(EVENTS_MAX);
    let events: Vec<_> = events
        .map(|event| json!([event.at_ms, event.silo.to_string(), event.name, event.words]))
        .collect();
    text(&json!({
        "cluster": picture.cluster,
        "view": picture.view,
        "trouble": picture.trouble,
        "silos": silos,
        "events": events,
    }))
}

fn silo(row: &SiloRow, places: &Places) -> Json {
    let list = |silos: &[SiloAddress]| silos.iter().map(|silo| places.at(silo)).collect::<Vec<_>>();
    let own = row.own.as_ref().map(|own| {
        json!([
            own.readiness,
            own.view,
            own.emmer,
            own.up_ms,
            own.cpu_percent,
            own.memory_percent,
            own.memory_bytes,
            own.activations,
            short(own.turns_per_second),
            short(own.refused_per_second),
            own.waiting,
            own.suspended,
            own.held_threads,
            own.in_flight,
            own.timers,
            own.reminders,
            short(own.missed_per_second),
            list(&own.probes),
        ])
    });
    json!([
        row.silo.to_string(),
        row.name,
        row.role,
        row.status.to_string(),
        row.duty.name(),
        list(&row.suspected_by),
        own,
    ])
}

pub(super) fn types(picture: &Picture) -> String {
    let rows = picture.types.iter().map(|row| {
        json!([
            row.grain_type,
            row.silos,
            row.activations,
            row.most,
            row.busy,
            short(row.activated_per_second),
            row.failed,
            row.bytes,
        ])
    });
    text(&rows.collect::<Vec<_>>())
}

pub(super) fn methods(picture: &Picture) -> String {
    let rows = picture.methods.iter().map(|row| {
        json!([
            row.grain_type,
            row.method,
            short(row.calls_per_second),
            short(row.own_errors_per_second),
            short(row.failures_per_second),
            row.calls,
            row.p50_ns,
            row.p99_ns,
            (row.share * 1_000.0).round() / 1_000.0,
            doubled(&row.buckets),
        ])
    });
    text(&rows.collect::<Vec<_>>())
}

/// Samples by powers of two: the exponent of the bucket's end, and the samples.
fn doubled(buckets: &[(u64, u64)]) -> Vec<(u32, u64)> {
    let mut out: Vec<(u32, u64)> = Vec::new();
    for (end, samples) in buckets {
        let exponent = end.checked_next_power_of_two().map_or(64, u64::trailing_zeros);
        match out.last_mut() {
            Some((last, sum)) if *last == exponent => *sum += samples,
            _ => out.push((exponent, *samples)),
        }
    }
    out
}

pub(super) fn hot(picture: &Picture, places: &Places) -> String {
    let rows = |rows: &[HotRow]| -> Vec<Json> {
        let row = |row: &HotRow| {
            json!([places.at(&row.silo), row.grain_type, row.key, short(row.per_second)])
        };
        rows.iter().take(ROWS_MAX).map(row).collect()
    };
    text(&json!({ "called": rows(&picture.called), "busy": rows(&picture.busy) }))
}

pub(super) fn turns(picture: &Picture, places: &Places) -> String {
    let turns = picture.turns.iter().take(ROWS_MAX).map(|row| {
        let turn = &row.turn;
        json!([
            places.at(&row.silo),
            turn.grain_type,
            turn.key.to_string(),
            turn.method,
            turn.age_ms,
            turn.caller,
            turn.chain,
            turn.waits_for,
        ])
    });
    let threads = picture.threads.iter().take(ROWS_MAX).map(|(silo, held)| {
        json!([places.at(silo), held.thread, held.method, held.grain, held.held_ms])
    });
    text(&json!({
        "turns": turns.collect::<Vec<_>>(),
        "threads": threads.collect::<Vec<_>>(),
    }))
}

pub(super) fn queues(picture: &Picture, places: &Places) -> String {
    let rows = picture.queues.iter().take(ROWS_MAX);
    let rows = rows.map(|row| json!([places.at(&row.silo), row.grain_type, row.key, row.waiting]));
    text(&rows.collect::<Vec<_>>())
}

pub(super) fn reminders(picture: &Picture, places: &Places) -> String {
    let rows = picture.reminders.iter().take(ROWS_MAX).map(|row| {
        let due = &row.due;
        json!([
            places.at(&row.silo),
            due.grain_type,
            due.key.to_string(),
            due.name,
            due.next,
            due.in_ms,
            due.failed,
            due.fired,
            due.missed,
        ])
    });
    text(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_summed_by_powers_of_two() {
        let buckets = [(100, 1), (128, 2), (129, 4), (1_000_000, 8), (u64::MAX, 1)];
        assert_eq!(doubled(&buckets), [(7, 3), (8, 4), (20, 8), (64, 1)]);
        assert_eq!((short(0.127), short(12_345.6)), (0.13, 12_346.0));
    }
}
