//! The memory of a silo about each silo that it probes.

use std::time::Duration;

use emmer_core::Instant;

use crate::config::{Config, grown};

/// The most unanswered probes of one burst whose send times are remembered.
const UNANSWERED_MAX: usize = 12;

/// Number of misses in a row after which a silo that answers dials gets a new connection: a
/// firewall may have forgotten the old one. A slow silo answers one of as many.
pub(super) const RENEW_MISSES: u32 = 3;

/// One probed silo.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// Unanswered probes: number and when they were sent, oldest first.
    unanswered: Vec<(u64, Instant)>,
    /// Time at which the probe in flight counts as missed.
    deadline: Option<Instant>,
    /// Time at which the next probe is due, if none is in flight.
    next_at: Instant,
    /// Time at which the last probe was sent.
    last_sent: Instant,
    /// Probes missed since enough were answered.
    misses: u32,
    /// Answers since the first of them.
    answers: u32,
    /// Time at which the first probe missed in a row was sent.
    missed_since: Option<Instant>,
    /// Time at which the last answered probe had been sent.
    answered: Option<Instant>,
    /// Time at which application bytes were heard from it last.
    heard: Option<Instant>,
    /// True if a witness existed when the last probe was sent (improvement 4).
    witnessed: bool,
    /// True if the deadline was already put off because this process had been paused.
    graced: bool,
    /// A dial was refused, or found a later incarnation, since the last answer.
    refused: bool,
    /// A connection has broken since the last answer.
    broken: bool,
    /// The peer's kernel has ended a connection in good order since the last answer, without a
    /// goodbye of the process.
    closed: bool,
    /// Time at which a connection ended last since the last answer.
    lost: Option<Instant>,
    /// Number of probes that were sent again since the last answer, because theirs went with their
    /// connection.
    repeats: u32,
    /// The connection was renewed since the last answer.
    renewed: bool,
    /// Time since when the process is known to be gone: its kernel ended a connection and refuses
    /// new ones.
    gone_since: Option<Instant>,
    /// True if this silo has wished for a vote against it since the last answer.
    suspected: bool,
    /// Time since when it has been seen as Joining.
    joining_since: Option<Instant>,
    /// It has been Joining for too long: answering does not help it.
    stuck: bool,
    /// The stamp of its last answer, to be given back.
    echo: u64,
    rtt: Rtt,
}

/// Meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It answers nothing that was asked.
    Unknown,
    /// One of several that are needed: too many probes were missed.
    Counted,
    /// It lives.
    Lives,
}

/// Smoothed round-trip time and its mean deviation (Jacobson), in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Rtt {
    samples: u32,
    mean: u64,
    deviation: u64,
}

impl Rtt {
    fn add(&mut self, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX / 16);
        if self.samples == 0 {
            (self.mean, self.deviation) = (sample, sample / 2);
        } else {
            self.deviation = self.deviation - self.deviation / 4 + self.mean.abs_diff(sample) / 4;
            self.mean = self.mean - self.mean / 8 + sample / 8;
        }
        self.samples = self.samples.saturating_add(1);
    }
}

/// Number of probes in a row that are sent again because theirs went with their connection.
const REPEATS_MAX: u32 = 3;

/// Number of round trips that are needed before they set the timeout.
const SAMPLES_MIN: u32 = 4;

impl Peer {
    pub(super) fn new(first_probe: Instant) -> Self {
        Self {
            unanswered: Vec::new(),
            deadline: None,
            next_at: first_probe,
            last_sent: Instant::ZERO,
            misses: 0,
            answers: 0,
            missed_since: None,
            answered: None,
            heard: None,
            witnessed: false,
            graced: false,
            refused: false,
            broken: false,
            closed: false,
            lost: None,
            repeats: 0,
            renewed: false,
            gone_since: None,
            suspected: false,
            joining_since: None,
            stuck: false,
            echo: 0,
            rtt: Rtt::default(),
        }
    }

    /// Number of probes that were missed since enough were answered.
    pub(super) const fn misses(&self) -> u32 {
        self.misses
    }

    /// Time at which the first probe missed in a row was sent.
    pub(super) const fn missed_since(&self) -> Option<Instant> {
        self.missed_since
    }

    /// Returns true if a probe sent at `since` or later was answered.
    pub(super) fn has_answered_since(&self, since: Instant) -> bool {
        self.answered.is_some_and(|sent| sent >= since)
    }

    /// Returns true if a probe is on its way.
    pub(super) const fn is_in_flight(&self) -> bool {
        self.deadline.is_some()
    }

