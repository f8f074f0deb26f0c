//! Bringing every silo's report to every silo, in waves (after Bruck and others,
//! `docs/membership.md`).
//!
//! The Active silos of a view stand in a circle. Waves take turns with four circles. A wave has as
//! many rounds as doublings lead from one to the number of silos. In round `r` each silo sends the
//! silo `2^r` places further on its own report and those of the silos behind it, `2^r` together.
//! The receiver then has twice as many, and after the last round all. So each report reaches each
//! silo once, and a silo sends one message for each round.
//!
//! There is no leader. A silo that finds a wave overdue begins one, and a silo that hears of a
//! later wave joins it at once. A silent silo delays the next silos for a moment (`patience`) in
//! one round, and reports that came through it are missing in this wave. The next wave has another
//! circle, so it affects other pairs. Four circles are enough: a silo has a connection to each silo
//! that it sends to, some forty among a thousand.
//!
//! Messages of another view are not taken: its silos stand elsewhere. A silo that has missed a wave
//! so begins the next one a moment after it has seen that view.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use emmer_core::{Instant, SiloAddress};
use serde::{Deserialize, Serialize};

use super::known::{Known, Loads};
use super::report::{LoadReport, MISSING, PACKED, PLACE_MAX};

/// Number of circles that waves take turns with.
const CIRCLES: u64 = 4;

/// Time after a new view at which a silo that has missed a wave of it begins another one: other
/// silos may see the view even later.
const SETTLE: Duration = Duration::from_millis(200);

/// Number of views by which a message may be ahead; later ones are ignored.
pub(super) const AHEAD_MAX: u64 = 10_000;

/// Nor are messages of waves beyond this one.
pub(super) const WAVE_MAX: u64 = u32::MAX as u64;

/// Period and patience of waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherConfig {
    /// The time from one wave to the next, where no silo says less and none becomes Active: one
    /// that does begins a wave at once.
    pub period: Duration,
    /// Number of bytes of reports that a silo sends in a second while no silo joins, taken over
    /// some waves: with more than some 200 silos waves come less often.
    pub bytes_per_second: u32,
    /// Time that a round waits for the round before.
    pub patience: Duration,
}

impl Default for GatherConfig {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            bytes_per_second: 1_800,
            patience: Duration::from_millis(150),
        }
    }
}

/// From silo to silo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The view that both have to have in force.
    #[serde(rename = "v")]
    pub(super) view: u64,
    /// The number of the wave within that view.
    #[serde(rename = "w")]
    pub(super) wave: u64,
    /// The round.
    #[serde(rename = "r")]
    pub(super) round: u8,
    /// The sender's report, that of the silo before it in the circle, and so on.
    #[serde(rename = "l")]
    pub(super) reports: Bytes,
    /// The numbers of what their silos host. A report names the place of its silo's, from 1.
    #[serde(rename = "m")]
    pub(super) manifests: Vec<u64>,
}

/// Effect that the shell has to execute.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send to a silo, best effort.
    Send {
        /// The receiver.
        to: SiloAddress,
        /// Message.
        message: Message,
    },
    /// The knowledge now.
    Publish(Loads),
}

/// The machine of one silo.
#[derive(Debug)]
pub struct Gather {
    me: SiloAddress,
    /// The number of what this silo hosts.
    manifest: u64,
    config: GatherConfig,
    view: u64,
    /// The Active silos of the view, in the order of their addresses. This silo is among them, or
    /// takes no part.
    silos: Vec<SiloAddress>,
    /// True if this silo is among them.
    takes_part: bool,
    /// The number of the last wave that this silo took part in, in this view.
    number: u64,
    wave: Option<Wave>,
    /// A later view of which a message came, and the number of its wave.
    missed: (u64, u64),
    /// Time at which the next wave is overdue.
    next: Instant,
    known: BTreeMap<SiloAddress, Known>,
    effects: VecDeque<Effect>,
}

/// A wave that this silo takes part in.
#[derive(Debug)]
struct Wave {
    circle: Circle,
    /// Reports of tests to `cargo xtask test --stores` for its table: lines in a file that the
    /// environment names.
    gathered: Vec<Option<Gathered>>,
    /// Rounds that were heard, a bit for each.
    heard: u32,
    /// Number of rounds that were sent.
    sent: u32,
    /// Time at which this silo continues although the last round that it waits for was not heard.
    due: Instant,
    /// Nothing is waited for.
    over: bool,
}

/// Report of one silo, and the number of its manifest.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    report: LoadReport,
    manifest: Option<u64>,
}

/// An order of `len` silos: every `stride`th one, from the first.
#[derive(Clone, Copy, Debug)]
struct Circle {
    len: usize,
    stride: usize,
    /// Position of this silo in it.
    place: usize,
}

