//! Judges by the turn logs of all silos if any code of a grain ran on one silo after the grain had
//! become active on another.
//!
//! The grain's activations are ordered by their first pieces of code. A piece of an earlier
//! activation that ends after the first piece of the next one begins is *stale*: the earlier
//! activation could still run when the later one was admitted. A turn that is suspended for good is
//! not: none of its code runs. If a silent silo begins an activation while another silo has one,
//! the silent silo's pieces are stale.
//!
//! An activation is *early* when an earlier one ran after it began, or was neither deactivated by
//! then nor on a silo that had fallen silent. A grain that has come from another silo is early only
//! if it runs there afterwards: no hook marks the end of its activation there.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use crate::grains::turn_log::{END, Kind, Segment};
use emmer_cli::exit::{Failure, Result};

/// Time for which the newest lines of a running silo may be on their way into its file.
pub(super) const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// Time for which a grain is remembered after its last piece of code.
const KEPT: Duration = Duration::from_secs(120);
/// Time after a thread was woken in which it may begin the one turn that it had admitted before it
/// was stopped.
const DOOR: Duration = Duration::from_millis(100);
/// Maximum stale pieces that are listed word by word, in each verdict.
const TOLD_MAX: usize = 12;

/// The log of one silo.
struct Source {
    name: String,
    path: PathBuf,
    offset: u64,
    /// The beginning of a line whose end is not written yet.
    rest: String,
    /// Number of lines it lost; None while it is written.
    lost: Option<u64>,
    /// When the silo fell silent, in nanoseconds of the machine's clock.
    silent: Option<u64>,
    /// When it was woken after it had been stopped.
    woken: Option<u64>,
}

/// A piece of code, and whether a verdict has counted it.
struct Noted {
    silo: usize,
    judged: bool,
    segment: Segment,
}

/// Result of the logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Grains that ran at all.
    pub(super) grains: usize,
    /// Pieces of code that ran.
    pub(super) pieces: u64,
    /// Turns that began or went on after the grain had become active elsewhere.
    pub(super) stale_turns: u64,
    /// Number of stale hooks at the beginning and the end of an activation.
    pub(super) stale_hooks: u64,
    /// Activations that began while an earlier one could still run.
    pub(super) early: u64,
    /// Time after the later activation's beginning at which the last stale piece ended.
    pub(super) worst: Duration,
    /// Pieces in whose middle, or between whose admission and first statement, the process was
    /// stopped.
    pub(super) caught: u64,
    /// Some of the stale pieces in words.
    pub(super) told: Vec<String>,
}

impl Verdict {
    /// Both together.
    pub(super) fn add(&mut self, other: &Self) {
        self.grains += other.grains;
        self.pieces += other.pieces;
        self.stale_turns += other.stale_turns;
        self.stale_hooks += other.stale_hooks;
        self.early += other.early;
        self.worst = self.worst.max(other.worst);
        self.caught += other.caught;
    }

    /// Turns and hooks.
    pub(super) const fn stale(&self) -> u64 {
        self.stale_turns + self.stale_hooks
    }
}

/// All logs, as far as they were read.
#[derive(Default)]
pub(super) struct Book {
    sources: Vec<Source>,
    grains: BTreeMap<u64, Vec<Noted>>,
}

impl Book {
    /// Adds the log of a silo; its number in this book.
    pub(super) fn open(&mut self, name: &str, path: PathBuf) -> usize {
        let name = name.to_owned();
        let (lost, silent, woken) = (None, None, None);
        self.sources.push(Source {
            name,
            path,
            offset: 0,
            rest: String::new(),
            lost,
            silent,
            woken,
        });
        self.sources.len() - 1
    }

    /// Notes when a silo fell silent.
    pub(super) fn silent(&mut self, silo: usize, at: u64) {
        if let Some(source) = self.sources.get_mut(silo) {
            source.silent = Some(at);
        }
    }

