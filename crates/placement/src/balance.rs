//! The balance of recently used grains over silos of one kind: how many of its grains a silo gives
//! away, and to which silos.
//!
//! Each silo decides for itself, by the loads that it knows of all. A silo gives each silo below
//! the mean its part of what is missing there: the part that its own surplus has in the surplus of
//! all. So silos that act on the same loads together give no silo more than the mean. A silo begins
//! when it has much more than the mean, and ends near the mean, so that small changes move nothing.

use std::time::Duration;

use emmer_core::{Instant, SiloAddress};

/// The parameters of the balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceConfig {
    /// Part above the mean, in percent, from which on a silo gives grains away. Default 20.
    pub from_percent: u32,
    /// Part above the mean, in percent, at which it ends. Default 5.
    pub to_percent: u32,
    /// Fewest grains above the mean that are worth a move. Default 50.
    pub least: u32,
    /// Part of its grains, in percent, that a silo gives away in a minute at most. Default 10.
    pub share_percent: u32,
}

impl Default for BalanceConfig {
    fn default() -> Self {
        Self { from_percent: 20, to_percent: 5, least: 50, share_percent: 10 }
    }
}

/// Decisions of one silo.
#[derive(Debug)]
pub struct Balancer {
    me: SiloAddress,
    config: BalanceConfig,
    /// It gives grains away until it is near the mean.
    gives: bool,
    /// Grains, in parts of a minute's millisecond, that it may give away by now.
    budget: u64,
    last: Option<Instant>,
}

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;

/// The longest time for which unused budget adds up.
const BUDGET_MS_MAX: u64 = 15_000;

impl Balancer {
    /// The balancer of the silo `me`.
    pub const fn new(me: SiloAddress, config: BalanceConfig) -> Self {
        Self { me, config, gives: false, budget: 0, last: None }
    }

    /// Takes the numbers of recently used grains of all silos of one kind, and returns how many of
    /// this silo's go to which silo now.
    pub fn handle_loads(
        &mut self,
        now: Instant,
        loads: &[(SiloAddress, u32)],
    ) -> Vec<(SiloAddress, u32)> {
        let own = loads.iter().find(|(silo, _)| *silo == self.me).map(|(_, busy)| *busy);
        let (Some(own), true) = (own, loads.len() > 1) else {
            self.gives = false;
            return Vec::new();
        };
        let sum: u64 = loads.iter().map(|(_, busy)| u64::from(*busy)).sum();
        let mean = sum / loads.len() as u64;
        let above = |percent: u32| mean + mean * u64::from(percent) / 100;
        let (own, aim) = (u64::from(own), above(self.config.to_percent));
        self.earn(now, own);
        let much = own > above(self.config.from_percent)
            && own.saturating_sub(mean) >= u64::from(self.config.least);
        self.gives = much || (self.gives && own > aim);
        if !self.gives {
            return Vec::new();
        }
        let surplus_of = |busy: u64| busy.saturating_sub(aim);
        let all: u64 = loads.iter().map(|(_, busy)| surplus_of(u64::from(*busy))).sum();
        let surplus = surplus_of(own);
        let mut left = surplus.min(self.budget / MINUTE_MS);
        let mut plan = Vec::new();
        for (silo, busy) in loads {
            let missing = mean.saturating_sub(u64::from(*busy));
            let part = (missing * surplus / all.max(1)).min(left);
            if part > 0 {
                left -= part;
                self.budget -= part * MINUTE_MS;
                plan.push((*silo, u32::try_from(part).unwrap_or(u32::MAX)));
            }
        }
        plan
    }

    /// Time passes, in which this silo has `own` grains.
    fn earn(&mut self, now: Instant, own: u64) {
        let passed = self.last.map_or(Duration::ZERO, |last| now.saturating_since(last));
        self.last = Some(now);
        let passed = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).min(BUDGET_MS_MAX);
        let per_minute = own * u64::from(self.config.share_percent) / 100;
        let most = per_minute * BUDGET_MS_MAX;
        self.budget = (self.budget + per_minute * passed).min(most);
    }
}

/// A number of grains that should go from one silo to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The silo that has too many.
    pub from: SiloAddress,
    /// The silo that has too few.
    pub to: SiloAddress,
    /// Number of grains.
    pub grains: u32,
}

/// Part above the mean, in percent, up to which a silo keeps what it has in [`even`].
const EVEN_PERCENT: u64 = 5;

/// The transfers after which no silo of one kind has more than the mean, except those that are
/// within a twentieth of it. All who ask with the same numbers get the same answer.
pub fn even(loads: &[(SiloAddress, u32)]) -> Vec<Transfer> {
    let sum: u64 = loads.iter().map(|(_, busy)| u64::from(*busy)).sum();
    let mean = sum.div_ceil(loads.len().max(1) as u64);
    let mut loads: Vec<_> = loads.iter().map(|(silo, busy)| (*silo, u64::from(*busy))).collect();
    loads.sort_unstable();
    let mut takers: Vec<_> =
        loads.iter().map(|(silo, busy)| (*silo, mean.saturating_sub(*busy))).collect();
    let mut transfers = Vec::new();
    let is_giver = |busy: u64| busy * 100 > mean * (100 + EVEN_PERCENT);
    for (from, busy) in loads.into_iter().filter(|(_, busy)| is_giver(*busy)) {
        let mut left = busy - mean;
        for (to, missing) in &mut takers {
            let grains = left.min(*missing);
            if grains > 0 {
                (left, *missing) = (left - grains, *missing - grains);
                let grains = u32::try_from(grains).unwrap_or(u32::MAX);
                transfers.push(Transfer { from, to: *to, grains });
            }
        }
    }
    transfers
}

