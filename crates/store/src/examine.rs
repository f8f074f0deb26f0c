//! The examination of the server behind a store, for an operator (`emmer doctor`): server and
//! version, durability, clocks, permissions. Nothing at run time rests on it.

use std::fmt;
use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;

/// Result of [`SystemStore::examine`](crate::SystemStore::examine). The default knows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// The server's product, e.g. `PostgreSQL`; empty when it is not known.
    pub server: String,
    /// The server's own words for its version, e.g. `15.18`; empty when it is not known.
    pub version: String,
    /// Difference between the server's clock and this host's, where the server tells its time.
    pub clock: Option<ClockDifference>,
    /// Findings for an operator, the most important first.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Nothing but product and version.
    pub fn of(server: impl Into<String>, version: impl Into<String>) -> Self {
        Self { server: server.into(), version: version.into(), ..Self::default() }
    }

    /// Adds a clock difference.
    #[must_use]
    pub fn with_clock(mut self, clock: ClockDifference) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Adds a finding.
    pub fn add(&mut self, level: FindingLevel, subject: FindingSubject, text: impl Into<String>) {
        self.findings.push(Finding { level, subject, text: text.into() });
        // Stable: findings of one level stay in the order they were added.
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    }

    /// Adds a warning that the server, as it is set up, can lose writes it has acknowledged. A test
    /// that kills the server holds a store to this: without such a warning every acknowledged
    /// commit must be there afterwards.
    pub fn may_lose_writes(&mut self, text: impl Into<String>) {
        self.add(FindingLevel::Warning, FindingSubject::Durability, text);
    }

    /// Returns true if there is a finding about writes that may be lost.
    pub fn warns_of_lost_writes(&self) -> bool {
        self.findings
            .iter()
            .any(|f| f.subject == FindingSubject::Durability && f.level >= FindingLevel::Warning)
    }
}

/// One thing an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub level: FindingLevel,
    /// Subject.
    pub subject: FindingSubject,
    /// One sentence or two: the finding, its cost, and what to do. Never a password.
    pub text: String,
}

/// Severity of a [`Finding`], the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// Good to know.
    Note,
    /// A cluster works, but a promise of the contract rests on something that may fail.
    Warning,
    /// A cluster cannot work with this.
    Problem,
}

impl FindingLevel {
    /// The word for people and for JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl fmt::Display for FindingLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Subject of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingSubject {
    /// Survival of acknowledged writes in a crash or a failover.
    Durability,
    /// Things that this user may not do.
    Permission,
    /// Readers of the table or the connection: passwords, TLS.
    Security,
    /// Limits of the server that a cluster may reach.
    Capacity,
    /// Anything else about how the server is set up.
    Setup,
}

impl FindingSubject {
    /// The word for people and for JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Durability => "durability",
            Self::Permission => "permission",
            Self::Security => "security",
            Self::Capacity => "capacity",
            Self::Setup => "setup",
        }
    }
}

impl fmt::Display for FindingSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Time by which the server's clock is ahead of this host's, as far as one question and answer can
/// tell.
///
/// Silos never compare times with the server's, so a difference breaks nothing. It makes tables
/// hard to read and reveals a host without a synchronised clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDifference {
    /// The server's time minus this host's, in milliseconds.
    pub ahead_ms: i64,
    /// Uncertainty in milliseconds: half the round trip and the server's own rounding.
    pub uncertainty_ms: i64,
}

impl ClockDifference {
    /// The difference when the server said `server` to a question sent at `asked` and answered at
    /// `answered` by this host's clock. `resolution` is how coarsely the server tells its time: 1
    /// ms, or a second in an HTTP header.
    pub fn measured(
        asked: SystemTime,
        server: Timestamp,
        answered: SystemTime,
        resolution: Duration,
    ) -> Self {
        let (asked, answered) = (millis(asked), millis(answered));
        let round_trip = answered.saturating_sub(asked).max(0);
        let resolution = i64::try_from(resolution.as_millis()).unwrap_or(i64::MAX);
        // A time that was cut off stands for any within its resolution: its middle is the best
        // guess.
        let server = server.as_millis().saturating_add(resolution / 2);
        let here = asked.saturating_add(round_trip / 2);
        let uncertainty_ms = (round_trip / 2).saturating_add(resolution / 2).saturating_add(1);
        Self { ahead_ms: server.saturating_sub(here), uncertainty_ms }
    }
}

fn millis(time: SystemTime) -> i64 {
    let since = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => since(after),
        Err(before) => since(before.duration()).saturating_neg(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn a_clock_difference_names_its_uncertainty() {
        let exact = ClockDifference::measured(
            at(1_000),
            Timestamp::from_millis(1_505),
            at(1_010),
            Duration::from_millis(1),
        );
        assert_eq!(exact, ClockDifference { ahead_ms: 500, uncertainty_ms: 6 });
        let header = ClockDifference::measured(
            at(1_600),
            Timestamp::from_millis(1_000),
            at(1_600),
            Duration::from_secs(1),
        );
        assert_eq!(header, ClockDifference { ahead_ms: -100, uncertainty_ms: 501 });
    }

    #[test]
    fn the_worst_finding_comes_first() {
        let mut found = Examination::of("Server", "1");
        found.add(FindingLevel::Note, FindingSubject::Durability, "it is what it is");
        assert!(!found.warns_of_lost_writes());
        found.add(FindingLevel::Problem, FindingSubject::Permission, "may not write");
        found.may_lose_writes("nothing is kept");
        assert!(found.warns_of_lost_writes());
        let levels: Vec<_> = found.findings.iter().map(|f| f.level.word()).collect();
        assert_eq!(levels, ["problem", "warning", "note"]);
    }
}
