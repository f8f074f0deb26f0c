//! The names of the placement strategies.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How to choose the silo of a new activation (placement description).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Strategy {
    /// Any of the compatible silos. The default unless overridden. A new activation goes to the
    /// silo that answers for its grain in the directory, if that is one of them, and else to
    /// one selected at random.
    #[default]
    Random,
    /// The local silo if it is compatible, otherwise a random one.
    PreferLocal,
    /// The hash of the grain's id, modulo the number of compatible silos in the order of their
    /// addresses.
    HashBased,
    /// The one of some silos, drawn at random, with the fewest recently busy activations.
    ActivationCount,
    /// Of some silos drawn at random, the one with the most free processors and memory and the
    /// fewest activations; the local silo if it is nearly as good.
    ResourceOptimized,
    /// As [`Random`](Self::Random), among the compatible silos that have this role.
    SiloRole(Cow<'static, str>),
    /// Choice of a director of the application's own ([`Strategy::custom`]).
    Custom(CustomStrategy),
}

/// A strategy of the application's own: a name, under which a silo has its director, and data for
/// that, which travels as JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CustomStrategy {
    #[serde(rename = "n")]
    name: Cow<'static, str>,
    #[serde(rename = "d")]
    data: Cow<'static, str>,
}

impl CustomStrategy {
    /// The name under which the director is registered.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Data of the grain class for its director, without the name.
    ///
    /// # Errors
    /// [`DataError::Read`] when it says nothing, or something else.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, DataError> {
        serde_json::from_str(&self.data)
            .map_err(|error| DataError::Read(self.name.clone().into_owned(), error.to_string()))
    }

    /// The data as the JSON text that travels; empty when the class says nothing.
    pub fn data_text(&self) -> &str {
        &self.data
    }
}

impl Strategy {
    /// The strategies whose name says all.
    pub const BUILT_IN: [Self; 5] = [
        Self::Random,
        Self::PreferLocal,
        Self::HashBased,
        Self::ActivationCount,
        Self::ResourceOptimized,
    ];

    /// The strategy that the director registered as `name` carries out.
    pub const fn custom(name: &'static str) -> Self {
        Self::Custom(CustomStrategy { name: Cow::Borrowed(name), data: Cow::Borrowed("") })
    }

    /// Strategy of the director `name`, with data for it: any value that serde can write as JSON.
    ///
    /// # Errors
    /// [`DataError::Write`] when it cannot, or when the JSON has more than [`DATA_BYTES_MAX`].
    pub fn custom_with<T: Serialize + ?Sized>(
        name: &'static str,
        data: &T,
    ) -> Result<Self, DataError> {
        let wrong = |why: String| DataError::Write(name.to_owned(), why);
        let data = serde_json::to_string(data).map_err(|error| wrong(error.to_string()))?;
        if data.len() > DATA_BYTES_MAX {
            let bytes = data.len();
            return Err(wrong(format!("it has {bytes} bytes, more than {DATA_BYTES_MAX}")));
        }
        Ok(Self::Custom(CustomStrategy { name: Cow::Borrowed(name), data: data.into() }))
    }

    /// The strategy that places on silos of a role.
    pub const fn silo_role(role: &'static str) -> Self {
        Self::SiloRole(Cow::Borrowed(role))
    }

    /// Returns true if its director looks at how loaded the silos are.
    pub const fn looks_at_load(&self) -> bool {
        matches!(self, Self::ActivationCount | Self::ResourceOptimized | Self::Custom(_))
    }

    /// The role that a silo needs; none when any will do.
    pub fn role(&self) -> Option<&str> {
        match self {
            Self::SiloRole(role) => Some(role),
            _ => None,
        }
    }

    /// Its name, and its argument: a role, or the data of its director.
    pub(crate) fn parts(&self) -> (&str, &str) {
        match self {
            Self::SiloRole(role) => (self.name(), role),
            Self::Custom(custom) => (custom.name(), custom.data_text()),
            _ => (self.name(), ""),
        }
    }

    /// The name: that of the attribute, as in `prefer_local`, or of its director.
    pub fn name(&self) -> &str {
        match self {
            Self::Random => "random",
            Self::PreferLocal => "prefer_local",
            Self::HashBased => "hash_based",
            Self::ActivationCount => "activation_count",
            Self::ResourceOptimized => "resource_optimized",
            Self::SiloRole(_) => "silo_role",
            Self::Custom(custom) => custom.name(),
        }
    }
}

/// The most bytes that a class says to its director: each silo keeps them for each class.
pub const DATA_BYTES_MAX: usize = 4_096;

/// The data of a strategy could not be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// It cannot travel.
    #[error("the data for the placement director {0:?} cannot be sent: {1}")]
    Write(String, String),
    /// It is of another type.
    #[error("the data for the placement director {0:?} has another type than it expects: {1}")]
    Read(String, String),
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no placement strategy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a placement strategy: expected random, prefer_local, hash_based, \
     activation_count or resource_optimized"
)]
pub struct ParseStrategyError(String);

impl FromStr for Strategy {
    type Err = ParseStrategyError;

    /// One of the strategies [whose name says all](Strategy::BUILT_IN).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::BUILT_IN
            .into_iter()
            .find(|strategy| strategy.name() == text)
            .ok_or_else(|| ParseStrategyError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse() {
        for strategy in Strategy::BUILT_IN {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        let error = "Random".parse::<Strategy>().unwrap_err().to_string();
        assert!(Strategy::BUILT_IN.iter().all(|s| error.contains(s.name())), "{error}");
        assert_eq!(Strategy::default(), Strategy::Random);
    }

    #[test]
    fn custom_strategies_differ_by_name_and_data() {
        let nearest = Strategy::custom_with("nearest", &("eu", 7)).unwrap();
        assert_eq!(nearest.to_string(), "nearest");
        assert_eq!(nearest, Strategy::custom_with("nearest", &("eu", 7)).unwrap());
        assert_ne!(nearest, Strategy::custom("nearest"));
        let Strategy::Custom(custom) = nearest else { panic!() };
        assert_eq!((custom.name(), custom.data()), ("nearest", Ok(("eu".to_owned(), 7))));
        let other = custom.data::<u64>().unwrap_err();
        assert!(other.to_string().contains("\"nearest\" has another type"), "{other}");
        let long = "x".repeat(DATA_BYTES_MAX);
        let long = Strategy::custom_with("nearest", &long).unwrap_err();
        assert!(long.to_string().contains("4098 bytes"), "{long}");
    }
}