    /// Notes when a stopped silo was woken.
    pub(super) fn woken(&mut self, silo: usize, at: u64) {
        if let Some(source) = self.sources.get_mut(silo) {
            source.woken = Some(at);
        }
    }

    /// Reads the lines since the last call.
    pub(super) fn read(&mut self) -> Result<()> {
        for (silo, source) in
            self.sources.iter_mut().enumerate().filter(|(_, source)| source.lost.is_none())
        {
            let segments = source.read()?;
            for segment in segments {
                let noted = Noted { silo, judged: false, segment };
                self.grains.entry(segment.key).or_default().push(noted);
            }
        }
        Ok(())
    }

    /// Number of lines this silo lost; none when its log has no end.
    pub(super) fn lost(&self, silo: usize) -> Option<u64> {
        self.sources.get(silo).and_then(|source| source.lost)
    }

    /// Judges every piece that ended before `cutoff` and was not judged before, and forgets grains
    /// of long ago.
    pub(super) fn judge(&mut self, cutoff: u64) -> Verdict {
        let mut verdict = Verdict::default();
        let doors = self.doors();
        for (key, pieces) in &mut self.grains {
            Grain::new(*key, pieces, &self.sources).judge(pieces, cutoff, &doors, &mut verdict);
        }
        let kept = cutoff.saturating_sub(nanos(KEPT));
        self.grains.retain(|_, pieces| pieces.iter().any(|noted| noted.segment.end >= kept));
        verdict
    }

    /// The first turn that each thread of a woken silo began.
    fn doors(&self) -> BTreeSet<(usize, u64)> {
        let mut first: BTreeMap<(usize, u32), (u64, u64)> = BTreeMap::new();
        for Noted { silo, segment, .. } in self.grains.values().flatten() {
            let woken = self.sources.get(*silo).and_then(|source| source.woken);
            let door = woken.map(|at| at..at.saturating_add(nanos(DOOR)));
            if door.is_some_and(|door| door.contains(&segment.begin)) {
                let earliest =
                    first.entry((*silo, segment.thread)).or_insert((segment.begin, segment.turn));
                *earliest = (*earliest).min((segment.begin, segment.turn));
            }
        }
        first.into_iter().map(|((silo, _), (_, turn))| (silo, turn)).collect()
    }

    /// Number of turns this silo began or continued after `since`.
    pub(super) fn turns_since(&self, silo: usize, since: u64) -> usize {
        let late = |noted: &&Noted| {
            noted.silo == silo && noted.segment.begin > since && noted.segment.kind.is_turn()
        };
        self.grains.values().flatten().filter(late).count()
    }

    /// Number of turns this silo ran.
    pub(super) fn turns(&self, silo: usize) -> usize {
        let first = |noted: &&Noted| {
            noted.silo == silo && noted.segment.part == 0 && noted.segment.kind.is_turn()
        };
        self.grains.values().flatten().filter(first).count()
    }

    /// The grains that were active on `silo` at `fault`: those with a turn within `recent` before,
    /// which was not their last.
    pub(super) fn active(&self, silo: usize, fault: u64, recent: Duration) -> Vec<u64> {
        let before = fault.saturating_sub(nanos(recent))..fault;
        let active = |pieces: &Vec<Noted>| {
            let here =
                pieces.iter().filter(|n| n.silo == silo && before.contains(&n.segment.begin));
            let last = here.max_by_key(|noted| noted.segment.begin);
            last.is_some_and(|noted| noted.segment.kind.is_turn())
        };
        self.grains.iter().filter(|(_, pieces)| active(pieces)).map(|(key, _)| *key).collect()
    }

