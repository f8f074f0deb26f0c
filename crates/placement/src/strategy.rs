//! The names of the placement strategies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How to choose the silo of a new activation (placement description).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Strategy {
    /// A silo selected at random from the compatible ones. The default unless overridden.
    #[default]
    Random,
    /// The local silo if it is compatible, otherwise a random one.
    PreferLocal,
}

impl Strategy {
    /// The name in configuration and attributes: `random`, `prefer_local`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::PreferLocal => "prefer_local",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no placement strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a placement strategy: expected random or prefer_local")]
pub struct ParseStrategyError(String);

impl FromStr for Strategy {
    type Err = ParseStrategyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Random, Self::PreferLocal]
            .into_iter()
            .find(|strategy| strategy.name() == text)
            .ok_or_else(|| ParseStrategyError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_agree_with_serde() {
        for strategy in [Strategy::Random, Strategy::PreferLocal] {
            assert_eq!(strategy.to_string().parse(), Ok(strategy.clone()));
            let json = serde_json::to_string(&strategy).unwrap();
            assert_eq!(json, format!("\"{strategy}\""));
            assert_eq!(serde_json::from_str::<Strategy>(&json).unwrap(), strategy);
        }
        assert!("Random".parse::<Strategy>().is_err());
        assert_eq!(Strategy::default(), Strategy::Random);
    }
}