impl Circle {
    /// The circle of the wave of this number, as `me` of `len` silos sees it. Each of the four has
    /// a stride of its own where there are enough numbers without a common divisor with `len`: of
    /// more than six silos.
    fn new(len: usize, me: usize, number: u64) -> Self {
        let turn = usize::try_from(number % CIRCLES).unwrap_or_default();
        let mut strides: Vec<usize> = Vec::new();
        for before in 0..=turn {
            // Far from each other, so that neighbours in one circle are not neighbours in the next.
            let first = len * (2 * before + 1) / (2 * CIRCLES as usize + 1);
            let others = (0..len).map(|n| (first + n) % len).filter(|n| gcd(*n, len) == 1);
            let mut new = others.clone().filter(|stride| !strides.contains(stride));
            strides.push(new.next().or_else(|| others.clone().next()).unwrap_or(1));
        }
        let order = Self { len, stride: strides[turn], place: 0 };
        let place = (0..len).find(|place| order.ahead(*place) == me).unwrap_or_default();
        Self { place, ..order }
    }

    /// The silo `steps` places further on, as a number in the order of the addresses.
    const fn ahead(self, steps: usize) -> usize {
        (self.place + steps) % self.len * self.stride % self.len
    }

    /// The silo `steps` places back, at most once round.
    const fn behind(self, steps: usize) -> usize {
        self.ahead(self.len.saturating_sub(steps))
    }

    /// Number of rounds of a wave.
    const fn rounds(self) -> u32 {
        usize::BITS - self.len.saturating_sub(1).leading_zeros()
    }

    /// Number of reports that are sent in `round`.
    fn reports(self, round: u32) -> usize {
        let gathered = 1_usize << round.min(usize::BITS - 1);
        gathered.min(self.len.saturating_sub(gathered))
    }
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Gather {
    /// The machine of `me`, without a view yet. `manifest`: the number of its manifest.
    pub const fn new(me: SiloAddress, manifest: u64, config: GatherConfig) -> Self {
        Self {
            me,
            manifest,
            config,
            view: 0,
            silos: Vec::new(),
            takes_part: false,
            number: 0,
            wave: None,
            missed: (0, 0),
            next: Instant::ZERO,
            known: BTreeMap::new(),
            effects: VecDeque::new(),
        }
    }

    /// A view is in force; `active`: its Active silos, each once.
    pub fn handle_view(&mut self, now: Instant, version: u64, active: &[SiloAddress]) {
        self.view = version;
        self.wave = None;
        self.number = if self.missed.0 == version { self.missed.1 } else { 0 };
        let mut silos = active.to_vec();
        silos.sort_unstable();
        if silos == self.silos {
            // The Active silos are the same: there is no haste.
            return;
        }
        self.silos = silos;
        self.takes_part = self.silos.binary_search(&self.me).is_ok();
        let mut before = std::mem::take(&mut self.known);
        let known = self
            .silos
            .iter()
            .map(|silo| (*silo, before.remove(silo).unwrap_or_else(|| Known::new(*silo, now))));
        self.known = known.collect();
        let soon = if self.number > 0 { SETTLE } else { self.period() };
        self.next = self.next.min(now + soon);
        self.publish();
    }

    /// A message came from `from`. One that does not fit changes nothing. `own` measures this silo;
    /// it is asked when a wave begins.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SiloAddress,
        message: &Message,
        own: impl FnOnce() -> LoadReport,
    ) {
        let Some(circle) = self.circle_of(from, message) else { return };
        if message.wave > self.number || self.wave.is_none() {
            self.begin(now, message.wave, circle, own());
        }
        let Some(wave) = &mut self.wave else { return };
        let behind = 1_usize << message.round;
        for (n, report) in message.reports.chunks_exact(PACKED).enumerate() {
            let Ok(packed) = <[u8; PACKED]>::try_from(report) else { continue };
            let Some((report, place)) = LoadReport::unpacked(packed) else { continue };
            let place = usize::from(place).checked_sub(1);
            let manifest = place.and_then(|place| message.manifests.get(place)).copied();
            wave.gathered[behind + n] = Some(Gathered { report, manifest });
            let silo = self.silos[circle.behind(behind + n)];
            if let Some(known) = self.known.get_mut(&silo) {
                known.report = Some((report, now));
                known.manifest = manifest.or(known.manifest);
            }
        }
        wave.heard |= 1 << message.round;
        let late = wave.over;
        self.go_on(now);
        if late {
            self.publish();
        }
    }

    /// The circle of the wave of a message, if it is what its sender has to send in that wave.
    fn circle_of(&mut self, from: SiloAddress, message: &Message) -> Option<Circle> {
        // Numbers that no silo reaches belong to no silo.
        let ahead = message.view.checked_sub(self.view)?;
        if ahead > AHEAD_MAX || message.wave > WAVE_MAX {
            return None;
        }
        if ahead > 0 {
            self.missed = self.missed.max((message.view, message.wave));
        }
        if ahead > 0 || message.wave < self.number {
            return None;
        }
        let current = self.wave.as_ref().filter(|_| message.wave == self.number);
        let circle = match current {
            Some(wave) => wave.circle,
            None => self.circle(message.wave)?,
        };
        let round = u32::from(message.round);
        let fits = round < circle.rounds()
            && message.reports.len() == circle.reports(round) * PACKED
            && message.manifests.len() <= usize::from(PLACE_MAX)
            && self.silos.get(circle.behind(1 << round)) == Some(&from);
        fits.then_some(circle)
    }

