//! The duty of a silo: how much work an operator wants it to have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The amount of work that an operator wants a silo to have. A part of its row in the membership
/// table, so that every silo and every command sees it. A new incarnation begins with
/// [`Full`](Self::Full).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[repr(u8)]
pub enum Duty {
    /// All: it takes new grains.
    #[default]
    Full = 0,
    /// It keeps its grains, and takes no new ones while other silos are there.
    Cordoned = 1,
    /// It is cordoned, and its grains go to other silos.
    Draining = 2,
    /// It is cordoned, and its last grain is gone.
    Drained = 3,
    /// It leaves the cluster in good order, as after SIGTERM.
    Leaving = 4,
    /// All, and it gives grains at once to silos that have fewer, until it has about the mean.
    Giving = 5,
}

const ALL: [Duty; 6] =
    [Duty::Full, Duty::Cordoned, Duty::Draining, Duty::Drained, Duty::Leaving, Duty::Giving];

impl Duty {
    /// The name in the table: `Cordoned`, `Draining`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "Full",
            Self::Cordoned => "Cordoned",
            Self::Draining => "Draining",
            Self::Drained => "Drained",
            Self::Leaving => "Leaving",
            Self::Giving => "Giving",
        }
    }

    /// The word for the change to this duty, for programs: `cordoned`, `drains`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "resumed",
            Self::Cordoned => "cordoned",
            Self::Draining => "drains",
            Self::Drained => "drained",
            Self::Leaving => "asked-to-leave",
            Self::Giving => "gives",
        }
    }

    /// Returns true if no operator has asked for anything.
    pub const fn is_full(self) -> bool {
        matches!(self, Self::Full)
    }

    /// Returns true if the silo takes new grains.
    pub const fn takes_grains(self) -> bool {
        matches!(self, Self::Full | Self::Giving)
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text or number names no duty of a silo.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a duty of a silo: expected one of Full, Cordoned, Draining, Drained, Leaving and Giving"
)]
pub struct ParseDutyError(String);

impl FromStr for Duty {
    type Err = ParseDutyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ALL.into_iter()
            .find(|duty| duty.name() == text)
            .ok_or_else(|| ParseDutyError(text.chars().take(40).collect()))
    }
}

impl TryFrom<u8> for Duty {
    type Error = ParseDutyError;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        let named = ALL.into_iter().find(|duty| u8::from(*duty) == number);
        named.ok_or_else(|| ParseDutyError(number.to_string()))
    }
}

impl From<Duty> for u8 {
    fn from(duty: Duty) -> Self {
        duty as Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duties_are_named_and_numbered() {
        for duty in ALL {
            assert_eq!(duty.name().parse(), Ok(duty));
            assert_eq!(Duty::try_from(u8::from(duty)), Ok(duty));
        }
        let error = "full".parse::<Duty>().unwrap_err();
        assert!(error.to_string().contains("expected one of Full, Cordoned"), "{error}");
        assert!(Duty::try_from(6).is_err());
    }
}
