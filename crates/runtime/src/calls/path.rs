//! The path of one call: where to try it next when it did not run.
//!
//! One machine without IO for calls from this process ([`crate::calls::travel`]), from clients
//! through a gateway, and from other silos ([`crate::calls::arriving`]). The shells locate the
//! grain, run the turn or send the call, and report the result. The machine decides whether and
//! when to try again, and what to remember of the grain's location. It tries again only calls that
//! certainly did not run.

use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_net::transport::Lost;

use crate::hosting::{Elsewhere, FollowPlace};
use crate::turn::{CallError, Failure};

/// Number of tries of one call in all.
const TRIES_MAX: u32 = 256;

/// Number of tries that follow each other at once; then there are pauses.
const AT_ONCE_MAX: u32 = 4;

/// First pause; each later one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(4);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Whose call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The caller is in this process: the call is tried until its deadline.
    Own,
    /// The caller is a silo, which tries again itself.
    Silo,
}

/// Result of a try that brought no output.
#[derive(Debug)]
pub(crate) enum Met {
    /// Nothing was tried yet: placement has put the grain on this silo.
    Placed(SiloAddress),
    /// The activation here was closed before the turn began; some silo, when the directory names
    /// it, or the activation went for it.
    Closed(Option<Elsewhere>),
    /// Nothing was sent to `peer` (none: a gateway): there is no connection. `placed`: placement
    /// chose `peer`, and no silo says that the grain is there.
    Unsent { peer: Option<SiloAddress>, placed: bool, why: String },
    /// The connection to `peer`, a gateway when none, ended after the call was sent.
    Lost { peer: Option<SiloAddress>, why: Lost },
    /// `peer`, a gateway when none, answered with a failure.
    Answered { peer: Option<SiloAddress>, failure: Failure },
    /// The grain was not found.
    NotFound(Failure),
}

impl Met {
    /// Placement did not find a silo for another silo's call. That silo may know silos that this
    /// one has not seen, so the answer is not final.
    pub(crate) fn not_found(failure: Failure, asker_knows_more: bool) -> Self {
        Self::NotFound(match failure {
            CallError::Rejected { why, .. } if asker_knows_more => {
                unreachable_silo(None, false, why.to_string())
            }
            failure => failure,
        })
    }
}

/// End of a try that brought no output.
#[derive(Debug)]
pub(crate) enum Tried {
    /// The path says what follows.
    Met(Met),
    /// The call has failed.
    Failed(Failure),
}

impl From<Failure> for Tried {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Met> for Tried {
    fn from(met: Met) -> Self {
        Self::Met(met)
    }
}

/// Next step of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Try again after a pause, which is over before the deadline.
    Again(Duration),
    /// The call has failed.
    Fail(Failure),
}

/// Knowledge about the location of the grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Nothing new.
    Keep,
    /// It is not there, or that silo cannot be reached.
    Forget(SiloAddress),
    /// The directory names this silo.
    At(SiloAddress),
}

/// Places that one call has been to.
#[derive(Debug)]
pub(crate) struct Path {
    asker: Asker,
    tries: u32,
    /// Pauses so far.
    pauses: u32,
    /// Silos that placement chose in vain.
    avoid: Vec<SiloAddress>,
    /// Silo where the directory has just said that the grain is.
    elsewhere: Option<SiloAddress>,
    /// Place before later calls that follow the grain there.
    place: Option<FollowPlace>,
    /// Silo that placement has just chosen.
    placed: Option<SiloAddress>,
}

/// The failure of a call that did not run because `silo` could not be reached.
pub(crate) const fn unreachable_silo(
    silo: Option<SiloAddress>,
    maybe_executed: bool,
    detail: String,
) -> Failure {
    Failure::unreachable(silo, maybe_executed, detail)
}

impl Path {
    pub(crate) const fn new(asker: Asker) -> Self {
        Self {
            asker,
            tries: 0,
            pauses: 0,
            avoid: Vec::new(),
            elsewhere: None,
            place: None,
            placed: None,
        }
    }

    /// Silos that placement must not choose.
    pub(crate) fn avoid(&self) -> &[SiloAddress] {
        &self.avoid
    }

    /// Silo where the directory has just said that the grain is; once.
    pub(crate) const fn take_elsewhere(&mut self) -> Option<SiloAddress> {
        self.elsewhere.take()
    }

