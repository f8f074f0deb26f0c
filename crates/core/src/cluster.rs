//! The name of a cluster, as it partitions the runtime tables.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest cluster id, in bytes.
pub const CLUSTER_ID_BYTES_MAX: usize = 64;

/// The id of a cluster (table description: deployment id, the partition key of the membership
/// table).
///
/// 1 to 64 characters of `A-Z a-z 0-9 . _ -`, not starting with a dot: legal as it stands in every
/// system store's keys, in URLs, file names and metrics labels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId(Arc<str>);

impl ClusterId {
    /// Checks `text` and makes it a cluster id.
    ///
    /// # Errors
    /// [`ParseClusterIdError`] when it is empty, too long or holds another character.
    pub fn new(text: &str) -> Result<Self, ParseClusterIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty()
            || text.len() > CLUSTER_ID_BYTES_MAX
            || text.starts_with('.')
            || !text.bytes().all(legal)
        {
            return Err(ParseClusterIdError { text: text.chars().take(80).collect() });
        }
        Ok(Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text was not a cluster id. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a cluster id: expected 1 to 64 characters of A-Z a-z 0-9 . _ - not starting \
     with a dot"
)]
pub struct ParseClusterIdError {
    text: String,
}

impl FromStr for ClusterId {
    type Err = ParseClusterIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl TryFrom<String> for ClusterId {
    type Error = ParseClusterIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(&text)
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> Self {
        id.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_plain_names_and_refuses_the_rest() {
        for good in ["a", "prod-eu.1_b", &"x".repeat(64)] {
            assert_eq!(ClusterId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", ".hidden", "ä", &"x".repeat(65)] {
            assert!(ClusterId::new(bad).is_err(), "{bad:?}");
        }
    }
}