    /// Times after `fault` at which those of `grains` that were active on `silo` became active on
    /// another silo, in order.
    pub(super) fn moved(&self, silo: usize, fault: u64, grains: &[u64]) -> Vec<Duration> {
        let begin = |pieces: &Vec<Noted>| {
            let elsewhere =
                pieces.iter().filter(|noted| noted.silo != silo).map(|noted| noted.segment.begin);
            elsewhere.filter(|begin| *begin > fault).min()
        };
        let begins = grains.iter().filter_map(|key| self.grains.get(key)).filter_map(begin);
        let mut moved: Vec<Duration> =
            begins.map(|begin| Duration::from_nanos(begin - fault)).collect();
        moved.sort_unstable();
        moved
    }
}

impl Source {
    fn read(&mut self) -> Result<Vec<Segment>> {
        let failed =
            |why: &dyn std::fmt::Display| Failure::other(format!("{}: {why}", self.path.display()));
        let mut text = std::mem::take(&mut self.rest);
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            // The process has not come so far.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        file.seek(SeekFrom::Start(self.offset)).map_err(|e| failed(&e))?;
        let read = file.read_to_string(&mut text).map_err(|e| failed(&e))?;
        self.offset += read as u64;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        self.rest = text.split_off(whole);
        let mut segments = Vec::new();
        for line in text.lines() {
            if let Some(lost) = line.strip_prefix(END) {
                self.lost = Some(lost.parse().map_err(|e: std::num::ParseIntError| failed(&e))?);
            } else {
                segments.push(
                    Segment::parse(line)
                        .ok_or_else(|| failed(&format!("{line:?} is no line of a turn log")))?,
                );
            }
        }
        Ok(segments)
    }
}

/// One activation, by its pieces.
#[derive(Clone, Copy)]
struct Life {
    begin: u64,
    end: u64,
    silo: usize,
    number: u64,
    /// True if its first hook has ended.
    turned: bool,
    /// When the hook at its end began.
    leaving: Option<u64>,
}

impl Life {
    /// Returns true if it may still run at `at`, by what ran later or by what did not happen
    /// before.
    fn lives_at(&self, at: u64, sources: &[Source]) -> bool {
        let silent = sources.get(self.silo).and_then(|source| source.silent);
        let gone = self.leaving.is_some_and(|since| since <= at)
            || silent.is_some_and(|since| since <= at);
        self.end > at || (self.turned && !gone)
    }
}

/// The activations of one grain.
struct Grain<'a> {
    key: u64,
    sources: &'a [Source],
    /// Lives that count, in the order of their beginnings.
    order: Vec<Life>,
    /// Lives that a silent silo began while another one lived, and that one.
    wrong: Vec<(Life, Life)>,
}

impl<'a> Grain<'a> {
    fn new(key: u64, pieces: &[Noted], sources: &'a [Source]) -> Self {
        let mut lives: BTreeMap<(usize, u64), Life> = BTreeMap::new();
        for Noted { silo, segment, .. } in pieces {
            let Segment { begin, end, activation: number, kind, .. } = *segment;
            let new = Life { begin, end, silo: *silo, number, turned: false, leaving: None };
            let life = lives.entry((*silo, number)).or_insert(new);
            (life.begin, life.end) = (life.begin.min(begin), life.end.max(end));
            life.turned |= kind.is_turn();
            if kind == Kind::Deactivate {
                life.leaving = Some(life.leaving.map_or(begin, |since| since.min(begin)));
            }
        }
        let mut sorted: Vec<Life> = lives.into_values().collect();
        sorted.sort_unstable_by_key(|life| (life.begin, life.silo));
        let (mut order, mut wrong) = (Vec::<Life>::new(), Vec::new());
        for life in sorted {
            let silent = sources.get(life.silo).and_then(|source| source.silent);
            let other =
                order.iter().rev().find(|o| o.silo != life.silo && o.lives_at(life.begin, sources));
            match other.filter(|_| silent.is_some_and(|since| since < life.begin)) {
                Some(other) => wrong.push((life, *other)),
                None => order.push(life),
            }
        }
        Self { key, sources, order, wrong }
    }

