//! The call that failed, and why one was turned down.

use std::borrow::Cow;
use std::fmt::{self, Write};

use emmer_core::{GrainId, GrainKey};
use emmer_net::log::Plain;

/// A key is shown up to this many characters.
const SHOWN_MAX: usize = 64;

/// The call that failed: the type and the key of its grain, and the method. Shown as
/// `lamp/kitchen.switch`; of a long key only the beginning is shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct CallTarget(Option<Box<Known>>);

#[derive(Clone, PartialEq, Eq)]
struct Known {
    grain_type: Cow<'static, str>,
    key: GrainKey,
    method: &'static str,
}

/// The names of a grain that is called.
pub(crate) trait Names {
    /// The name of its type.
    fn type_name(&self) -> &Cow<'static, str>;

    /// Its identity.
    fn id(&self) -> &GrainId;
}

impl CallTarget {
    /// For tests of code that handles failures.
    pub fn new(
        grain_type: impl Into<Cow<'static, str>>,
        key: impl Into<GrainKey>,
        method: &'static str,
    ) -> Self {
        Self(Some(Box::new(Known { grain_type: grain_type.into(), key: key.into(), method })))
    }

    /// Not known yet: the caller's side adds it.
    pub(crate) const UNKNOWN: Self = Self(None);

    #[cold]
    pub(crate) fn of(target: &dyn Names, method: &'static str) -> Self {
        Self::new(target.type_name().clone(), target.id().key().clone(), method)
    }

    /// The name of the grain's type, as in its interface's `grain = ".."`.
    pub fn grain_type(&self) -> &str {
        self.0.as_ref().map_or("", |names| &names.grain_type)
    }

    /// The grain's key. None for `CallTarget::default()`, which names no call.
    pub fn key(&self) -> Option<&GrainKey> {
        self.0.as_ref().map(|names| &names.key)
    }

    /// The name of the method.
    pub fn method(&self) -> &'static str {
        self.0.as_ref().map_or("", |names| names.method)
    }

    pub(crate) const fn is_known(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Display for CallTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(names) = &self.0 else { return f.write_str("a call") };
        write!(f, "{}/", names.grain_type)?;
        let key = names.key.to_string();
        for char in key.chars().take(SHOWN_MAX) {
            // A key is the application's, and may be anything.
            f.write_char(if char.is_control() { '\u{fffd}' } else { char })?;
        }
        if key.chars().nth(SHOWN_MAX).is_some() {
            f.write_char('…')?;
        }
        write!(f, ".{}", names.method)
    }
}

impl fmt::Debug for CallTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a call was turned down. It would be turned down again as long as nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// No silo of the cluster hosts grains of this type.
    #[error("{}", Plain(.0))]
    NoSuchGrainType(String),
    /// No silo of the cluster hosts a version of the class that has this method.
    #[error("{}", Plain(.0))]
    NoSuchMethod(String),
    /// The grain could not be activated: its hook failed or panicked, or its state could not be
    /// read.
    #[error("{}", Plain(.0))]
    ActivationFailed(String),
    /// A filter or a placement director refused the call, or it cannot be made: its key is too
    /// long, its context too large, or too many turns wait for each other.
    #[error("{}", Plain(.0))]
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_in_one_line_whatever_its_key() {
        let shown = |key: &str| CallTarget::new("lamp", key, "switch").to_string();
        assert_eq!(shown("kitchen"), "lamp/kitchen.switch");
        assert_eq!(shown("a\nb"), "lamp/a\u{fffd}b.switch");
        assert_eq!(shown(&"ö".repeat(64)), format!("lamp/{}.switch", "ö".repeat(64)));
        assert_eq!(shown(&"ö".repeat(65)), format!("lamp/{}….switch", "ö".repeat(64)));
        assert_eq!(CallTarget::new("lamp", 7_u64, "switch").to_string(), "lamp/7.switch");
    }
}
