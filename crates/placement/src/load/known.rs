//! The knowledge of a silo about the others' load.

use std::time::Duration;

use emmer_core::{Instant, SiloAddress};

use super::LoadReport;

/// Knowledge of one silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The silo.
    pub silo: SiloAddress,
    /// Time at which this silo first saw it Active.
    pub since: Instant,
    /// Its last report and the time of its arrival; None before the first report.
    pub report: Option<(LoadReport, Instant)>,
    /// The number of its manifest ([`Manifest::number`](crate::hosted::Manifest::number)), if it is
    /// known.
    pub manifest: Option<u64>,
}

impl Known {
    /// A silo that has not reported yet.
    pub const fn new(silo: SiloAddress, since: Instant) -> Self {
        Self { silo, since, report: None, manifest: None }
    }
}

/// The load of all Active silos, at one moment of one silo.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    /// In the order of their addresses.
    silos: Vec<Known>,
    mean: Mean,
    most_activations: u32,
    first_since: Instant,
}

/// The means of the silos that said something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    /// In percent; 0 where no silo says it.
    pub(crate) cpu: f64,
    /// In percent; 0 where no silo says it.
    pub(crate) memory: f64,
    pub(crate) activations: f64,
    pub(crate) busy: f64,
}

fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0.0), |(sum, count), figure| (sum + figure, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

impl Loads {
    /// Without any knowledge.
    pub const EMPTY: Self = Self {
        silos: Vec::new(),
        mean: Mean { cpu: 0.0, memory: 0.0, activations: 0.0, busy: 0.0 },
        most_activations: 0,
        first_since: Instant::ZERO,
    };

    /// Creates the knowledge of `silos`, each once.
    pub fn new(mut silos: Vec<Known>) -> Self {
        silos.sort_unstable_by_key(|known| known.silo);
        let reports = || silos.iter().filter_map(|known| known.report).map(|(report, _)| report);
        let mean = Mean {
            cpu: mean(reports().filter_map(|report| report.cpu).map(f64::from)),
            memory: mean(reports().filter_map(|report| report.memory).map(f64::from)),
            activations: mean(reports().map(|report| f64::from(report.activations))),
            busy: mean(reports().map(|report| f64::from(report.busy))),
        };
        let most_activations = reports().map(|report| report.activations).max().unwrap_or(0);
        let first_since = silos.iter().map(|known| known.since).min().unwrap_or(Instant::ZERO);
        Self { mean, most_activations, first_since, silos }
    }

    /// Returns true if `silo` takes no new activations for now.
    pub fn is_overloaded(&self, silo: &SiloAddress) -> bool {
        self.of(silo).and_then(|known| known.report).is_some_and(|(report, _)| report.overloaded)
    }

    /// The mean of the silos that reported: how many busy activations one has. 0 where none did.
    pub const fn mean_busy(&self) -> f64 {
        self.mean.busy
    }

    /// The means of what silos reported.
    pub(crate) const fn mean(&self) -> Mean {
        self.mean
    }

    /// The most activations that a silo reported.
    pub(crate) const fn most_activations(&self) -> u32 {
        self.most_activations
    }

    /// Time at which this silo saw the first of them Active.
    pub(crate) const fn first_since(&self) -> Instant {
        self.first_since
    }

    /// Knowledge of one silo; None when it is not Active.
    pub fn of(&self, silo: &SiloAddress) -> Option<&Known> {
        self.silos
            .binary_search_by_key(silo, |known| known.silo)
            .ok()
            .map(|place| &self.silos[place])
    }

    /// All of them, in the order of their addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Known> {
        self.silos.iter()
    }

    /// Time since the last report of `silo` came; none without one. Its content is older by the
    /// time that the wave took.
    pub fn age(&self, silo: &SiloAddress, now: Instant) -> Option<Duration> {
        self.of(silo)?.report.map(|(_, at)| now.saturating_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_those_that_reported_and_who_says_nothing_has_room() {
        let silo = |n: u8| format!("10.0.0.{n}:1:1").parse::<SiloAddress>().unwrap();
        let known = |n, report: Option<LoadReport>| {
            let report = report.map(|report| (report, Instant::from_millis(5)));
            Known { report, ..Known::new(silo(n), Instant::ZERO) }
        };
        let report =
            |busy, overloaded| Some(LoadReport { busy, overloaded, ..LoadReport::default() });
        let loads = Loads::new(vec![
            known(3, None),
            known(2, report(10, true)),
            known(1, report(31, false)),
        ]);
        assert_eq!(loads.mean_busy(), 20.5);
        assert!(
            loads.is_overloaded(&silo(2))
                && !loads.is_overloaded(&silo(3))
                && !loads.is_overloaded(&silo(9))
        );
        assert!(loads.iter().map(|known| known.silo).eq([silo(1), silo(2), silo(3)]));
        assert_eq!(loads.age(&silo(1), Instant::from_millis(7)), Some(Duration::from_millis(2)));
        assert_eq!(loads.age(&silo(3), Instant::from_millis(7)), None);
        assert_eq!(Loads::EMPTY, Loads::new(Vec::new()));
    }
}