    /// From when on nothing of an activation may run, and the activation that forbids it.
    fn limit(&self, silo: usize, number: u64) -> Option<(u64, Life)> {
        let is = |life: &Life| (life.silo, life.number) == (silo, number);
        if let Some((wrong, other)) = self.wrong.iter().find(|(wrong, _)| is(wrong)) {
            let silent = self.sources.get(wrong.silo).and_then(|source| source.silent);
            return Some((other.begin.max(silent.unwrap_or_default()), *other));
        }
        let own = self.order.iter().position(is)?;
        self.order.get(own + 1).map(|next| (next.begin, *next))
    }

    fn judge(
        &self,
        pieces: &mut [Noted],
        cutoff: u64,
        doors: &BTreeSet<(usize, u64)>,
        verdict: &mut Verdict,
    ) {
        let mut seen = false;
        let (mut turns, mut hooks, mut early) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for noted in pieces.iter_mut().filter(|noted| !noted.judged && noted.segment.end <= cutoff)
        {
            noted.judged = true;
            seen = true;
            verdict.pieces += 1;
            let Noted { silo, segment, .. } = *noted;
            if self.is_early(silo, &segment) {
                early.insert((silo, segment.activation));
            }
            let Some((limit, other)) = self.limit(silo, segment.activation) else { continue };
            if segment.end <= limit {
                continue;
            }
            let woken = self.sources.get(silo).and_then(|source| source.woken);
            let in_the_middle = woken.is_some_and(|at| segment.begin < at && at < segment.end);
            if in_the_middle || (segment.part == 0 && doors.contains(&(silo, segment.turn))) {
                verdict.caught += 1;
                continue;
            }
            let set = if segment.kind.is_turn() { &mut turns } else { &mut hooks };
            set.insert((silo, segment.turn));
            let wrong = self
                .wrong
                .iter()
                .any(|(life, _)| (life.silo, life.number) == (silo, segment.activation));
            early.insert(if wrong {
                (silo, segment.activation)
            } else {
                (other.silo, other.number)
            });
            verdict.worst = verdict.worst.max(Duration::from_nanos(segment.end - limit));
            if verdict.told.len() < TOLD_MAX {
                verdict.told.push(tell(self.key, (silo, &segment), (limit, &other), self.sources));
            }
        }
        verdict.grains += usize::from(seen);
        verdict.stale_turns += turns.len() as u64;
        verdict.stale_hooks += hooks.len() as u64;
        verdict.early += early.len() as u64;
    }

    /// Returns true if this is the first piece of an activation that began while the one before it
    /// lived on another silo, even if that one never ran again.
    fn is_early(&self, silo: usize, segment: &Segment) -> bool {
        let own = self.order.iter().position(|life| {
            (life.silo, life.number, life.begin) == (silo, segment.activation, segment.begin)
        });
        let before = own.and_then(|own| self.order.get(own.checked_sub(1)?));
        segment.kind != Kind::Arrive
            && before
                .is_some_and(|life| life.silo != silo && life.lives_at(segment.begin, self.sources))
    }
}

fn tell(
    key: u64,
    (silo, segment): (usize, &Segment),
    (limit, other): (u64, &Life),
    sources: &[Source],
) -> String {
    let name = |silo: usize| sources.get(silo).map_or("?", |source| source.name.as_str());
    let how = match (segment.kind, segment.part) {
        (Kind::Activate, _) => "its hook at the beginning",
        (Kind::Deactivate, _) => "its hook at the end",
        (Kind::Arrive, _) => "its hook of arrival",
        (_, 0) if segment.begin > limit => "a turn that began",
        (_, 0) => "a turn that ran",
        _ => "a suspended turn that went on",
    };
    let ms = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64() * 1_000.0;
    format!(
        "grain {key}: {how} ({}, part {}) on {} ended {:.3} ms after it was {}'s; it took {:.3} ms",
        segment.kind.name(),
        segment.part,
        name(silo),
        ms(segment.end - limit),
        name(other.silo),
        ms(segment.end - segment.begin),
    )
}

/// A span in nanoseconds.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
