//! The diagnosis for people.

use std::fmt::Write as _;
use std::time::Duration;

use emmer::access::PortSecurity;
use emmer::store::checkup::{Latency, SCRATCH};
use emmer::store::{ClockDifference, FindingLevel};

use super::Diagnosis;

pub(super) fn text(found: &Diagnosis) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:<10}{value}");
    };
    line("store", &found.store);
    let server = format!("{} {}", found.examination.server, found.examination.version);
    line("server", if server.trim().is_empty() { "not known" } else { server.trim() });
    line("connected", &format!("in {}", time(found.connected)));
    line("takes", &found.limits.to_string());
    line("commit", &latency(found.checkup.commit.as_ref()));
    line("read", &latency(found.checkup.read.as_ref()));
    line("clock", &clock(found.examination.clock.as_ref()));
    for (silo, port) in &found.silos {
        line("port", &format!("{silo} {}", port_words(*port)));
    }
    for finding in &found.examination.findings {
        let _ = writeln!(out, "\n{} ({}): {}", finding.level, finding.subject, finding.text);
    }
    let _ = writeln!(out, "\nself-check, in the cluster {SCRATCH}:");
    for check in &found.checkup.checks {
        let _ = match &check.trouble {
            None => writeln!(out, "  ok      {}", check.name),
            Some(trouble) => writeln!(out, "  FAILED  {}: {trouble}", check.name),
        };
    }
    let _ = writeln!(out, "\n{}", verdict(found.checkup.trouble().is_none(), found.worst()));
    out
}

/// Verdict on all of it.
const fn verdict(is_sound: bool, worst: Option<FindingLevel>) -> &'static str {
    match worst {
        Some(FindingLevel::Problem) => "not fit for a cluster: see the problem above",
        _ if !is_sound => "not fit for a cluster: the self-check failed",
        Some(FindingLevel::Warning) => {
            "fit for a cluster, if the warnings above are acceptable to you"
        }
        _ => "fit for a cluster",
    }
}

const fn port_words(port: Option<PortSecurity>) -> &'static str {
    match port {
        Some(PortSecurity::Encrypted) => "accepts encrypted connections only (TLS)",
        Some(PortSecurity::Plain) => "accepts plain connections",
        None => "cannot be reached from here",
    }
}

fn latency(found: Option<&Latency>) -> String {
    let shown = |l: &Latency| {
        format!("median {}, longest {} (of {})", time(l.median), time(l.worst), l.count)
    };
    found.map_or_else(|| "not measured".to_owned(), shown)
}

fn clock(found: Option<&ClockDifference>) -> String {
    let shown = |clock: &ClockDifference| {
        let (ahead, about) = (clock.ahead_ms, clock.uncertainty_ms);
        match ahead {
            _ if ahead.unsigned_abs() <= about.unsigned_abs() => {
                format!("the server's agrees with this host's (within {about} ms)")
            }
            0.. => {
                format!("the server's is {ahead} ms ahead of this host's (give or take {about} ms)")
            }
            _ => format!(
                "the server's is {} ms behind this host's (give or take {about} ms)",
                ahead.unsigned_abs()
            ),
        }
    };
    found.map_or_else(|| "the server does not tell its time".to_owned(), shown)
}

/// Milliseconds with as many digits as say something.
fn time(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1_000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_verdict() {
        assert_eq!(verdict(true, Some(FindingLevel::Note)), "fit for a cluster");
        assert!(verdict(true, Some(FindingLevel::Warning)).contains("if the warnings"));
        assert!(
            verdict(false, None).starts_with("not fit")
                && verdict(false, None).contains("self-check")
        );
        assert!(verdict(true, Some(FindingLevel::Problem)).starts_with("not fit"));
    }

    #[test]
    fn clocks_and_times_read_well() {
        let said =
            |ahead_ms, uncertainty_ms| clock(Some(&ClockDifference { ahead_ms, uncertainty_ms }));
        assert!(said(3, 4).contains("agrees") && said(-3, 4).contains("agrees"));
        assert!(said(500, 4).contains("500 ms ahead") && said(-500, 4).contains("500 ms behind"));
        assert!(clock(None).contains("does not tell"));
        let times = [900, 9_994, 250_000].map(|us| time(Duration::from_micros(us)));
        assert_eq!(times, ["0.90 ms", "9.99 ms", "250 ms"]);
    }
}
