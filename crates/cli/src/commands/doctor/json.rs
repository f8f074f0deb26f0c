//! The diagnosis for programs. Field names are stable: docs/commands.md lists them, and a test
//! holds both together.

use emmer::store::checkup::Latency;
use serde::Serialize;

use super::super::ports;
use super::Diagnosis;
use crate::exit::{Failure, Result};

#[derive(Serialize)]
struct Document {
    store: String,
    server: String,
    version: String,
    fit: bool,
    connected_us: u64,
    limits: Limits,
    commit: Option<Times>,
    read: Option<Times>,
    clock: Option<Clock>,
    findings: Vec<Finding>,
    checks: Vec<Check>,
    ports: Vec<Port>,
}

#[derive(Serialize)]
struct Port {
    silo: String,
    security: Option<&'static str>,
}

#[derive(Serialize)]
struct Limits {
    mutations: usize,
    commit_bytes: usize,
    row_bytes: usize,
    partition_key_bytes: usize,
    row_key_bytes: usize,
}

#[derive(Serialize)]
struct Times {
    median_us: u64,
    longest_us: u64,
    count: usize,
}

#[derive(Serialize)]
struct Clock {
    ahead_ms: i64,
    uncertainty_ms: i64,
}

#[derive(Serialize)]
struct Finding {
    level: &'static str,
    subject: &'static str,
    text: String,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    trouble: Option<String>,
}

/// One line of JSON.
pub(super) fn document(found: &Diagnosis, strict: bool) -> Result<String> {
    let examination = &found.examination;
    let findings = examination.findings.iter().map(|finding| Finding {
        level: finding.level.word(),
        subject: finding.subject.word(),
        text: finding.text.clone(),
    });
    let checks = found.checkup.checks.iter().map(|check| Check {
        name: check.name,
        ok: check.trouble.is_none(),
        trouble: check.trouble.as_ref().map(ToString::to_string),
    });
    let clock = examination.clock;
    let document = Document {
        store: found.store.clone(),
        server: examination.server.clone(),
        version: examination.version.clone(),
        fit: found.unfit(strict).is_none(),
        connected_us: micros(found.connected),
        limits: Limits {
            mutations: found.limits.mutations,
            commit_bytes: found.limits.commit_bytes,
            row_bytes: found.limits.row_bytes,
            partition_key_bytes: found.limits.partition_key_bytes,
            row_key_bytes: found.limits.row_key_bytes,
        },
        commit: found.checkup.commit.as_ref().map(times),
        read: found.checkup.read.as_ref().map(times),
        clock: clock.map(|c| Clock { ahead_ms: c.ahead_ms, uncertainty_ms: c.uncertainty_ms }),
        findings: findings.collect(),
        checks: checks.collect(),
        ports: found
            .silos
            .iter()
            .map(|(silo, port)| Port { silo: silo.to_string(), security: port.map(ports::word) })
            .collect(),
    };
    let text = serde_json::to_string(&document).map_err(Failure::other)?;
    Ok(text + "\n")
}

fn times(latency: &Latency) -> Times {
    Times {
        median_us: micros(latency.median),
        longest_us: micros(latency.worst),
        count: latency.count,
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