    /// The next probe is due at this time.
    pub(super) const fn probe_at(&mut self, at: Instant) {
        self.next_at = at;
    }

    /// The time of the next probe where each follows the last one after `period`.
    pub(super) fn regular(&self, now: Instant, period: Duration) -> Instant {
        (self.last_sent + period).max(now)
    }

    /// Puts the deadline of a probe off to `until`, once, if it is over now.
    pub(super) fn grace(&mut self, now: Instant, until: Instant) {
        if !self.graced && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = Some(until);
            self.graced = true;
        }
    }

    /// Application bytes of it arrived.
    pub(super) const fn hear(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Returns true if such bytes came within `window`; with a window of zero: after the last probe
    /// was sent.
    pub(super) fn is_heard(&self, now: Instant, window: Duration) -> bool {
        let Some(heard) = self.heard else { return false };
        if window > Duration::ZERO {
            return now.saturating_since(heard) < window;
        }
        // Only bytes that came after the last missed probe was sent say that it lives now.
        heard >= self.last_sent
    }

    /// A connection to it has ended: `in_order` by its kernel, without a goodbye of the process.
    pub(super) fn lose_connection(&mut self, now: Instant, in_order: bool) {
        self.heard = None;
        self.broken |= !in_order;
        self.closed |= in_order;
        self.lost = Some(now);
        self.note_gone(now);
    }

    /// The peer answers a dial. Returns true if the probe in flight is sent again: it was lost with
    /// its connection. That happens [`REPEATS_MAX`] times in a row at most, so that a peer that
    /// nothing reaches is missed at last.
    pub(super) fn repeats_probe(&mut self) -> bool {
        let with_it =
            self.deadline.is_some() && self.lost.is_some_and(|lost| lost >= self.last_sent);
        let repeats = with_it && self.repeats < REPEATS_MAX;
        self.repeats += u32::from(repeats);
        repeats
    }

    /// The peer answers a dial. Returns true, once for each silence, if its connection must be
    /// renewed: after `RENEW_MISSES` missed probes the old connection seems to lose messages.
    pub(super) const fn renews(&mut self) -> bool {
        self.misses >= RENEW_MISSES && !std::mem::replace(&mut self.renewed, true)
    }

    /// Its host says that no such process listens there.
    pub(super) fn refuse(&mut self, now: Instant) {
        self.refused = true;
        self.note_gone(now);
    }

    /// The kernel of this silo says that no such process is there.
    pub(super) fn vacate(&mut self, now: Instant) {
        self.refused = true;
        self.gone_since.get_or_insert(now);
    }

    /// Returns true if its host has said so since the last answer.
    pub(super) const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns true if the host refuses after a connection has ended.
    pub(super) const fn is_refused_after_loss(&self) -> bool {
        self.refused && (self.broken || self.closed)
    }

    /// Returns true if this silo had a witness when the last probe was sent (improvement 4).
    pub(super) const fn is_witnessed(&self) -> bool {
        self.witnessed
    }

    pub(super) const fn witness(&mut self, witnessed: bool) {
        self.witnessed = witnessed;
    }

    /// A vote against it is wished for; whether this is the first since the last answer.
    pub(super) const fn suspect(&mut self) -> bool {
        !std::mem::replace(&mut self.suspected, true)
    }

    /// It is no longer suspected. Returns true if it was.
    pub(super) const fn clear(&mut self) -> bool {
        std::mem::replace(&mut self.suspected, false)
    }

    pub(super) const fn is_suspected(&self) -> bool {
        self.suspected
    }

    /// Notes that the peer is Joining. Returns true if it has been for longer than `limit`, so that
    /// answering does not help it.
    pub(super) fn is_joining(&mut self, now: Instant, limit: Duration) -> bool {
        let since = *self.joining_since.get_or_insert(now);
        self.stuck = now.saturating_since(since) > limit;
        self.stuck
    }

    /// It is no longer Joining.
    pub(super) const fn has_joined(&mut self) {
        (self.joining_since, self.stuck) = (None, false);
    }

    pub(super) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// The stamp of its last answer, to be given back.
    pub(super) const fn echo(&self) -> u64 {
        self.echo
    }

    pub(super) const fn stamp(&mut self, stamp: u64) {
        self.echo = stamp;
    }

    /// Time since when its process is known to be gone.
    pub(super) const fn gone_since(&self) -> Option<Instant> {
        self.gone_since
    }

    /// Time at which something has to be done about this peer.
    pub(super) fn due(&self) -> Instant {
        self.deadline.unwrap_or(self.next_at)
    }

    /// Measured time that the first probe after an answer may take.
    fn base_timeout(&self, config: &Config) -> Duration {
        if !config.adaptive_probe_timeouts || self.rtt.samples < SAMPLES_MIN {
            return config.probe_timeout;
        }
        let measured = self.rtt.mean.saturating_add(self.rtt.deviation.saturating_mul(4));
        Duration::from_nanos(measured).clamp(config.min_probe_timeout, config.max_probe_timeout)
    }

    /// The longest round trip that one answer can stand for. An answer that a cut held up for
    /// seconds says little about later round trips. On a slow link every answer is late, and each
    /// may double the timeout.
    pub(super) fn longest_sample(&self, config: &Config) -> Duration {
        self.base_timeout(config).saturating_mul(2)
    }

    /// Time that the next probe may take: measured, grown with each miss, stretched by the own
    /// health score.
    pub(super) fn timeout(&self, config: &Config, stretch: u32) -> Duration {
        let mut timeout = self.base_timeout(config);
        // Beyond the limit the timeouts stop growing: from then on probes only renew the evidence.
        for _ in 0..self.misses.min(config.num_missed_probes_limit.saturating_sub(1)) {
            timeout = grown(timeout, config.probe_timeout_growth_percent);
        }
        timeout.saturating_mul(stretch.max(1))
    }

    pub(super) fn on_sent(&mut self, now: Instant, seq: u64, timeout: Duration) {
        if self.unanswered.len() >= UNANSWERED_MAX {
            self.unanswered.remove(1);
        }
        self.unanswered.push((seq, now));
        self.last_sent = now;
        self.deadline = Some(now + timeout);
        self.graced = false;
    }

    /// Time since the unanswered probe `seq` was sent.
    pub(super) fn waits_since(&self, now: Instant, seq: u64) -> Option<Duration> {
        let probe = self.unanswered.iter().find(|(sent, _)| *sent == seq);
        probe.map(|(_, sent)| now.saturating_since(*sent))
    }

    /// An answer to probe `seq` came. It counts if that probe is unanswered, even if it is late.
    /// After misses `enough` answers clear them. It stands for a round trip of `longest` at most.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        seq: u64,
        period: Duration,
        enough: u32,
        longest: Duration,
    ) -> Answer {
        let Some(at) = self.unanswered.iter().position(|(s, _)| *s == seq) else {
            return Answer::Unknown;
        };
        let (_, sent) = self.unanswered[at];
        if self.answers == 0 {
            // One late answer of a burst says what there is to say about the round trip.
            self.rtt.add(now.saturating_since(sent).min(longest));
        }
        self.answered = Some(self.answered.map_or(sent, |old| old.max(sent)));
        self.answers = self.answers.saturating_add(1);
        if self.misses == 0 || self.answers >= enough {
            self.calm(now, period);
            return Answer::Lives;
        }
        self.forget_hints();
        if at + 1 == self.unanswered.len() && self.deadline.take().is_some() {
            // Asks again at once.
            self.next_at = now;
        }
        self.unanswered.remove(at);
        Answer::Counted
    }

    /// Returns true if the process is known to be gone.
    pub(super) const fn is_gone(&self) -> bool {
        self.gone_since.is_some()
    }

    /// Notes since when the process is known to be gone, if it is now.
    fn note_gone(&mut self, now: Instant) {
        if self.closed && self.refused {
            self.gone_since.get_or_insert(now);
        }
    }

    /// The peer answers: earlier words of its host mean nothing now.
    const fn forget_hints(&mut self) {
        self.refused = false;
        self.broken = false;
        self.closed = false;
        self.lost = None;
        self.repeats = 0;
        self.renewed = false;
        self.gone_since = None;
    }

    /// It lives: forgets every miss.
    pub(super) fn calm(&mut self, now: Instant, period: Duration) {
        self.unanswered.clear();
        self.deadline = None;
        self.next_at = (self.last_sent + period).max(now);
        self.misses = 0;
        self.answers = 0;
        self.missed_since = None;
        self.forget_hints();
        self.witnessed = false;
    }

    /// The probe in flight was missed.
    pub(super) fn on_miss(&mut self) {
        self.deadline = None;
        self.misses = self.misses.saturating_add(1);
        let first = self.unanswered.first().map_or(self.last_sent, |(_, at)| *at);
        self.missed_since.get_or_insert(first);
    }
}

#[cfg(test)]
mod tests;
