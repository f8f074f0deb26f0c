//! Repartition: grains that call each other much come together, by exchanges between two silos.
//!
//! Each silo counts samples of the calls of its grains, the heaviest pairs within a bound. Once in
//! a period it looks for the silo where its grains would win most, and offers the grains that would
//! win. That silo adds its own wishes, chooses from both lists what wins most and leaves the
//! numbers of grains even, and answers which of the offered ones it takes. Then both move theirs.
//!
//! The idea is that of Newell et al., *Optimizing Distributed Actor Systems for Dynamic Interactive
//! Services* (`EuroSys` 2016).

mod sketch;
mod swap;
mod wish;
#[cfg(test)]
mod world_tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_core::{GrainId, Instant, SiloAddress};
use serde::{Deserialize, Serialize};

use self::sketch::Sketch;
use self::swap::{Counts, swap};
pub use self::wish::Wish;

/// Fewest calls in a period that a grain has to win.
const LEAST: u64 = 8;

/// Fewest samples that a grain has to win: one or two say little.
const SAMPLES_LEAST: u64 = 3;

/// A grain has to win this part of its calls.
const PART: u64 = 8;

/// Grains that one silo offers at once.
const WISHES_MAX: usize = 512;

/// Grains that a small silo may offer, whatever its share.
const WISHES_LEAST: usize = 64;

/// Neighbours that an offered grain names.
const NEIGHBOURS_MAX: usize = 8;

/// Time for which a silo waits for the answer to its offer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The parameters of the repartition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepartitionConfig {
    /// Time between two offers of a silo. Default 60 s.
    pub period: Duration,
    /// Part of its grains, in percent, that a silo offers at once, and 64 at least. Default 10.
    pub share_percent: u32,
}

impl Default for RepartitionConfig {
    fn default() -> Self {
        Self { period: Duration::from_secs(60), share_percent: 10 }
    }
}

/// Message between two silos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The grains of the sender that would win at the receiver.
    #[serde(rename = "o")]
    Offer(Vec<Wish>),
    /// The places of those in the offer that the sender takes; none if it declines.
    #[serde(rename = "t")]
    Take(Vec<u32>),
}

/// The state of the silo that decides: what the machine asks for.
pub trait Ground {
    /// The numbers of recently used grains of all silos of one kind.
    fn loads(&self) -> Vec<(SiloAddress, u32)>;
    /// Returns true if a grain is on this silo and may move to `to`.
    fn may_go(&self, grain: &GrainId, to: SiloAddress) -> bool;
}

/// Effect that the shell carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A message for another silo.
    Send {
        /// Receiver.
        to: SiloAddress,
        /// Message.
        message: Message,
    },
    /// Grains of this silo that move.
    Move {
        /// Their new silo.
        to: SiloAddress,
        /// The grains.
        grains: Vec<GrainId>,
    },
}

/// Offer that waits for its answer.
#[derive(Debug)]
struct Asked {
    silo: SiloAddress,
    until: Instant,
    grains: Vec<GrainId>,
}

/// Decisions of one silo.
#[derive(Debug)]
pub struct Repartitioner {
    me: SiloAddress,
    config: RepartitionConfig,
    rng: SeededRng,
    sketch: Sketch,
    /// Calls that a grain has to win.
    least: u64,
    next: Instant,
    /// It takes part in no other exchange until then.
    rests_until: Instant,
    asked: Option<Asked>,
    /// The silo that took nothing of the last offer: the next one goes to another silo.
    in_vain: Option<SiloAddress>,
    effects: VecDeque<Effect>,
}

/// The calls of one grain.
#[derive(Default)]
struct Talk<'a> {
    grain: Option<&'a GrainId>,
    sum: u64,
    by_silo: BTreeMap<SiloAddress, u64>,
    with: Vec<(u64, u64)>,
}

impl Talk<'_> {
    fn at(&self, silo: SiloAddress) -> u64 {
        self.by_silo.get(&silo).copied().unwrap_or(0)
    }

    /// The gain at `to` for a grain of `me`; none if it is not worth a move.
    fn gain(&self, me: SiloAddress, to: SiloAddress, least: u64) -> Option<i64> {
        let gain = self.at(to).checked_sub(self.at(me))?;
        i64::try_from(gain).ok().filter(|_| gain >= least.max(self.sum / PART))
    }
}

