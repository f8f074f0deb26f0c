//! Directors: what chooses a silo for a new activation.

mod counts;
mod draws;
mod fewest;
mod hash;
mod later;
mod local;
mod random;
mod resources;

use std::str::FromStr;
use std::sync::LazyLock;

use emmer_core::{GrainId, Instant, SiloAddress};
use serde::de::DeserializeOwned;

pub use self::counts::ActivationCountDirector;
pub use self::fewest::FewestDirector;
pub use self::hash::HashDirector;
pub use self::later::{AsyncDirector, Choosing, DirectorError, PlacementRequest};
pub use self::local::PreferLocalDirector;
pub use self::random::RandomDirector;
pub use self::resources::ResourceDirector;
use crate::candidates::{Candidate, Surroundings};
use crate::load::Loads;
use crate::strategy::{DataError, Strategy};

/// The grain that a silo is chosen for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PlacementTarget<'a> {
    /// The grain to be activated.
    pub grain: &'a GrainId,
    /// The strategy of its class, or the silo's default. A custom one may carry data for its
    /// director.
    pub strategy: &'a Strategy,
    /// The silo the call came from: the local one for calls of its own grains and of its gateway's
    /// clients.
    pub requesting: SiloAddress,
    /// The grain whose turn makes the call. None for calls of clients and tasks, and for one-way
    /// calls.
    pub caller: Option<&'a GrainId>,
    /// The call's hint (`.hint(..)`), as text.
    pub(crate) hint: Option<&'a str>,
}

impl<'a> PlacementTarget<'a> {
    /// The target of a call from `requesting`, as tests of a director need it.
    pub const fn new(grain: &'a GrainId, strategy: &'a Strategy, requesting: SiloAddress) -> Self {
        Self { grain, strategy, requesting, caller: None, hint: None }
    }

    /// Adds the hint of its call.
    #[must_use]
    pub const fn with_hint(mut self, hint: &'a str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// The call's hint (`.hint(..)`). None without one, or if it is not of this type.
    pub fn hint<T: FromStr>(&self) -> Option<T> {
        self.hint?.parse().ok()
    }

    /// The data that the class gives its director (`#[placement("name", data)]`).
    ///
    /// # Errors
    /// [`DataError::Read`] when it says nothing, or something else.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, DataError> {
        match self.strategy {
            Strategy::Custom(custom) => custom.data(),
            other => Err(DataError::Read(other.name().to_owned(), "there is no data".to_owned())),
        }
    }
}

/// Facts that a director may look at.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PlacementContext<'a> {
    /// The silo that places: where the director runs.
    pub local: SiloAddress,
    /// The compatible silos that are Active in the placing silo's view, in the order of their
    /// addresses, at least one. Full and suspected ones are missing where others are left.
    pub silos: &'a [SiloAddress],
    /// Time on the clock of `loads`.
    pub now: Instant,
    /// Loads of the silos, as far as this one knows.
    pub loads: &'a Loads,
    /// Other knowledge of the silos.
    known: Option<&'a Surroundings>,
}

impl<'a> PlacementContext<'a> {
    /// The context of a director on `local`, without knowledge of any load. `silos`: in the order
    /// of their addresses, each once.
    pub const fn new(local: SiloAddress, silos: &'a [SiloAddress]) -> Self {
        static NOTHING: Loads = Loads::EMPTY;
        Self { local, silos, now: Instant::ZERO, loads: &NOTHING, known: None }
    }

    /// Sets the time, and all that is known of the silos.
    #[must_use]
    pub fn with_surroundings(mut self, now: Instant, known: &'a Surroundings) -> Self {
        self.known = Some(known);
        self.with_loads(now, known.loads())
    }

    /// The silos to choose from, and the knowledge of each.
    pub fn candidates(&self) -> impl ExactSizeIterator<Item = Candidate<'a>> + use<'a> {
        static NOTHING: LazyLock<Surroundings> = LazyLock::new(Surroundings::default);
        let known = self.known.unwrap_or_else(|| &NOTHING);
        self.silos.iter().map(|silo| known.of(*silo))
    }

    /// Sets the time, and the loads of the silos.
    #[must_use]
    pub const fn with_loads(mut self, now: Instant, loads: &'a Loads) -> Self {
        self.now = now;
        self.loads = loads;
        self
    }
}

/// Chooses the silo of a new activation. It is called in the middle of a call, by many threads at
/// once: it must neither wait nor take long. A director that has to wait is an [`AsyncDirector`].
pub trait Director: Send + Sync {
    /// Chooses one of `context.silos`; None when none is suitable. The call is then rejected at
    /// once, as after a panic.
    fn choose(
        &self,
        target: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress>;
}

impl<F> Director for F
where
    F: Fn(&PlacementTarget<'_>, &PlacementContext<'_>) -> Option<SiloAddress> + Send + Sync,
{
    fn choose(
        &self,
        target: &PlacementTarget<'_>,
        context: &PlacementContext<'_>,
    ) -> Option<SiloAddress> {
        self(target, context)
    }
}

#[cfg(test)]
mod testing {
    //! Steps that the tests of all directors share.

    use emmer_core::GrainTypeId;

    use super::*;
    use crate::load::{Known, LoadReport};

    /// Reports of `silos` as of `at`, each with its number of `busy` activations.
    pub(super) fn loads(silos: &[SiloAddress], busy: &[u32], at: Instant) -> Loads {
        let known = silos.iter().zip(busy).map(|(silo, busy)| {
            let report = LoadReport { busy: *busy, ..LoadReport::default() };
            Known { report: Some((report, at)), ..Known::new(*silo, Instant::ZERO) }
        });
        Loads::new(known.collect())
    }

    pub(super) fn silos(n: u16) -> Vec<SiloAddress> {
        (0..n).map(|i| format!("10.0.0.1:{}:1", 1000 + i).parse().unwrap()).collect()
    }

    pub(super) fn choose(
        director: &dyn Director,
        grain: &GrainId,
        local: SiloAddress,
        of: &[SiloAddress],
    ) -> Option<SiloAddress> {
        let target = PlacementTarget::new(grain, &Strategy::Random, local);
        director.choose(&target, &PlacementContext::new(local, of))
    }

    /// Number of times each silo is chosen for as many grains as there are draws.
    pub(super) fn counts(
        director: &dyn Director,
        local: SiloAddress,
        of: &[SiloAddress],
        draws: u64,
    ) -> Vec<u64> {
        let mut counts = vec![0; of.len()];
        for n in 0..draws {
            let chosen =
                choose(director, &GrainId::new(GrainTypeId::of("g"), n), local, of).unwrap();
            counts[of.iter().position(|silo| *silo == chosen).unwrap()] += 1;
        }
        counts
    }

    /// Pearson's statistic against equal probabilities.
    pub(super) fn chi_squared(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        counts.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum()
    }

    #[test]
    fn nobody_is_chosen_from_nobody() {
        let local = silos(1)[0];
        let grain = GrainId::new(GrainTypeId::of("g"), 1u64);
        let directors: [Box<dyn Director>; 5] = [
            Box::new(RandomDirector::new(1)),
            Box::new(PreferLocalDirector::new(1)),
            Box::new(HashDirector),
            Box::new(ActivationCountDirector::new(1, 2)),
            Box::new(ResourceDirector::new(1)),
        ];
        assert!(directors.iter().all(|director| choose(&**director, &grain, local, &[]).is_none()));
    }
}
