//! The ends of turns: of turns that ran, and of turns that could not start.

use std::fmt;

use emmer_core::SiloAddress;

use crate::metrics::Ended;
use crate::turn::{Failure, Rejection};

/// End of a turn.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The method ran; its output is in the sink.
    Done,
    /// The activation closed before the method began, or is registered elsewhere. The arguments are
    /// back in a local slot; the call must be resolved again. Not executed.
    Closed(Option<Elsewhere>),
    /// The activation could not be activated: the text says why. Not executed.
    ActivationFailed(String),
    /// The method panicked with this text.
    Panicked(String),
    /// The output could not be encoded.
    Unencodable(String),
    /// The turn waited in a circle of waiting calls, which the text names. Not executed.
    Deadlock(String),
    /// A filter refused the call, in these words. Not executed.
    Refused(String),
    /// An operator had the turn dropped half way, as these words say.
    Dropped(String),
}

/// End of the generated code's future.
#[derive(Debug)]
pub enum TurnOutcome {
    /// The method has put its output into the slot.
    Done {
        /// True for the method's own error.
        is_error: bool,
    },
    /// The activation had ended. The arguments are back in the slot.
    Closed(Closed),
    /// A filter refused the call, in these words.
    Refused(String),
}

/// The grain is no longer here; the call must be resolved again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It was deactivated.
    Gone,
    /// The directory names another silo.
    Elsewhere(Elsewhere),
    /// Its activation failed with these words; the call is rejected with them.
    Failed(String),
}

/// Silo where the grain of a call is now.
#[derive(Debug)]
pub struct Elsewhere {
    pub(crate) silo: SiloAddress,
    /// The call's place before later calls of the grain, until it is on its way there.
    place: Option<FollowPlace>,
}

impl Elsewhere {
    /// A call at this place goes there.
    pub(super) fn behind(silo: SiloAddress, place: Option<FollowPlace>) -> Self {
        Self { silo, place }
    }

    /// The place, which is given back when it is dropped.
    /// Returns true if later calls wait until this one is on its way.
    pub(crate) const fn has_place(&self) -> bool {
        self.place.is_some()
    }

    pub(crate) const fn take_place(&mut self) -> Option<FollowPlace> {
        self.place.take()
    }
}

impl From<SiloAddress> for Elsewhere {
    fn from(silo: SiloAddress) -> Self {
        Self { silo, place: None }
    }
}

/// Copies the silo. A place is one call's.
impl Clone for Elsewhere {
    fn clone(&self) -> Self {
        self.silo.into()
    }
}

impl PartialEq for Elsewhere {
    fn eq(&self, other: &Self) -> bool {
        self.silo == other.silo
    }
}

impl Eq for Elsewhere {}

/// Place of a call that follows its grain to another silo. Later calls wait until it is dropped.
pub(crate) struct FollowPlace(Option<GiveBack>);

type GiveBack = Box<dyn FnOnce() + Send + Sync>;

impl FollowPlace {
    /// A place that `give_back` gives back.
    pub(super) fn new(give_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(give_back)))
    }
}

impl fmt::Debug for FollowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FollowPlace")
    }
}

impl Drop for FollowPlace {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

/// Reason why a turn was not started. Nothing was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    /// The class has no such method.
    NoSuchMethod,
    /// The arguments do not decode.
    BadArguments(String),
    /// Too many calls wait already: this many, `activation_queue_max`.
    Overloaded(u32),
}

impl StartError {
    /// The failure its caller sees.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::NoSuchMethod => {
                let why = "the grain's class has no such method".to_owned();
                Failure::rejected(Rejection::NoSuchMethod(why))
            }
            Self::BadArguments(detail) => Failure::codec(false, detail),
            Self::Overloaded(max) => Failure::overloaded(format!(
                "{max} calls wait for this grain (activation_queue_max)"
            )),
        }
    }
}

impl Closed {
    /// End of a turn that did not run.
    pub(super) fn into_end(self) -> (TurnEnd, Ended) {
        match self {
            Self::Gone => (TurnEnd::Closed(None), Ended::Closed),
            Self::Elsewhere(silo) => (TurnEnd::Closed(Some(silo)), Ended::Closed),
            Self::Failed(why) => (TurnEnd::ActivationFailed(why), Ended::Failed),
        }
    }
}