impl Repartitioner {
    /// The machine of the silo `me`. `seed` spreads the times of its offers.
    pub fn new(me: SiloAddress, seed: u64, now: Instant, config: RepartitionConfig) -> Self {
        let mut machine = Self {
            me,
            config,
            rng: SeededRng::new(seed),
            sketch: Sketch::default(),
            least: LEAST,
            next: now,
            rests_until: now,
            asked: None,
            in_vain: None,
            effects: VecDeque::new(),
        };
        machine.next = now + machine.wait();
        machine
    }

    /// The time to the next offer: the period, and up to a quarter more.
    fn wait(&mut self) -> Duration {
        let period = u64::try_from(self.config.period.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(period.saturating_add(self.rng.below(period / 4 + 1)))
    }

    /// A sample that stands for `calls` calls between a grain of this silo and a grain of `at`.
    pub fn handle_sample(&mut self, own: &GrainId, other: &GrainId, at: SiloAddress, calls: u64) {
        self.least = LEAST.max(calls.saturating_mul(SAMPLES_LEAST));
        self.sketch.add(own, other, at, calls);
    }

    /// The time of the next offer.
    pub const fn poll_timeout(&self) -> Instant {
        self.next
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Makes an offer if it is time for one and any grain would win.
    pub fn handle_timeout(&mut self, now: Instant, ground: &impl Ground) {
        if now < self.next {
            return;
        }
        self.next = now + self.wait();
        if now >= self.rests_until {
            self.offer(now, ground);
        }
        self.sketch.fade();
    }

    fn offer(&mut self, now: Instant, ground: &impl Ground) {
        let loads = ground.loads();
        let Some(own) = busy_of(&loads, self.me) else { return };
        let in_vain = self.in_vain.take();
        let talks = self.talks();
        let others = loads.iter().map(|(silo, _)| *silo);
        let others = others.filter(|silo| *silo != self.me && Some(*silo) != in_vain);
        let win = |to: SiloAddress| -> i64 {
            let gains = talks.values().filter_map(|talk| talk.gain(self.me, to, self.least));
            gains.fold(0, i64::saturating_add)
        };
        let best = others.map(|to| (win(to), to)).max_by_key(|(win, to)| (*win, *to));
        let Some((_, to)) = best.filter(|(win, _)| *win > 0) else { return };
        let most = self.most(own);
        let wishes = wishes(&talks, (self.me, to), self.least, most, ground);
        if wishes.is_empty() {
            return;
        }
        let grains = wishes.iter().map(|wish| wish.grain.clone()).collect();
        self.in_vain = Some(to);
        self.asked = Some(Asked { silo: to, until: now + ANSWER_WITHIN, grains });
        self.effects.push_back(Effect::Send { to, message: Message::Offer(wishes) });
    }

    /// The most grains that a silo with `own` of them offers.
    fn most(&self, own: u32) -> usize {
        let share = u64::from(own) * u64::from(self.config.share_percent) / 100;
        usize::try_from(share).unwrap_or(usize::MAX).clamp(WISHES_LEAST, WISHES_MAX)
    }

    /// A message of another silo.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SiloAddress,
        message: Message,
        ground: &impl Ground,
    ) {
        match message {
            Message::Offer(wishes) => {
                let (take, give) = self.exchange(now, from, wishes, ground).unwrap_or_default();
                self.effects.push_back(Effect::Send { to: from, message: Message::Take(take) });
                self.send_off(from, give);
            }
            Message::Take(taken) => {
                let asked = self.asked.take_if(|asked| asked.silo == from);
                let Some(asked) = asked.filter(|asked| now <= asked.until) else { return };
                // No more counts than was offered, whatever another silo says.
                let taken = &taken[..taken.len().min(WISHES_MAX)];
                let offered = (0u32..).zip(asked.grains);
                let taken = offered.filter(|(place, _)| taken.contains(place));
                let grains: Vec<_> = taken.map(|(_, grain)| grain).collect();
                if !grains.is_empty() {
                    self.in_vain = None;
                    self.rests_until = now + self.config.period / 2;
                }
                self.send_off(from, grains);
            }
        }
    }

    /// Chooses from an offer and from its own wishes. Returns the places of the offered grains that
    /// it takes, and the grains that it gives; none if it takes part in another exchange.
    fn exchange(
        &mut self,
        now: Instant,
        from: SiloAddress,
        mut wishes: Vec<Wish>,
        ground: &impl Ground,
    ) -> Option<(Vec<u32>, Vec<GrainId>)> {
        let waits = self.asked.as_ref().is_some_and(|asked| now <= asked.until);
        if waits || now < self.rests_until {
            return None;
        }
        let loads = ground.loads();
        let (here, there) = (busy_of(&loads, self.me)?, busy_of(&loads, from)?);
        let sum: u64 = loads.iter().map(|(_, busy)| u64::from(*busy)).sum();
        let mean = sum / (loads.len() as u64).max(1);
        let counts = Counts { here: here.into(), there: there.into(), mean };
        wishes.truncate(WISHES_MAX);
        wishes.iter_mut().for_each(|wish| wish.with.truncate(NEIGHBOURS_MAX));
        let talks = self.talks();
        let own = self::wishes(&talks, (self.me, from), self.least, self.most(here), ground);
        let swap = swap(&wishes, &own, counts);
        if !swap.come.is_empty() || !swap.go.is_empty() {
            self.rests_until = now + self.config.period / 2;
        }
        let come = swap.come.iter().map(|place| (wishes[*place].grain.stable_hash(), self.me));
        self.sketch.moved(self.me, &come.collect());
        let give = swap.go.iter().map(|place| own[*place].grain.clone()).collect();
        let take = swap.come.iter().map(|place| u32::try_from(*place).ok());
        Some((take.collect::<Option<_>>()?, give))
    }

    fn send_off(&mut self, to: SiloAddress, grains: Vec<GrainId>) {
        if !grains.is_empty() {
            let go = grains.iter().map(|grain| (grain.stable_hash(), to));
            self.sketch.moved(self.me, &go.collect());
            self.effects.push_back(Effect::Move { to, grains });
        }
    }

    /// The calls of each grain of this silo, by the grain's stable hash.
    fn talks(&self) -> BTreeMap<u64, Talk<'_>> {
        let mut talks: BTreeMap<u64, Talk<'_>> = BTreeMap::new();
        for pair in self.sketch.pairs() {
            let mut note = |of, other: &GrainId| {
                let talk = talks.entry(GrainId::stable_hash(of)).or_default();
                talk.grain = Some(of);
                talk.sum += pair.calls;
                *talk.by_silo.entry(pair.at).or_default() += pair.calls;
                talk.with.push((other.stable_hash(), pair.calls));
            };
            note(&pair.own, &pair.other);
            if pair.at == self.me {
                note(&pair.other, &pair.own);
            }
        }
        talks
    }
}

