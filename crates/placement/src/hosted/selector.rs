//! The choice of a version where several can serve a call.

use std::fmt;
use std::str::FromStr;

/// Choice of the silos that get new activations where silos with several versions of a class can
/// serve a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionSelector {
    /// Any of them.
    #[default]
    Any,
    /// Silos with the newest version.
    Newest,
    /// Silos with the oldest version.
    Oldest,
}

impl VersionSelector {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Any, Self::Newest, Self::Oldest];

    /// The name, as in the option.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Newest => "newest",
            Self::Oldest => "oldest",
        }
    }

    /// The version to take of these; None when any will do, or there is none.
    pub fn pick(self, versions: impl Iterator<Item = u32>) -> Option<u32> {
        match self {
            Self::Any => None,
            Self::Newest => versions.max(),
            Self::Oldest => versions.min(),
        }
    }
}

impl fmt::Display for VersionSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no version selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version selector: expected any, newest or oldest")]
pub struct ParseSelectorError(String);

impl FromStr for VersionSelector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|selector| selector.name() == text)
            .ok_or_else(|| ParseSelectorError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_versions_are_picked() {
        for selector in VersionSelector::ALL {
            assert_eq!(selector.to_string().parse(), Ok(selector));
        }
        let error = "latest".parse::<VersionSelector>().unwrap_err().to_string();
        assert!(VersionSelector::ALL.iter().all(|s| error.contains(s.name())), "{error}");
        let picked = VersionSelector::ALL.map(|selector| selector.pick([2, 1, 3].into_iter()));
        assert_eq!(picked, [None, Some(3), Some(1)]);
    }
}
