//! What a silo remembers about each silo it probes.

use std::time::Duration;

use emmer_core::Instant;

use crate::config::{Config, grown};

/// The most unanswered probes of one burst whose send times are remembered.
const UNANSWERED_MAX: usize = 12;

/// One probed silo.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    /// Unanswered probes: number and when they were sent, oldest first.
    unanswered: Vec<(u64, Instant)>,
    /// When the probe in flight counts as missed.
    deadline: Option<Instant>,
    /// When the next probe is due, if none is in flight.
    next_at: Instant,
    /// When the last probe was sent.
    last_sent: Instant,
    /// Probes missed since enough were answered.
    misses: u32,
    /// Answers since the first of them.
    answers: u32,
    /// When the first probe missed in a row was sent.
    missed_since: Option<Instant>,
    /// When the last answered probe had been sent.
    answered: Option<Instant>,
    /// When application bytes were heard from it last.
    heard: Option<Instant>,
    /// Whether a witness existed when the last probe was sent (improvement 4).
    witnessed: bool,
    /// Whether the deadline was already put off because this process had been paused.
    graced: bool,
    /// A dial was refused, or found a later incarnation, since the last answer.
    refused: bool,
    /// A connection has broken since the last answer.
    broken: bool,
    /// The peer's kernel has ended a connection in good order since the last answer, without a goodbye of the process.
    closed: bool,
    /// When a connection ended last since the last answer.
    lost: Option<Instant>,
    /// How many probes were sent again since the last answer, because theirs went with their connection.
    repeats: u32,
    /// Since when the process is known to be gone: its kernel ended a connection and refuses new ones.
    gone_since: Option<Instant>,
    /// Whether this silo has wished for a vote against it since the last answer.
    suspected: bool,
    /// Since when it has been seen as Joining.
    joining_since: Option<Instant>,
    /// It has been Joining for too long: answering does not help it.
    stuck: bool,
    /// The stamp of its last answer, to be given back.
    echo: u64,
    rtt: Rtt,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
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

/// How many probes in a row are sent again because theirs went with their connection.
const REPEATS_MAX: u32 = 3;

/// How many round trips are needed before they set the timeout.
const SAMPLES_MIN: u32 = 4;