    /// A moment of [`poll_timeout`](Self::poll_timeout) has come. `own` measures this silo; it is
    /// asked when a wave begins.
    pub fn handle_timeout(&mut self, now: Instant, own: impl FnOnce() -> LoadReport) {
        let number = self.number.saturating_add(1);
        if now >= self.next
            && let Some(circle) = self.circle(number)
        {
            self.begin(now, number, circle, own());
        }
        self.go_on(now);
    }

    /// Time for the next call of [`handle_timeout`](Self::handle_timeout); none: not before
    /// something else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.wave.as_ref().filter(|wave| !wave.over).map(|wave| wave.due);
        let next = self.takes_part.then_some(self.next);
        waits.into_iter().chain(next).min()
    }

    /// The next thing to do; none when there is nothing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Time after a wave at which the next one is overdue.
    fn period(&self) -> Duration {
        let bytes = u32::try_from(self.silos.len() * PACKED).unwrap_or(u32::MAX);
        let spread = Duration::from_secs(1) * bytes / self.config.bytes_per_second.max(1);
        spread.max(self.config.period)
    }

    /// The circle of a wave for this silo; None when it takes no part.
    fn circle(&self, number: u64) -> Option<Circle> {
        let me = self.silos.binary_search(&self.me).ok()?;
        Some(Circle::new(self.silos.len(), me, number))
    }

    fn begin(&mut self, now: Instant, number: u64, circle: Circle, own: LoadReport) {
        self.number = number;
        let next = now + self.period();
        // A wave of which a message was missed has gaps, although this silo joins it now.
        let has_gaps = self.missed == (self.view, number);
        self.next = if has_gaps { self.next.min(next) } else { next };
        if let Some(known) = self.known.get_mut(&self.me) {
            (known.report, known.manifest) = (Some((own, now)), Some(self.manifest));
        }
        let mut gathered = vec![None; circle.len];
        gathered[0] = Some(Gathered { report: own, manifest: Some(self.manifest) });
        self.wave = Some(Wave { circle, gathered, heard: 0, sent: 0, due: now, over: false });
        self.go_on(now);
    }

    /// Sends each round whose time has come, and returns all reports after the last round.
    fn go_on(&mut self, now: Instant) {
        let Some(wave) = self.wave.as_mut().filter(|wave| !wave.over) else { return };
        loop {
            let round = wave.sent;
            let heard = round == 0 || wave.heard & 1 << (round - 1) != 0;
            if !heard && now < wave.due {
                return;
            }
            if round == wave.circle.rounds() {
                wave.over = true;
                return self.publish();
            }
            let to = self.silos[wave.circle.ahead(1 << round)];
            let (reports, manifests) = packed(&wave.gathered[..wave.circle.reports(round)]);
            let round = u8::try_from(round).unwrap_or(u8::MAX);
            let (view, number, reports) = (self.view, self.number, reports.into());
            let message = Message { view, wave: number, round, reports, manifests };
            self.effects.push_back(Effect::Send { to, message });
            wave.sent += 1;
            wave.due = now + self.config.patience;
        }
    }

    fn publish(&mut self) {
        let loads = Loads::new(self.known.values().copied().collect());
        // The last one says it all.
        self.effects.retain(|effect| !matches!(effect, Effect::Publish(_)));
        self.effects.push_back(Effect::Publish(loads));
    }
}

/// Reports in bytes, and the numbers that they name by their places. More numbers than there are
/// places are left out.
fn packed(gathered: &[Option<Gathered>]) -> (Vec<u8>, Vec<u64>) {
    let mut manifests = Vec::new();
    let mut place_of = |manifest: u64| {
        let place = manifests.iter().position(|known| *known == manifest);
        let place = place.unwrap_or_else(|| {
            if manifests.len() < usize::from(PLACE_MAX) {
                manifests.push(manifest);
            }
            manifests.len() - 1
        });
        let is_there = manifests.get(place) == Some(&manifest);
        if is_there { u8::try_from(place + 1).unwrap_or(0) } else { 0 }
    };
    let bytes = gathered.iter().flat_map(|gathered| match gathered {
        None => MISSING,
        Some(Gathered { report, manifest }) => report.packed(manifest.map_or(0, &mut place_of)),
    });
    (bytes.collect(), manifests)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_four_circles_have_four_strides_where_there_are_so_many() {
        for len in 1..=1_000 {
            let there_are = (0..len).filter(|stride| gcd(*stride, len) == 1).count();
            let strides: BTreeSet<_> =
                (1..=CIRCLES).map(|number| Circle::new(len, 0, number).stride).collect();
            assert_eq!(strides.len(), there_are.clamp(1, 4), "{len} silos");
            for number in 1..=CIRCLES {
                let me = len / 2;
                let circle = Circle::new(len, me, number);
                let all: BTreeSet<_> = (0..len).map(|steps| circle.ahead(steps)).collect();
                assert_eq!((circle.ahead(0), all.len()), (me, len), "wave {number} of {len} silos");
            }
        }
    }
}
