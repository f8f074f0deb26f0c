//! The table for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use emmer::tables::{SiloEntry, SiloStatus, Timestamp};

use super::super::ports;
use super::Reading;
use crate::text;

pub(super) fn print(reading: &Reading) -> String {
    let mut out = format!(
        "cluster {} in {}, version {}",
        reading.cluster, reading.store, reading.version.number
    );
    let _ = writeln!(out, ": {}", summary(&reading.silos));
    if reading.silos.is_empty() {
        return out;
    }
    out.push('\n');
    let header = ["STATUS", "SILO", "NAME", "GATEWAY", "STARTED", "LAST I AM ALIVE"];
    let header = header.map(str::to_owned).to_vec();
    let rows = reading.silos.iter().map(|s| row(s, reading.at));
    let mut rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    if let Some(ports) = &reading.ports {
        let words = ports.iter().map(|port| port.map_or("-", ports::word));
        for (row, word) in rows.iter_mut().zip(std::iter::once("PORT").chain(words)) {
            row.push(word.to_owned());
        }
    }
    let mut lines = text::columns(&rows).into_iter();
    let _ = writeln!(out, "{}", lines.next().unwrap_or_default());
    for (line, silo) in lines.zip(&reading.silos) {
        let _ = writeln!(out, "{line}");
        for vote in &silo.votes {
            let at = moment(vote.at, reading.at);
            let _ = if vote.voter == silo.address {
                writeln!(out, "    left by itself at {at}")
            } else {
                writeln!(out, "    suspected by {} at {at}", vote.voter)
            };
        }
    }
    out
}

/// `3 Active, 1 Dead`.
fn summary(silos: &[SiloEntry]) -> String {
    let mut counts = BTreeMap::new();
    for silo in silos {
        *counts.entry(silo.status).or_insert(0u32) += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    if counts.is_empty() { "no silos".to_owned() } else { counts.join(", ") }
}

fn row(silo: &SiloEntry, now: Timestamp) -> Vec<String> {
    let gateway = match silo.proxy_port {
        0 => "-".to_owned(),
        port => std::net::SocketAddr::new(silo.address.ip(), port).to_string(),
    };
    let name =
        if silo.instance_name.is_empty() { "-".to_owned() } else { silo.instance_name.to_string() };
    vec![
        status(silo),
        silo.address.to_string(),
        name,
        gateway,
        moment(silo.start_time, now),
        moment(silo.i_am_alive_time, now),
    ]
}

/// `Active`, or `Active, draining`.
fn status(silo: &SiloEntry) -> String {
    if silo.duty.is_full() || silo.status == SiloStatus::Dead {
        return silo.status.to_string();
    }
    format!("{}, {}", silo.status, silo.duty.name().to_lowercase())
}

/// `2026-11-21 12:44:45Z (5.0s ago)`.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let text = at.to_string();
    let to_seconds =
        text.split_once('.').map(|(seconds, _)| format!("{}Z", seconds.replace('T', " ")));
    let shown = to_seconds.unwrap_or(text);
    if at > now {
        let ahead = text::span(at.saturating_since(now));
        return format!("{shown} (in {ahead})");
    }
    format!("{shown} ({} ago)", text::span(now.saturating_since(at)))
}

#[cfg(test)]
mod tests {
    use emmer::tables::Duty;

    use super::super::fixture;
    use super::*;

    #[test]
    fn shows_every_silo_and_who_suspects_it() {
        let printed = print(&fixture::reading());
        let expected = "\
cluster dev in memory://, version 12: 1 Active, 1 Dead

STATUS  SILO               NAME  GATEWAY          STARTED                            LAST I AM ALIVE
Active  127.0.0.1:11111:7  left  127.0.0.1:30000  2026-11-21 12:43:15Z (1m 30s ago)  2026-11-21 12:44:40Z (5.0s ago)
Dead    127.0.0.1:11112:5  -     -                2026-11-21 11:43:05Z (1h 1m ago)   2026-11-21 11:43:05Z (1h 1m ago)
    suspected by 127.0.0.1:11111:7 at 2026-11-21 12:43:43Z (1m 1s ago)
";
        assert_eq!(printed, expected);
    }

    #[test]
    fn a_silo_that_is_emptied_says_so_behind_its_status() {
        let mut reading = fixture::reading();
        for silo in &mut reading.silos {
            silo.duty = Duty::Draining;
        }
        let printed = print(&reading);
        assert!(printed.contains("\nActive, draining  127.0.0.1:11111:7"), "{printed}");
        assert!(printed.contains("\nDead              127.0.0.1:11112:5"), "{printed}");
    }

    #[test]
    fn an_empty_table_is_one_line() {
        let mut reading = fixture::reading();
        reading.silos.clear();
        assert_eq!(print(&reading), "cluster dev in memory://, version 12: no silos\n");
    }
}