impl Peer {
    pub(crate) fn new(first_probe: Instant) -> Self {
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
            gone_since: None,
            suspected: false,
            joining_since: None,
            stuck: false,
            echo: 0,
            rtt: Rtt::default(),
        }
    }

    /// How many probes were missed since enough were answered.
    pub(crate) const fn misses(&self) -> u32 {
        self.misses
    }

    /// When the first probe missed in a row was sent.
    pub(crate) const fn missed_since(&self) -> Option<Instant> {
        self.missed_since
    }

    /// Whether a probe sent at `since` or later was answered.
    pub(crate) fn has_answered_since(&self, since: Instant) -> bool {
        self.answered.is_some_and(|sent| sent >= since)
    }

    /// Whether a probe is on its way.
    pub(crate) const fn is_in_flight(&self) -> bool {
        self.deadline.is_some()
    }

    /// The next probe is due at this time.
    pub(crate) const fn probe_at(&mut self, at: Instant) {
        self.next_at = at;
    }

    /// The time of the next probe where each follows the last one after `period`.
    pub(crate) fn regular(&self, now: Instant, period: Duration) -> Instant {
        (self.last_sent + period).max(now)
    }

    /// Puts the deadline of a probe off to `until`, once, if it is over now.
    pub(crate) fn grace(&mut self, now: Instant, until: Instant) {
        if !self.graced && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = Some(until);
            self.graced = true;
        }
    }

    /// Application bytes of it arrived.
    pub(crate) const fn hear(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Whether such bytes came within `window`; with a window of zero: after the last probe was sent.
    pub(crate) fn is_heard(&self, now: Instant, window: Duration) -> bool {
        let Some(heard) = self.heard else { return false };
        if window > Duration::ZERO {
            return now.saturating_since(heard) < window;
        }
        // Only bytes that came after the last missed probe was sent say that it lives now.
        heard >= self.last_sent
    }

    /// A connection to it has ended: `in_order` by its kernel, without a goodbye of the process.
    pub(crate) fn lose_connection(&mut self, now: Instant, in_order: bool) {
        self.heard = None;
        self.broken |= !in_order;
        self.closed |= in_order;
        self.lost = Some(now);
        self.note_gone(now);
    }

    /// It answers a dial. Whether the probe in flight is to be sent again: it was lost with its connection, and says nothing of the
    /// peer. That happens [`REPEATS_MAX`] times in a row at most, so that a peer that nothing reaches is missed at last.
    pub(crate) fn repeats_probe(&mut self) -> bool {
        let with_it = self.deadline.is_some() && self.lost.is_some_and(|lost| lost >= self.last_sent);
        let repeats = with_it && self.repeats < REPEATS_MAX;
        self.repeats += u32::from(repeats);
        repeats
    }

    /// Its host says that no such process listens there.
    pub(crate) fn refuse(&mut self, now: Instant) {
        self.refused = true;
        self.note_gone(now);
    }

    /// Whether its host has said so since the last answer.
    pub(crate) const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether the host refuses after a connection has ended.
    pub(crate) const fn is_refused_after_loss(&self) -> bool {
        self.refused && (self.broken || self.closed)
    }

    /// Whether this silo had a witness when the last probe was sent (improvement 4).
    pub(crate) const fn is_witnessed(&self) -> bool {
        self.witnessed
    }

    pub(crate) const fn witness(&mut self, witnessed: bool) {
        self.witnessed = witnessed;
    }

    /// A vote against it is wished for; whether this is the first since the last answer.
    pub(crate) const fn suspect(&mut self) -> bool {
        !std::mem::replace(&mut self.suspected, true)
    }

    /// It is suspected no more; whether it was.
    pub(crate) const fn clear(&mut self) -> bool {
        std::mem::replace(&mut self.suspected, false)
    }

    pub(crate) const fn is_suspected(&self) -> bool {
        self.suspected
    }

    /// It is Joining at this time; whether it has been for longer than `limit`, so that answering does not help it.
    pub(crate) fn is_joining(&mut self, now: Instant, limit: Duration) -> bool {
        let since = *self.joining_since.get_or_insert(now);
        self.stuck = now.saturating_since(since) > limit;
        self.stuck
    }

    /// It is not Joining any more.
    pub(crate) const fn has_joined(&mut self) {
        (self.joining_since, self.stuck) = (None, false);
    }

    pub(crate) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// The stamp of its last answer, to be given back.
    pub(crate) const fn echo(&self) -> u64 {
        self.echo
    }

    pub(crate) const fn stamp(&mut self, stamp: u64) {
        self.echo = stamp;
    }

    /// Since when its process is known to be gone.
    pub(crate) const fn gone_since(&self) -> Option<Instant> {
        self.gone_since
    }

    /// When something has to be done about this peer.
    pub(crate) fn due(&self) -> Instant {
        self.deadline.unwrap_or(self.next_at)
    }

    /// How long the first probe after an answer may take, as measured.
    fn base_timeout(&self, config: &Config) -> Duration {
        if !config.adaptive_probe_timeouts || self.rtt.samples < SAMPLES_MIN {
            return config.probe_timeout;
        }
        let measured = self.rtt.mean.saturating_add(self.rtt.deviation.saturating_mul(4));
        Duration::from_nanos(measured).clamp(config.min_probe_timeout, config.max_probe_timeout)
    }

    /// The longest round trip that one answer can stand for. What was held up by a cut and came out of it seconds later says little about
    /// the round trips after it; a link that has become slow shows it with every answer, and each may double the timeout.
    pub(crate) fn longest_sample(&self, config: &Config) -> Duration {
        self.base_timeout(config).saturating_mul(2)
    }

    /// How long the next probe may take: measured, grown with each miss, stretched by the own health score.
    pub(crate) fn timeout(&self, config: &Config, stretch: u32) -> Duration {
        let mut timeout = self.base_timeout(config);
        // Beyond the limit the timeouts stop growing: from then on probes only renew the evidence.
        for _ in 0..self.misses.min(config.num_missed_probes_limit.saturating_sub(1)) {
            timeout = grown(timeout, config.probe_timeout_growth_percent);
        }
        timeout.saturating_mul(stretch.max(1))
    }

    pub(crate) fn on_sent(&mut self, now: Instant, seq: u64, timeout: Duration) {
        if self.unanswered.len() >= UNANSWERED_MAX {
            self.unanswered.remove(1);
        }
        self.unanswered.push((seq, now));
        self.last_sent = now;
        self.deadline = Some(now + timeout);
        self.graced = false;
    }

    /// An answer to probe `seq` came. It counts when it is one of the unanswered ones, also a late one; after misses it takes
    /// `enough` of them to forget those. It stands for a round trip of `longest` at most.
    pub(crate) fn on_answer(
        &mut self,
        now: Instant,
        seq: u64,
        period: Duration,
        enough: u32,
        longest: Duration,
    ) -> Answer {
        let Some(at) = self.unanswered.iter().position(|(s, _)| *s == seq) else { return Answer::Unknown };
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

    /// Whether the process is known to be gone.
    pub(crate) const fn is_gone(&self) -> bool {
        self.gone_since.is_some()
    }

    /// Notes since when the process is known to be gone, if it is now.
    fn note_gone(&mut self, now: Instant) {
        if self.closed && self.refused {
            self.gone_since.get_or_insert(now);
        }
    }

    /// It answers: what its host said before means nothing any more.
    const fn forget_hints(&mut self) {
        self.refused = false;
        self.broken = false;
        self.closed = false;
        self.lost = None;
        self.repeats = 0;
        self.gone_since = None;
    }

    /// It lives: forgets every miss.
    pub(crate) fn calm(&mut self, now: Instant, period: Duration) {
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
    pub(crate) fn on_miss(&mut self) {
        self.deadline = None;
        self.misses = self.misses.saturating_add(1);
        let first = self.unanswered.first().map_or(self.last_sent, |(_, at)| *at);
        self.missed_since.get_or_insert(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn patience_is_the_sum_of_the_growing_timeouts() {
        let config = Config::default();
        let mut peer = Peer::new(at(0));
        let mut sum = Duration::ZERO;
        for _ in 0..config.num_missed_probes_limit {
            sum += peer.timeout(&config, 1);
            peer.on_sent(at(0), 1, Duration::ZERO);
            peer.on_miss();
        }
        assert_eq!(sum, config.patience());
        assert!((Duration::from_millis(4_100)..Duration::from_millis(4_200)).contains(&sum), "{sum:?}");
    }

    #[test]
    fn slow_round_trips_lengthen_the_timeout_even_when_their_answers_come_late() {
        let config = Config::default();
        let mut peer = Peer::new(at(0));
        for i in 0..20 {
            peer.on_sent(at(i * 1000), i, Duration::from_millis(200));
            peer.on_miss();
            peer.on_sent(at(i * 1000 + 200), 100 + i, Duration::from_millis(300));
            let longest = peer.longest_sample(&config);
            let answer = peer.on_answer(at(i * 1000 + 400), i, Duration::from_secs(1), 1, longest);
            assert_eq!(answer, Answer::Lives);
        }
        let timeout = peer.timeout(&config, 1);
        assert!(timeout >= Duration::from_millis(400) && timeout < Duration::from_millis(600), "{timeout:?}");
    }

    #[test]
    fn an_answer_that_a_cut_held_up_hardly_lengthens_the_timeout() {
        let config = Config::default();
        let mut peer = Peer::new(at(0));
        let mut answer = |seq: u64, took: u64| {
            peer.on_sent(at(seq * 5_000), seq, Duration::from_millis(200));
            let longest = peer.longest_sample(&config);
            peer.on_answer(at(seq * 5_000 + took), seq, Duration::from_secs(1), 1, longest);
            peer.timeout(&config, 1)
        };
        assert!((0..20).map(|seq| answer(seq, 1)).all(|timeout| timeout <= config.probe_timeout));
        assert!(answer(20, 3_000) <= config.min_probe_timeout * 5 / 2);
        // A link that is slow from now on is learnt in a few answers.
        assert!((21..29).map(|seq| answer(seq, 3_000)).last() >= Some(Duration::from_secs(3)));
    }

    #[test]
    fn an_unknown_answer_changes_nothing() {
        let mut peer = Peer::new(at(0));
        peer.on_sent(at(0), 1, Duration::from_millis(200));
        peer.on_miss();
        assert_eq!(peer.on_answer(at(300), 9, Duration::from_secs(1), 1, Duration::MAX), Answer::Unknown);
        assert_eq!(peer.misses, 1);
    }

    /// A peer that answers dials, and whose connections break under every probe, is missed at last.
    #[test]
    fn a_probe_that_went_with_its_connection_is_sent_again_three_times_in_a_row() {
        let mut peer = Peer::new(at(0));
        peer.on_sent(at(0), 1, Duration::from_millis(200));
        assert!(!peer.repeats_probe(), "its connection is there");
        for round in 0..2 {
            for n in 0..4 {
                let (now, seq) = (at(1_000 * round + 100 * n), 10 * round + n + 2);
                peer.lose_connection(now, false);
                assert_eq!(peer.repeats_probe(), n < 3, "{n}");
                peer.on_sent(now + Duration::from_millis(1), seq, Duration::from_millis(200));
                assert!(!peer.repeats_probe(), "this one is on another connection");
            }
            let answer =
                peer.on_answer(at(1_000 * round + 500), 10 * round + 5, Duration::ZERO, 1, Duration::MAX);
            assert_eq!(answer, Answer::Lives);
            peer.on_sent(at(1_000 * round + 600), 10 * round + 8, Duration::from_millis(200));
        }
    }

    #[test]
    fn after_misses_one_answer_is_not_enough() {
        let second = Duration::from_secs(1);
        let mut peer = Peer::new(at(0));
        for seq in 1..=3 {
            peer.on_sent(at(seq * 200), seq, Duration::from_millis(200));
            peer.on_miss();
        }
        peer.on_sent(at(800), 4, Duration::from_millis(700));
        // Late, and to an earlier probe: the one in flight goes on.
        assert_eq!(peer.on_answer(at(900), 2, second, 2, Duration::MAX), Answer::Counted);
        assert_eq!((peer.misses, peer.deadline), (3, Some(at(1_500))));
        assert_eq!(peer.on_answer(at(950), 2, second, 2, Duration::MAX), Answer::Unknown, "counts once");
        assert_eq!(peer.on_answer(at(1_000), 4, second, 2, Duration::MAX), Answer::Lives);
        assert_eq!((peer.misses, peer.deadline), (0, None));
        // Without misses one is enough; the one after a single miss is asked for at once.
        peer.on_sent(at(2_000), 5, Duration::from_millis(200));
        peer.on_miss();
        peer.on_sent(at(2_200), 6, Duration::from_millis(300));
        assert_eq!(peer.on_answer(at(2_201), 6, second, 2, Duration::MAX), Answer::Counted);
        assert_eq!((peer.misses, peer.due()), (1, at(2_201)));
    }
}
