//! Learning the types of other silos: one question for each unknown manifest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress};
use serde::{Deserialize, Serialize};

use super::{Hosted, HostedType, Manifest};
use crate::load::Loads;
use crate::placement::Metadata;

/// Time that a silo is waited for before another one is asked.
const PATIENCE: Duration = Duration::from_millis(500);

/// Number of manifests that are remembered although no Active silo has them.
const PAST_MAX: usize = 16;

/// From silo to silo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Asks for the manifest of this number.
    #[serde(rename = "a")]
    Ask(u64),
    /// It is this one.
    #[serde(rename = "t")]
    Tell(u64, Vec<HostedType>),
    /// The number of this manifest, and the description of its silos.
    #[serde(rename = "d")]
    Describe(u64, Vec<HostedType>, Metadata),
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
    Publish(Hosted),
}

/// A question that is not answered yet.
#[derive(Debug)]
struct Question {
    asked: SiloAddress,
    /// Time at which another silo is asked.
    due: Instant,
}

/// The machine of one silo.
#[derive(Debug)]
pub struct Learner {
    me: SiloAddress,
    own: Arc<Manifest>,
    /// The manifests that are known, this silo's among them.
    known: BTreeMap<u64, Arc<Manifest>>,
    /// Manifests that no Active silo has, ordered by when each was last seen.
    past: VecDeque<u64>,
    /// The Active silos, in the order of their addresses, with the numbers of their manifests.
    silos: Vec<(SiloAddress, Option<u64>)>,
    questions: BTreeMap<u64, Question>,
    effects: VecDeque<Effect>,
}

impl Learner {
    /// The machine of `me`, which hosts `own` and knows no other silo.
    pub fn new(me: SiloAddress, own: Arc<Manifest>) -> Self {
        Self {
            me,
            known: BTreeMap::from([(own.number(), own.clone())]),
            own,
            past: VecDeque::new(),
            silos: Vec::new(),
            questions: BTreeMap::new(),
            effects: VecDeque::new(),
        }
    }

    /// Knowledge by now.
    pub fn hosted(&self) -> Hosted {
        let manifest = |number: &u64| self.known.get(number).cloned();
        let of = |(silo, number): &(SiloAddress, Option<u64>)| {
            (*silo, number.as_ref().and_then(manifest))
        };
        let past = self.past.iter().rev().filter_map(manifest).collect();
        Hosted::new(self.own.clone(), self.silos.iter().map(of).collect(), past)
    }

    /// Silos came or went, or reported.
    pub fn handle_loads(&mut self, now: Instant, loads: &Loads) {
        let own = self.own.number();
        let number = |silo, said| if silo == self.me { Some(own) } else { said };
        let silos: Vec<_> =
            loads.iter().map(|known| (known.silo, number(known.silo, known.manifest))).collect();
        if silos == self.silos {
            return;
        }
        self.silos = silos;
        self.sort();
        self.ask(now);
        self.publish();
    }

    /// A message came from `from`. An answer to no question changes nothing.
    pub fn handle_message(&mut self, now: Instant, from: SiloAddress, message: Message) {
        match message {
            Message::Ask(number) => {
                let Some(manifest) = self.known.get(&number) else { return };
                let types = manifest.types().cloned().collect();
                // Older silos understand the first.
                let message = match manifest.metadata() {
                    metadata if metadata.is_empty() => Message::Tell(number, types),
                    metadata => Message::Describe(number, types, metadata.clone()),
                };
                self.effects.push_back(Effect::Send { to: from, message });
            }
            Message::Tell(number, types) => self.told(now, from, number, types, Metadata::new()),
            Message::Describe(number, types, metadata) => {
                self.told(now, from, number, types, metadata);
            }
        }
    }

    fn told(
        &mut self,
        now: Instant,
        from: SiloAddress,
        number: u64,
        types: Vec<HostedType>,
        metadata: Metadata,
    ) {
        // A silo that was asked before may answer late.
        let is_asked = self.questions.contains_key(&number);
        if !is_asked || !self.silos.contains(&(from, Some(number))) {
            return;
        }
        self.known.insert(number, Arc::new(Manifest::told(number, types, metadata)));
        self.sort();
        self.ask(now);
        self.publish();
    }