#[cfg(test)]
mod tests {
    use emmer_core::rng::SeededRng;

    use super::*;

    fn silo(n: usize) -> SiloAddress {
        format!("10.0.0.{n}:1:1").parse().unwrap()
    }

    /// Lets the silos act on the same loads, every ten seconds. Returns how long it took until they
    /// rest, in minutes, and how many grains moved.
    fn settle(busy: &mut [u32], config: BalanceConfig) -> (u64, u64) {
        let mut silos: Vec<_> = (0..busy.len()).map(|n| Balancer::new(silo(n), config)).collect();
        let (mut moved, mut quiet) = (0, 0);
        for round in 0..10_000u64 {
            let now = Instant::from_millis(1 + round * 10_000);
            let loads: Vec<_> = busy.iter().enumerate().map(|(n, b)| (silo(n), *b)).collect();
            let sum: u64 = busy.iter().map(|b| u64::from(*b)).sum();
            let mean = sum / busy.len() as u64;
            let before = busy.to_vec();
            let plans: Vec<_> = silos.iter_mut().map(|s| s.handle_loads(now, &loads)).collect();
            let mut any = false;
            for (from, plan) in plans.into_iter().enumerate() {
                let mut given = 0;
                for (to, n) in plan {
                    let to = (0..busy.len()).find(|n| silo(*n) == to).unwrap();
                    assert!(u64::from(before[to]) < mean, "only silos below the mean get some");
                    busy[to] += n;
                    busy[from] -= n;
                    given += u64::from(n);
                    any = true;
                }
                let most = u64::from(before[from]) * u64::from(config.share_percent) / 100;
                assert!(given * 4 <= most + 4, "at most a quarter of a minute's share at once");
                moved += given;
            }
            for (now, before) in busy.iter().zip(&before) {
                assert!(
                    now <= before || u64::from(*now) <= mean,
                    "no silo gets more than the mean"
                );
            }
            quiet = if any { 0 } else { quiet + 1 };
            if quiet > 12 {
                return (round / 6, moved);
            }
        }
        panic!("the silos never rest: {busy:?}");
    }

    #[test]
    fn silos_come_near_the_mean_and_rest() {
        let mut rng = SeededRng::new(7);
        for _ in 0..300 {
            let count = 2 + rng.index(12);
            let mut busy: Vec<u32> = (0..count).map(|_| rng.below(20_000) as u32).collect();
            let before = busy.clone();
            let config = BalanceConfig::default();
            let (minutes, moved) = settle(&mut busy, config);
            let mean = busy.iter().sum::<u32>() / count as u32;
            let fullest = *busy.iter().max().unwrap();
            assert!(fullest <= mean + mean / 5 + config.least + 1, "{before:?} {busy:?}");
            let surplus: u32 = before.iter().map(|b| b.saturating_sub(mean)).sum();
            assert!(moved <= u64::from(surplus), "{moved} of {surplus}");
            assert!(minutes <= 60, "{minutes}");
        }
    }

    #[test]
    fn transfers_even_out_any_numbers() {
        let mut rng = SeededRng::new(8);
        for _ in 0..500 {
            let count = 1 + rng.index(12);
            let busy: Vec<u32> = (0..count).map(|_| rng.below(20_000) as u32).collect();
            let loads: Vec<_> = busy.iter().enumerate().map(|(n, b)| (silo(n), *b)).collect();
            let mut after: std::collections::BTreeMap<_, _> = loads.iter().copied().collect();
            let mut shuffled = loads.clone();
            rng.shuffle(&mut shuffled);
            let transfers = even(&loads);
            assert_eq!(transfers, even(&shuffled), "the order says nothing");
            for Transfer { from, to, grains } in transfers {
                assert!(grains > 0 && from != to);
                *after.get_mut(&from).unwrap() -= grains;
                *after.get_mut(&to).unwrap() += grains;
            }
            let sum: u32 = busy.iter().sum();
            let most = sum.div_ceil(count as u32) * 105 / 100 + 1;
            assert!(after.values().all(|busy| *busy <= most), "{busy:?} {after:?}");
            assert_eq!(after.values().sum::<u32>(), sum);
        }
        assert_eq!(even(&[]), []);
        assert_eq!(even(&[(silo(1), 0), (silo(2), 0)]), []);
    }

    #[test]
    fn little_differences_move_nothing() {
        let mut even = [1_000, 1_150, 1_190, 900];
        assert_eq!(settle(&mut even, BalanceConfig::default()).1, 0);
        let mut few = [0, 60, 10];
        assert_eq!(settle(&mut few, BalanceConfig::default()).1, 0, "fewer than are worth a move");
        let mut alone = [5_000];
        assert_eq!(settle(&mut alone, BalanceConfig::default()).1, 0);
    }

    #[test]
    fn a_silo_that_joins_is_filled_at_the_stated_share() {
        let mut busy = [10_000, 10_000, 10_000, 0];
        let (minutes, moved) = settle(&mut busy, BalanceConfig::default());
        assert!((2..=6).contains(&minutes), "{minutes}");
        assert!(moved <= 7_500 && busy[3] > 6_000, "{busy:?}");
    }
}