fn busy_of(loads: &[(SiloAddress, u32)], silo: SiloAddress) -> Option<u32> {
    loads.iter().find(|(other, _)| *other == silo).map(|(_, busy)| *busy)
}

/// The grains of `me` that would win `least` calls at `to`, the most winning ones first.
fn wishes(
    talks: &BTreeMap<u64, Talk<'_>>,
    (me, to): (SiloAddress, SiloAddress),
    least: u64,
    most: usize,
    ground: &impl Ground,
) -> Vec<Wish> {
    let mut gains: Vec<_> = talks
        .iter()
        .filter_map(|(hash, talk)| Some((talk.gain(me, to, least)?, *hash, talk.grain?, talk)))
        .collect();
    gains.sort_unstable_by_key(|(gain, hash, ..)| (std::cmp::Reverse(*gain), *hash));
    let wish = |(gain, _, grain, talk): (i64, u64, &GrainId, &Talk<'_>)| {
        let mut with = talk.with.clone();
        with.sort_unstable_by_key(|(hash, calls)| (std::cmp::Reverse(*calls), *hash));
        with.truncate(NEIGHBOURS_MAX);
        Wish { grain: grain.clone(), gain, with }
    };
    let movable = gains.into_iter().filter(|(_, _, grain, _)| ground.may_go(grain, to));
    movable.take(most).map(wish).collect()
}