    /// A moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.ask(now);
    }

    /// Time for the next call of [`handle_timeout`](Self::handle_timeout); none: not before
    /// something else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.questions.values().map(|question| question.due).min()
    }

    /// The next thing to do; none when there is nothing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Notes which manifests no Active silo has, and forgets the oldest of them.
    fn sort(&mut self) {
        let said = |number: &u64| self.silos.iter().any(|(_, said)| *said == Some(*number));
        let (known, own) = (&self.known, self.own.number());
        self.past.retain(|number| !said(number));
        for number in known.keys().filter(|number| **number != own && !said(number)) {
            if !self.past.contains(number) {
                self.past.push_back(*number);
            }
        }
        while self.past.len() > PAST_MAX {
            if let Some(oldest) = self.past.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// Asks for each manifest that is not known: one silo that has it, and after a while the next.
    fn ask(&mut self, now: Instant) {
        let mut wanted = BTreeMap::<u64, Vec<SiloAddress>>::new();
        for (silo, number) in &self.silos {
            if let Some(number) = number.filter(|number| !self.known.contains_key(number)) {
                wanted.entry(number).or_default().push(*silo);
            }
        }
        self.questions.retain(|number, _| wanted.contains_key(number));
        for (number, silos) in wanted {
            let before = self.questions.get(&number);
            let asked_still = |question: &Question| silos.contains(&question.asked);
            if before.is_some_and(|question| now < question.due && asked_still(question)) {
                continue;
            }
            let next = before.and_then(|q| silos.iter().find(|silo| **silo > q.asked));
            let Some(to) = next.or_else(|| silos.first()).copied() else { continue };
            self.questions.insert(number, Question { asked: to, due: now + PATIENCE });
            self.effects.push_back(Effect::Send { to, message: Message::Ask(number) });
        }
    }

    fn publish(&mut self) {
        // The last one says it all.
        self.effects.retain(|effect| !matches!(effect, Effect::Publish(_)));
        let hosted = self.hosted();
        self.effects.push_back(Effect::Publish(hosted));
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::super::kinds::manifest;
    use super::*;
    use crate::load::{Known, LoadReport};

    fn silo(n: u8) -> SiloAddress {
        format!("10.0.0.{n}:1:1").parse().unwrap()
    }

    fn loads(silos: &[(u8, Option<u64>)]) -> Loads {
        let known = |(n, manifest): &(u8, Option<u64>)| Known {
            report: Some((LoadReport::default(), Instant::ZERO)),
            manifest: *manifest,
            ..Known::new(silo(*n), Instant::ZERO)
        };
        Loads::new(silos.iter().map(known).collect())
    }

    /// The questions that are to be sent, and whether something is to be published.
    fn effects(learner: &mut Learner) -> (Vec<(SiloAddress, u64)>, bool) {
        let (mut asked, mut published) = (Vec::new(), false);
        while let Some(effect) = learner.poll_effect() {
            match effect {
                Effect::Send { to, message: Message::Ask(number) } => asked.push((to, number)),
                Effect::Send { .. } => panic!("nobody asked"),
                Effect::Publish(_) => published = true,
            }
        }
        (asked, published)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn silos_that_host_the_same_ask_nobody() {
        let own = manifest(&["A"]);
        let mut learner = Learner::new(silo(1), own.clone());
        let number = Some(own.number());
        learner.handle_loads(at(0), &loads(&[(1, None), (2, number), (3, None)]));
        assert_eq!(effects(&mut learner), (vec![], true));
        assert_eq!(learner.poll_timeout(), None);
        learner.handle_loads(at(1), &loads(&[(1, number), (2, number), (3, None)]));
        assert_eq!(effects(&mut learner), (vec![], false), "nothing is new");
    }

    #[test]
    fn one_silo_at_a_time_is_asked_for_what_is_not_known_until_one_answers() {
        let other = manifest(&["B"]);
        let mut learner = Learner::new(silo(1), manifest(&["A"]));
        let number = Some(other.number());
        let all = loads(&[(1, None), (2, number), (3, number), (4, None)]);
        learner.handle_loads(at(0), &all);
        assert_eq!(effects(&mut learner).0, [(silo(2), other.number())]);
        learner.handle_timeout(at(499));
        assert_eq!(effects(&mut learner).0, []);
        for (time, asked) in [(500, 3), (1_000, 2)] {
            assert_eq!(learner.poll_timeout(), Some(at(time)));
            learner.handle_timeout(at(time));
            assert_eq!(effects(&mut learner).0, [(silo(asked), other.number())]);
        }
        let answer = || Message::Tell(other.number(), other.types().cloned().collect());
        learner.handle_message(at(1_001), silo(4), answer());
        assert_eq!(effects(&mut learner), (vec![], false), "silo 4 has not said that number");
        // Silo 2 is asked now, and silo 3 is late.
        learner.handle_message(at(1_001), silo(3), answer());
        assert_eq!(effects(&mut learner), (vec![], true));
        let (hosted, b) = (learner.hosted(), GrainTypeId::of("B"));
        let hosts_b = [1, 2, 3, 4].map(|n| hosted.serves(&silo(n), b, 1));
        assert_eq!(hosts_b, [false, true, true, false]);
        assert_eq!(learner.poll_timeout(), None);
        learner.handle_message(at(1_002), silo(2), Message::Tell(77, Vec::new()));
        assert_eq!(effects(&mut learner), (vec![], false), "nobody asked");
    }

    #[test]
    fn a_silo_that_went_is_asked_no_more_and_what_it_hosted_is_remembered() {
        let (first, second) = (manifest(&["B"]), manifest(&["C"]));
        let mut learner = Learner::new(silo(1), manifest(&["A"]));
        let both = [(2, Some(first.number())), (3, Some(second.number()))];
        learner.handle_loads(at(0), &loads(&both));
        assert_eq!(effects(&mut learner).0.len(), 2);
        let types = first.types().cloned().collect();
        learner.handle_message(at(1), silo(2), Message::Tell(first.number(), types));
        learner.handle_loads(at(2), &loads(&[(1, None)]));
        assert_eq!(effects(&mut learner), (vec![], true));
        assert_eq!(learner.poll_timeout(), None);
        let hosted = learner.hosted();
        let known = |name| hosted.hosted_type(GrainTypeId::of(name)).is_some();
        assert!(known("A") && known("B") && !known("C"));
        assert!(!hosted.serves(&silo(2), GrainTypeId::of("B"), 1));
    }

    #[test]
    fn what_a_silo_says_of_itself_comes_with_what_it_hosts() {
        let zone = |zone: &str| Metadata::from([("zone".to_owned(), zone.to_owned())]);
        let own = Arc::new(Manifest::clone(&manifest(&["A"])).with_metadata(zone("x")));
        let other = Arc::new(Manifest::clone(&manifest(&["A"])).with_metadata(zone("y")));
        let mut learner = Learner::new(silo(1), own);
        let mut second = Learner::new(silo(2), other.clone());
        learner.handle_loads(at(0), &loads(&[(1, None), (2, Some(other.number()))]));
        let mut hosted = learner.hosted();
        assert!(hosted.is_uniform() && hosted.metadata(&silo(2)).is_none());
        assert_eq!(hosted.metadata(&silo(1)), Some(&zone("x")));
        while let Some(effect) = learner.poll_effect() {
            if let Effect::Send { message, .. } = effect {
                second.handle_message(at(1), silo(1), message);
            }
        }
        let Some(Effect::Send { to, message }) = second.poll_effect() else { panic!("no answer") };
        assert_eq!(to, silo(1));
        learner.handle_message(at(2), silo(2), message);
        hosted = learner.hosted();
        assert!(hosted.is_uniform(), "they host the same");
        assert_eq!(hosted.metadata(&silo(2)), Some(&zone("y")));
        assert_eq!(hosted.metadata(&silo(3)), None);
    }

    #[test]
    fn no_more_manifests_are_remembered_than_may() {
        let mut learner = Learner::new(silo(1), manifest(&["Own"]));
        let name = |n: u8| char::from(b'A' + n).to_string();
        for n in 0..40_u8 {
            let other = manifest(&[&name(n)]);
            let number = other.number();
            learner.handle_loads(at(u64::from(n)), &loads(&[(2, Some(number))]));
            let types = other.types().cloned().collect();
            learner.handle_message(at(u64::from(n)), silo(2), Message::Tell(number, types));
        }
        // Its own, the last one, and earlier ones.
        assert_eq!(learner.known.len(), 2 + PAST_MAX);
        let hosted = learner.hosted();
        let known = |n: u8| hosted.hosted_type(GrainTypeId::of(&name(n))).is_some();
        assert!((23..40).all(known) && !(0..23).any(known));
    }

    #[test]
    fn who_asks_is_told_what_is_known() {
        let own = manifest(&["A", "B"]);
        let mut learner = Learner::new(silo(1), own.clone());
        learner.handle_message(at(0), silo(5), Message::Ask(own.number()));
        learner.handle_message(at(0), silo(5), Message::Ask(1));
        let message = Message::Tell(own.number(), own.types().cloned().collect());
        assert_eq!(learner.poll_effect(), Some(Effect::Send { to: silo(5), message }));
        assert_eq!(learner.poll_effect(), None);
    }
}
