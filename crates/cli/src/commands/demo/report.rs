//! The report at the end: the cluster's totals and the file's, the history, the numbers.

use std::sync::Arc;

use emmer_example_flights::AirportTotals;
use emmer_example_flights::truth::Truth;

use super::input::Input;
use super::play::{Play, Played};
use super::screen::Screen;
use super::verify::Verdict;
use crate::text::{columns, grouped, grouped_signed, rate, span};

/// Number of destinations that are shown.
const TOP: usize = 5;

pub(super) fn print(
    screen: &Screen,
    input: &Input,
    played: &Played,
    verdict: &Verdict,
    history: &[String],
    play: &Play,
) {
    let mut lines = vec![String::new(), "Membership history".to_owned()];
    lines.extend(history.iter().map(|line| format!("  {line}")));
    lines.push(String::new());
    lines.extend(numbers(played, input, play));
    lines.push(String::new());
    lines.extend(totals(&verdict.cluster, &input.truth));
    lines.push(String::new());
    let (airports, aircraft) =
        (input.truth.airports.len() as u64, input.truth.aircraft.len() as u64);
    let differing = verdict.differing(&input.truth).len() as u64;
    lines.push(format!(
        "{} airports and {} aircraft compared, {} differ",
        grouped(airports),
        grouped(aircraft),
        grouped(differing)
    ));
    for line in lines {
        screen.line(&line);
    }
}

fn numbers(played: &Played, input: &Input, play: &Play) -> Vec<String> {
    let Played { feed, counts, lost } = played;
    let replayed = format!(
        "{} departures in {}: {} calls/s, {} deliveries/s",
        grouped(input.streams.departures().len() as u64),
        span(feed.elapsed),
        grouped(rate(counts.calls, feed.elapsed)),
        grouped(rate(counts.applied, feed.elapsed)),
    );
    let calls = format!(
        "{} answered, {} failed and were repeated, {} answers behind an earlier one",
        grouped(counts.calls),
        grouped(counts.failures),
        grouped(counts.rewinds)
    );
    let (title, gone) =
        if play.drains { ("Drained", "empty") } else { ("Killed", "declared dead") };
    let victim = format!(
        "silo {} {} (seed {}), {gone} after {}",
        lost.name,
        lost.address,
        play.seed,
        span(lost.gone_after)
    );
    let moved = format!("{} grains answered from another silo afterwards", grouped(lost.moves));
    let replacement =
        format!("silo {}, Active after {}", lost.replacement, span(lost.joined_after));
    let gap = format!(
        "{} between two successes of one caller; {} for one batch with its repetitions",
        span(feed.longest_gap),
        span(feed.longest_call)
    );
    let rows = [
        ("Replayed", replayed),
        ("Calls", calls),
        (title, victim),
        ("Moved", moved),
        ("Replacement", replacement),
        ("Longest gap", gap),
    ];
    columns(&rows.map(|(name, value)| vec![name.to_owned(), value]))
}

/// Both sides of everything.
fn totals(cluster: &Truth, file: &Truth) -> Vec<String> {
    let airports = |pick: fn(&AirportTotals) -> i64| {
        [cluster, file].map(|side| side.airports.values().map(pick).sum::<i64>())
    };
    let as_i64 = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let miles = [cluster, file].map(|side| side.aircraft.values().map(|a| as_i64(a.miles)).sum());
    let mut rows = vec![["TOTALS", "CLUSTER", "FILE"].map(str::to_owned).to_vec()];
    let mut push = |name: String, [left, right]: [i64; 2]| {
        rows.push(vec![name, grouped_signed(left), grouped_signed(right)]);
    };
    push("departures".into(), airports(|a| a.departures.cast_signed()));
    push("cancelled".into(), airports(|a| a.cancelled.cast_signed()));
    push("left late".into(), airports(|a| a.late_departures.cast_signed()));
    push("departure delay, minutes".into(), airports(|a| a.departure_delay_minutes));
    push("arrived late".into(), airports(|a| a.late_arrivals.cast_signed()));
    push("arrival delay, minutes".into(), airports(|a| a.arrival_delay_minutes));
    push("miles flown by known aircraft".into(), miles);
    let mut busiest: Vec<(&Arc<str>, u64)> =
        file.airports.iter().map(|(c, a)| (c, a.departures + a.arrivals)).collect();
    busiest.sort_by_key(|(_, flights)| std::cmp::Reverse(*flights));
    for (code, flights) in busiest.into_iter().take(TOP) {
        let of_cluster = cluster.airports.get(code).map_or(0, |a| a.departures + a.arrivals);
        push(format!("flights from and to {code}"), [as_i64(of_cluster), as_i64(flights)]);
    }
    columns(&rows)
}
