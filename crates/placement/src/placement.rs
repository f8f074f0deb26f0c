//! The placement of a class: its strategy, and the metadata that it asks for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::strategy::Strategy;

/// Facts about a silo that its row does not have: texts under keys.
pub type Metadata = BTreeMap<String, String>;

/// The most entries that the metadata of a silo has.
pub const METADATA_ENTRIES_MAX: usize = 32;
/// The longest key of a silo's metadata, in bytes. A key is not empty.
pub const METADATA_KEY_BYTES_MAX: usize = 64;
/// The longest value of a silo's metadata, in bytes.
pub const METADATA_VALUE_BYTES_MAX: usize = 256;

/// Checks the metadata of a silo.
///
/// # Errors
/// A sentence that names the key.
pub fn check_metadata(metadata: &Metadata) -> Result<(), String> {
    if metadata.len() > METADATA_ENTRIES_MAX {
        let entries = metadata.len();
        return Err(format!("{entries} entries are more than {METADATA_ENTRIES_MAX}"));
    }
    for (key, value) in metadata {
        let shown: String = key.chars().take(METADATA_KEY_BYTES_MAX).collect();
        if key.is_empty() || key.len() > METADATA_KEY_BYTES_MAX || key.contains(char::is_control) {
            return Err(format!(
                "the key {shown:?} does not have 1 to {METADATA_KEY_BYTES_MAX} bytes without \
                 control characters"
            ));
        }
        if value.len() > METADATA_VALUE_BYTES_MAX || value.contains(char::is_control) {
            return Err(format!(
                "the value of {shown:?} does not have at most {METADATA_VALUE_BYTES_MAX} bytes \
                 without control characters"
            ));
        }
    }
    Ok(())
}

/// Condition of a class on the silos where its activations go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiloFilter {
    /// The key in the silos' metadata.
    #[serde(rename = "k")]
    key: Cow<'static, str>,
    /// The required value; None: the placing silo's value.
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'static, str>>,
    /// True if silos without it do as well where no silo has it.
    #[serde(rename = "o", default, skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
}

impl SiloFilter {
    /// Takes silos whose metadata say `value` under `key`, and no others.
    pub fn require(key: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> Self {
        Self { key: key.into(), value: Some(value.into()), optional: false }
    }

    /// Takes silos whose metadata under `key` equal those of the placing silo. Where the placing
    /// silo has none, any silo will do.
    pub fn require_same(key: impl Into<Cow<'static, str>>) -> Self {
        Self { key: key.into(), value: None, optional: false }
    }

    /// This filter, passed over where no silo would be left.
    #[must_use]
    pub const fn preferred(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Returns true if the filter is passed over where no silo would be left.
    pub const fn is_preferred(&self) -> bool {
        self.optional
    }

    /// The key in the silos' metadata.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns true if a silo of these metadata passes; `own`: those of the silo that places.
    pub fn passes(&self, own: Option<&Metadata>, silo: Option<&Metadata>) -> bool {
        let of = |metadata: Option<&Metadata>| {
            metadata.and_then(|metadata| metadata.get(&*self.key)).cloned()
        };
        let Some(wanted) = self.value.clone().map(Cow::into_owned).or_else(|| of(own)) else {
            return true;
        };
        of(silo).is_some_and(|value| value == wanted)
    }
}

impl fmt::Display for SiloFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{:?} = {value:?}", self.key),
            None => write!(f, "the same {:?} as the silo that places", self.key),
        }
    }
}

/// Where the activations of a class go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// None: by the default strategy of the silo that places.
    pub strategy: Option<Strategy>,
    /// Conditions on the silos.
    pub filters: Vec<SiloFilter>,
}

impl From<Strategy> for Placement {
    fn from(strategy: Strategy) -> Self {
        Self { strategy: Some(strategy), filters: Vec::new() }
    }
}

impl Placement {
    /// This placement with one filter more.
    #[must_use]
    pub fn with(mut self, filter: SiloFilter) -> Self {
        self.filters.push(filter);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(zone: &str) -> Metadata {
        Metadata::from([("zone".to_owned(), zone.to_owned())])
    }

    #[test]
    fn a_filter_passes_silos_that_say_its_value_or_that_of_the_placing_silo() {
        let (a, b) = (metadata("a"), metadata("b"));
        let fixed = SiloFilter::require("zone", "a");
        assert!(fixed.passes(Some(&b), Some(&a)) && !fixed.passes(Some(&a), Some(&b)));
        assert!(!fixed.passes(Some(&a), None));
        let same = SiloFilter::require_same("zone");
        assert!(same.passes(Some(&b), Some(&b)) && !same.passes(Some(&b), Some(&a)));
        assert!(!same.passes(Some(&b), None));
        assert!(same.passes(None, Some(&a)) && same.passes(None, None), "it has no zone itself");
    }

    #[test]
    fn metadata_are_bounded_and_the_key_is_named() {
        assert_eq!(check_metadata(&metadata("a")), Ok(()));
        let of = |key: &str, value: &str| {
            check_metadata(&Metadata::from([(key.to_owned(), value.to_owned())]))
        };
        assert!(
            of("", "x").is_err() && of("a\n", "x").is_err() && of(&"k".repeat(65), "x").is_err()
        );
        assert!(of("zone", "\u{7}").unwrap_err().contains("\"zone\""));
        assert!(of("zone", &"v".repeat(257)).is_err() && of("zone", &"v".repeat(256)).is_ok());
        let many = (0..33).map(|n| (n.to_string(), String::new())).collect();
        assert!(check_metadata(&many).unwrap_err().contains("33 entries"));
    }
}