    /// The call's place before later calls of its grain; once. It is dropped when the call is on
    /// its way.
    pub(crate) const fn take_place(&mut self) -> Option<FollowPlace> {
        self.place.take()
    }

    /// Silo that placement has just chosen; once.
    pub(crate) const fn take_placed(&mut self) -> Option<SiloAddress> {
        self.placed.take()
    }

    /// A try brought no output, with so much time `left`.
    pub(crate) fn met(&mut self, met: Met, left: Duration) -> (Hint, Next) {
        match met {
            Met::Placed(peer) => {
                self.placed = Some(peer);
                (Hint::Keep, Next::Again(Duration::ZERO))
            }
            Met::Closed(mut elsewhere) => {
                self.place = elsewhere.as_mut().and_then(Elsewhere::take_place);
                let elsewhere = elsewhere.map(|to| to.silo);
                self.elsewhere = elsewhere;
                let why =
                    "the grain moved, or could not be registered, at every attempt".to_owned();
                (
                    elsewhere.map_or(Hint::Keep, Hint::At),
                    self.again(unreachable_silo(None, false, why), left),
                )
            }
            Met::Unsent { peer, placed, why } => {
                let failure = unreachable_silo(peer, false, why);
                let next = if placed {
                    self.avoid.extend(peer);
                    self.again(failure, left)
                } else {
                    self.later(failure, left)
                };
                (forget(peer), next)
            }
            Met::Lost { peer, why: Lost::Drained } => (
                forget(peer),
                self.again(unreachable_silo(peer, false, Lost::Drained.to_string()), left),
            ),
            Met::Lost { peer, why } => {
                (forget(peer), Next::Fail(unreachable_silo(peer, true, why.to_string())))
            }
            Met::Answered { peer, failure } => match failure {
                CallError::Unreachable { maybe_executed: false, .. }
                | CallError::ShuttingDown { .. } => (forget(peer), self.later(failure, left)),
                CallError::Unreachable { .. } => (forget(peer), Next::Fail(failure)),
                failure => (Hint::Keep, Next::Fail(failure)),
            },
            Met::NotFound(failure) => match failure {
                // The silos that were avoided may be all there are.
                CallError::Unreachable { maybe_executed: false, .. } => {
                    self.avoid.clear();
                    (Hint::Keep, self.later(failure, left))
                }
                failure => (Hint::Keep, Next::Fail(failure)),
            },
        }
    }

    /// Tries again at once, as long as that is not the rule.
    fn again(&mut self, failure: Failure, left: Duration) -> Next {
        if self.tries < AT_ONCE_MAX {
            self.tries += 1;
            Next::Again(Duration::ZERO)
        } else {
            self.later(failure, left)
        }
    }

    /// Tries again after a pause, if there is time for it.
    fn later(&mut self, failure: Failure, left: Duration) -> Next {
        let pause = PAUSE_MIN.saturating_mul(1 << self.pauses.min(16)).min(PAUSE_MAX);
        if self.asker == Asker::Silo || self.tries >= TRIES_MAX || pause >= left {
            return Next::Fail(failure);
        }
        self.tries += 1;
        self.pauses += 1;
        Next::Again(pause)
    }
}

