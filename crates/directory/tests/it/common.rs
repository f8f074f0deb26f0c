//! One directory under test, driven by hand.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

use emmer_core::ring::RingRange;
use emmer_core::{GrainId, GrainTypeId, Instant, SiloAddress, SiloStatus};
use emmer_directory::{
    Answer, Ask, Config, Directory, Effect, Message, Operation, Outcome, Registration, ReportId,
    Token,
};

pub(crate) use SiloStatus::{Active, Dead, Joining, ShuttingDown};

pub(crate) fn silo(n: u16) -> SiloAddress {
    format!("10.0.0.{n}:11111:{}", 1000 + n).parse().unwrap()
}

pub(crate) fn at(n: u16, activation: u64) -> Registration {
    Registration { silo: silo(n), activation }
}

/// A directory and the time.
pub(crate) struct Bench {
    pub(crate) dir: Directory,
    pub(crate) now: Instant,
}

impl Bench {
    /// The directory of silo `me`, with no view.
    pub(crate) fn new(me: u16, config: Config) -> Self {
        let now = Instant::from_millis(1000);
        Self { dir: Directory::new(silo(me), config, now), now }
    }

    /// The directory of silo 1, alone in view 1 and done with its recovery.
    pub(crate) fn alone() -> Self {
        let mut bench = Self::new(1, Config::default());
        bench.view(1, &[(1, Active)]);
        bench.report_all(&[]);
        assert!(bench.effects().is_empty());
        bench
    }

    /// The directory of silo 1, then joined by silo 2 in view 2, with nothing pending.
    pub(crate) fn with_peer() -> Self {
        let mut bench = Self::alone();
        bench.view(2, &[(1, Active), (2, Active)]);
        assert!(bench.effects().is_empty(), "nothing was gained");
        let handed = bench.from(2, Message::Take { view: 2 });
        let [Effect::Send { message: Message::Handed { series, last: true, .. }, .. }] = handed[..]
        else {
            panic!("{handed:?}")
        };
        bench.from(2, Message::Credit { series, batches: 1 });
        assert_eq!(bench.dir.poll_timeout(), None);
        bench
    }

    pub(crate) fn view(&mut self, version: u64, silos: &[(u16, SiloStatus)]) {
        self.view_fading(version, silos, &[]);
    }

    /// A view, and until when which of its dead may run turns.
    pub(crate) fn view_fading(
        &mut self,
        version: u64,
        silos: &[(u16, SiloStatus)],
        fading: &[(u16, Instant)],
    ) {
        let silos: Vec<_> = silos.iter().map(|(n, status)| (silo(*n), *status)).collect();
        let fading: Vec<_> = fading.iter().map(|(n, until)| (silo(*n), *until)).collect();
        self.dir.handle_view(self.now, version, &silos, &fading);
    }

    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.dir.poll_effect()).collect()
    }

    pub(crate) fn from(&mut self, n: u16, message: Message) -> Vec<Effect> {
        self.dir.handle_message(self.now, silo(n), message);
        self.effects()
    }

    /// The answer to a request of silo `n`.
    pub(crate) fn ask(
        &mut self,
        n: u16,
        view: u64,
        operation: Operation,
        grain: &GrainId,
    ) -> Answer {
        let asks = vec![Ask { id: 77, operation, grain: grain.clone() }];
        let effects = self.from(n, Message::Requests { view, asks });
        if let [Effect::Send { to, message: Message::Responses { answers, .. } }] = &effects[..]
            && *to == silo(n)
            && let [(77, answer)] = answers[..]
        {
            return answer;
        }
        panic!("no answer but {effects:?}");
    }

    /// Answers every question to the local shell with `entries`; returns the other effects.
    pub(crate) fn report_all(&mut self, entries: &[(GrainId, u64)]) -> Vec<Effect> {
        let mut others = Vec::new();
        for effect in self.effects() {
            match effect {
                Effect::ReportLocal { report, ranges } => self.report(report, &ranges, entries),
                other => others.push(other),
            }
        }
        others
    }

    pub(crate) fn report(
        &mut self,
        report: ReportId,
        ranges: &[RingRange],
        entries: &[(GrainId, u64)],
    ) {
        let inside = |grain: &GrainId| ranges.iter().any(|r| r.contains(grain.stable_hash()));
        let entries = entries.iter().filter(|(grain, _)| inside(grain)).cloned().collect();
        self.dir.handle_local_report(self.now, report, entries);
    }

    /// A grain that silo `n` owns by the installed view: the `nth` of them.
    pub(crate) fn grain_of(&self, n: u16, nth: usize) -> GrainId {
        (0u64..)
            .map(|key| GrainId::new(GrainTypeId::of("g"), key))
            .filter(|grain| self.dir.owner_of(grain) == Some(silo(n)))
            .nth(nth)
            .unwrap()
    }

    /// The one request among `effects`: receiver, number, view, operation.
    pub(crate) fn request(effects: &[Effect]) -> (SiloAddress, u64, u64, Operation) {
        let requests: Vec<_> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send { to, message: Message::Requests { view, asks } } => {
                    Some(asks.iter().map(|ask| (*to, ask.id, *view, ask.operation)))
                }
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!(requests.len(), 1, "{effects:?}");
        requests[0]
    }

    pub(crate) fn respond(&mut self, n: u16, id: u64, answer: Answer) -> Vec<Effect> {
        self.from(n, Message::Responses { view: 0, answers: vec![(id, answer)] })
    }

    /// Lets time come to the next deadline.
    pub(crate) fn elapse(&mut self) -> Vec<Effect> {
        self.now = self.now.max(self.dir.poll_timeout().expect("something is due"));
        self.dir.handle_timeout(self.now);
        self.effects()
    }

    pub(crate) fn register(
        &mut self,
        token: u64,
        grain: &GrainId,
        activation: u64,
    ) -> Option<Outcome> {
        self.dir.register(self.now, Token(token), grain, activation)
    }

    pub(crate) fn lookup(&mut self, token: u64, grain: &GrainId) -> Option<Outcome> {
        self.dir.lookup(self.now, Token(token), grain)
    }
}

pub(crate) fn complete(token: u64, outcome: Outcome) -> Effect {
    Effect::Complete { token: Token(token), outcome }
}
