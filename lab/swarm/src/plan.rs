//! Meaning of a seed.

use emmer::placement::Strategy;
use emmer_core::rng::SeededRng;

/// Clients outside the cluster.
pub(crate) const CLIENTS: usize = 2;

/// Where grains go.
pub(crate) const STRATEGIES: [Strategy; 6] = [
    Strategy::Random,
    Strategy::PreferLocal,
    Strategy::HashBased,
    Strategy::ActivationCount,
    Strategy::ResourceOptimized,
    Strategy::custom("last"),
];

/// Plan of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Silos at the start.
    pub silos: usize,
    /// Grains that are called.
    pub grains: u64,
    /// Calls from outside.
    pub calls: u64,
    /// For how many virtual seconds calls are made.
    pub seconds: u64,
    /// Probability that a grain's own code makes trouble, wherever it can.
    pub trouble: f64,
    /// Number of faults of silos, network and store.
    pub faults: u64,
    /// True if the network is noisy: late, lossy, in pieces.
    pub is_noisy: bool,
    /// True if the limits of queues and calls under way are so small that they are met.
    pub is_tight: bool,
    /// True if the profile `fast` is used.
    pub is_fast: bool,
    /// True if nothing happens to silos but that they leave in good order, and come back.
    pub is_gentle: bool,
    /// True if everything takes up to 40 ms on its way, and nothing is lost.
    pub is_slow: bool,
    /// True if some silos host an older version of the class, and some host nothing.
    pub is_mixed: bool,
    /// Where grains go: the number of the strategy, from 0 for random placement.
    pub placement: usize,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed ^ 0x5e1d_0f3a);
        let mut pick = |of: &[u64]| of[rng.index(of.len())];
        let silos = pick(&[1, 2, 3, 3, 3, 3, 4, 5]);
        let faults = pick(&[0, 1, 4, 8, 16]);
        let plan = Self {
            seed,
            silos: usize::try_from(silos).unwrap_or(1),
            grains: pick(&[3, 20, 200, 2_000]),
            calls: pick(&[2_000, 10_000, 18_000]),
            seconds: 60,
            trouble: [0.0, 0.002, 0.02][rng.index(3)],
            faults,
            is_noisy: rng.chance(0.4),
            is_tight: rng.chance(0.2),
            is_fast: rng.chance(0.3),
            is_gentle: rng.chance(0.2),
            is_slow: rng.chance(0.5),
            is_mixed: rng.chance(0.4),
            placement: rng.index(STRATEGIES.len()),
        };
        if plan.is_gentle {
            Self { trouble: 0.0, is_noisy: false, is_tight: false, ..plan }
        } else {
            Self { is_slow: false, ..plan }
        }
    }

    /// Returns true if nothing breaks a connection or ends a silo.
    pub(crate) const fn is_whole(&self) -> bool {
        self.faults == 0 && !self.is_noisy
    }
}

impl Plan {
    /// Changes one part: `calls=500`, `noisy=no`.
    ///
    /// # Errors
    /// The expected values.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number =
            || value.parse::<u64>().map_err(|_| format!("{key}={value}: expected a whole number"));
        let yes = || match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(format!("{key}={value}: expected yes or no")),
        };
        match key {
            "silos" => self.silos = usize::try_from(number()?).unwrap_or(1).max(1),
            "grains" => self.grains = number()?.max(1),
            "calls" => self.calls = number()?.max(1),
            "seconds" => self.seconds = number()?.max(1),
            "faults" => self.faults = number()?,
            "trouble" => {
                self.trouble = value
                    .parse()
                    .map_err(|_| format!("{key}={value}: expected a number from 0 to 1"))?;
            }
            "noisy" => self.is_noisy = yes()?,
            "tight" => self.is_tight = yes()?,
            "fast" => self.is_fast = yes()?,
            "gentle" => self.is_gentle = yes()?,
            "slow" => self.is_slow = yes()?,
            "mixed" => self.is_mixed = yes()?,
            "placement" => self.placement = usize::try_from(number()?).unwrap_or(0),
            _ => {
                return Err(format!(
                    "`{key}` is no part of a plan; expected silos, grains, calls, seconds, faults, \
                     trouble, noisy, tight, fast, gentle, slow, mixed, placement"
                ));
            }
        }
        Ok(())
    }

    /// Plans that are a little simpler, simplest first.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |changed: bool, plan: Self| all.extend(changed.then_some(plan));
        add(self.is_noisy, Self { is_noisy: false, ..self.clone() });
        add(self.is_slow, Self { is_slow: false, ..self.clone() });
        add(self.is_tight, Self { is_tight: false, ..self.clone() });
        add(self.is_fast, Self { is_fast: false, ..self.clone() });
        add(self.is_mixed, Self { is_mixed: false, ..self.clone() });
        add(self.placement > 0, Self { placement: 0, ..self.clone() });
        add(self.trouble > 0.0, Self { trouble: 0.0, ..self.clone() });
        add(self.faults > 0, Self { faults: self.faults / 2, ..self.clone() });
        add(self.silos > 1, Self { silos: self.silos - 1, ..self.clone() });
        add(
            self.seconds > 4,
            Self { seconds: self.seconds / 2, calls: self.calls.div_ceil(2), ..self.clone() },
        );
        add(self.calls > 8, Self { calls: self.calls / 2, ..self.clone() });
        add(self.grains > 1, Self { grains: self.grains.div_ceil(2), ..self.clone() });
        all
    }
}

impl std::str::FromStr for Plan {
    type Err = String;

    /// A seed, and parts of its plan that are changed: `4711 calls=500 noisy=no`.
    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let seed = words.next().unwrap_or_default();
        let mut plan = Self::new(seed.parse().map_err(|_| format!("`{seed}` is no seed"))?);
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            plan.set(key, value)?;
        }
        Ok(plan)
    }
}

impl std::fmt::Display for Plan {
    /// As the command line takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, silos, grains, calls, seconds, trouble, faults, placement, .. } = self;
        let yes = |is: bool| if is { "yes" } else { "no" };
        let (noisy, tight, fast) = (yes(self.is_noisy), yes(self.is_tight), yes(self.is_fast));
        let (gentle, slow, mixed) = (yes(self.is_gentle), yes(self.is_slow), yes(self.is_mixed));
        write!(
            f,
            "{seed} silos={silos} grains={grains} calls={calls} seconds={seconds} faults={faults} \
             trouble={trouble} noisy={noisy} tight={tight} fast={fast} gentle={gentle} slow={slow} \
             mixed={mixed} placement={placement}"
        )
    }
}