fn forget(peer: Option<SiloAddress>) -> Hint {
    peer.map_or(Hint::Keep, Hint::Forget)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn silo(n: u16) -> SiloAddress {
        SiloAddress::new(([10, 0, 0, 1], n).into(), 1)
    }

    fn unsent(placed: bool) -> Met {
        Met::Unsent { peer: Some(silo(1)), placed, why: "refused".to_owned() }
    }

    fn every_met() -> Vec<Met> {
        let not_run = || unreachable_silo(Some(silo(1)), false, "x".to_owned());
        let answered = |failure| Met::Answered { peer: Some(silo(1)), failure };
        vec![
            Met::Closed(None),
            Met::Closed(Some(silo(2).into())),
            unsent(true),
            unsent(false),
            Met::Lost { peer: Some(silo(1)), why: Lost::Drained },
            answered(not_run()),
            answered(Failure::shutting_down()),
            Met::NotFound(not_run()),
        ]
    }

    #[test]
    fn a_call_that_certainly_did_not_run_is_tried_until_its_deadline_and_no_longer() {
        for at in 0..every_met().len() {
            let (mut path, mut left, mut tries) = (Path::new(Asker::Own), LONG, 0);
            let failure = loop {
                let met = every_met().swap_remove(at);
                match path.met(met, left).1 {
                    Next::Again(pause) => {
                        assert!(pause < left && pause <= PAUSE_MAX);
                        left -= pause;
                        tries += 1;
                    }
                    Next::Fail(failure) => break failure,
                }
            };
            assert!(!failure.maybe_executed(), "{failure}");
            assert!(
                tries > 100 && tries <= TRIES_MAX && left < PAUSE_MAX,
                "{at}: {tries} tries, {left:?} left"
            );
        }
    }

    #[test]
    fn a_call_with_time_left_is_given_up_after_a_minute() {
        let day = Duration::from_secs(24 * 3_600);
        let nobody = || Met::NotFound(unreachable_silo(None, false, "no such role".to_owned()));
        let (mut path, mut waited) = (Path::new(Asker::Own), Duration::ZERO);
        while let Next::Again(pause) = path.met(nobody(), day).1 {
            waited += pause;
        }
        assert!((60..65).contains(&waited.as_secs()), "{waited:?}");
    }

    #[test]
    fn what_may_have_run_is_never_tried_again() {
        let (ran, peer) = (|| unreachable_silo(None, true, "x".to_owned()), Some(silo(1)));
        let mets = [
            Met::Lost { peer, why: Lost::Ended },
            Met::Lost { peer, why: Lost::PeerDead },
            Met::Lost { peer, why: Lost::Closed },
            Met::Answered { peer, failure: ran() },
            Met::Answered { peer, failure: Failure::cancelled(false) },
            Met::Answered { peer, failure: Failure::refused("no".to_owned()) },
            Met::Answered { peer, failure: Failure::overloaded("no".to_owned()) },
            Met::NotFound(Failure::shutting_down()),
        ];
        for met in mets {
            let told = format!("{met:?}");
            let (hint, next) = Path::new(Asker::Own).met(met, LONG);
            assert!(matches!(next, Next::Fail(_)), "{told}");
            let lost = told.contains("Lost") || told.contains("Unreachable");
            assert_eq!(hint, if lost { Hint::Forget(silo(1)) } else { Hint::Keep }, "{told}");
        }
    }

    #[test]
    fn the_word_of_a_silo_that_knows_less_than_its_asker_is_not_the_last() {
        let rejected = || Failure::refused("no silo hosts it".to_owned());
        for (knows_more, is_final) in [(false, true), (true, false)] {
            let met = Met::not_found(rejected(), knows_more);
            let Next::Fail(told) = Path::new(Asker::Silo).met(met, LONG).1 else {
                panic!("a silo is kept waiting")
            };
            // The asker reads it so.
            let met = Met::Answered { peer: Some(silo(1)), failure: told };
            let next = Path::new(Asker::Own).met(met, LONG).1;
            assert_eq!(matches!(next, Next::Fail(_)), is_final);
        }
    }

    #[test]
    fn a_silo_that_asks_is_not_kept_waiting() {
        for met in every_met() {
            let mut path = Path::new(Asker::Silo);
            let mut next = path.met(met, LONG).1;
            for _ in 0..AT_ONCE_MAX {
                match next {
                    Next::Again(pause) => assert_eq!(pause, Duration::ZERO),
                    Next::Fail(_) => break,
                }
                next = path.met(Met::Closed(None), LONG).1;
            }
            assert!(matches!(next, Next::Fail(_)));
        }
    }

    #[test]
    fn the_grain_is_looked_for_where_it_is_said_to_be_and_not_where_nobody_answers() {
        let mut path = Path::new(Asker::Own);
        assert_eq!(path.met(Met::Closed(Some(silo(2).into())), LONG).0, Hint::At(silo(2)));
        assert_eq!((path.take_elsewhere(), path.take_elsewhere()), (Some(silo(2)), None));
        assert_eq!(path.met(unsent(true), LONG).0, Hint::Forget(silo(1)));
        assert_eq!(path.avoid(), [silo(1)]);
        let nowhere = unreachable_silo(None, false, "no silo is left".to_owned());
        assert_eq!(path.met(Met::NotFound(nowhere), LONG).0, Hint::Keep);
        assert!(path.avoid().is_empty(), "it is tried again when nobody else is there");
    }
}
