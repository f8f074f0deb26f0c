//! A state as the program declares it: its name, its store, its version; and states of older
//! versions.

use bytes::Bytes;
use emmer_wire::codec;
use serde::de::DeserializeOwned;

use super::Error;

/// Encoding of states, as the store's `Format` column says it, with `/2` for version 2.
pub const FORMAT: &str = "msgpack";

/// The words of `#[state("name", store = "archive", version = 2)]`.
pub struct StateSpec<T> {
    pub(crate) name: &'static str,
    /// None: where states are that name no store.
    pub(crate) store: Option<&'static str>,
    pub(crate) version: u32,
    migrate: Option<MigrateFn<T>>,
}

type MigrateFn<T> = fn(u32, StoredState<'_>) -> Result<T, Error>;

impl<T> StateSpec<T> {
    /// A state of version 1 in the usual store.
    pub const fn new(name: &'static str) -> Self {
        Self { name, store: None, version: 1, migrate: None }
    }

    /// Sets the name of the store that has the state.
    #[must_use]
    pub const fn store(mut self, store: &'static str) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the version of the state, whose type reads older ones.
    #[must_use]
    pub const fn version(mut self, version: u32) -> Self
    where
        T: Migrate,
    {
        self.version = version;
        self.migrate = Some(T::migrate);
        self
    }

    /// The store's `Format` column for a state of this version.
    pub(crate) fn format(&self) -> String {
        match self.version {
            1 => FORMAT.to_owned(),
            version => format!("{FORMAT}/{version}"),
        }
    }

    /// The value that is stored.
    ///
    /// # Errors
    /// It does not decode, or is of a version that this program does not know.
    pub(crate) fn read(&self, format: &str, payload: &[u8]) -> Result<T, Unreadable>
    where
        T: DeserializeOwned,
    {
        let version = match format.strip_prefix(FORMAT).map(|rest| rest.strip_prefix('/')) {
            Some(None) if format == FORMAT => Some(1),
            Some(Some(version)) => version.parse().ok(),
            _ => None,
        };
        let version: u32 =
            version.ok_or_else(|| format!("it is stored as {format:?}, not as {FORMAT}"))?;
        match self.migrate {
            _ if version == self.version => Ok(codec::decode(payload).map_err(|e| e.to_string())?),
            Some(migrate) if version < self.version => {
                let old = StoredState(payload);
                let migrated = migrate(version, old);
                Ok(migrated.map_err(|e| format!("stored by version {version}: {e:?}"))?)
            }
            _ => Err(Unreadable::Newer { stored: version, known: self.version }),
        }
    }
}

/// Why a stored state cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It does not decode, in these words.
    Words(String),
    /// A newer version has stored it.
    Newer {
        /// Version that has stored it.
        stored: u32,
        /// Version of this program.
        known: u32,
    },
}

impl From<String> for Unreadable {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

/// A state whose type has changed in more than `#[serde(default)]` can handle: it reads what older
/// versions have stored. `#[state("cart", version = 2)]` on the field gives the current version. A
/// state without a version is of version 1.
#[diagnostic::on_unimplemented(
    message = "the state `{Self}` has a version and cannot read older ones",
    label = "`{Self}` does not implement `Migrate`",
    note = "write `impl emmer::state::Migrate for {Self}`, which makes one of what version 1 has stored"
)]
pub trait Migrate: Sized {
    /// Makes a state of the stored data of version `from`, an older one. The next write stores the
    /// new form.
    ///
    /// # Errors
    /// The activation fails, and every call that waits for it.
    fn migrate(from: u32, old: StoredState<'_>) -> Result<Self, Error>;
}

/// A state as an older version has stored it.
#[derive(Clone, Copy, Debug)]
pub struct StoredState<'a>(&'a [u8]);

impl StoredState<'_> {
    /// The state as the type that it had then, or as any that serde reads it as.
    ///
    /// # Errors
    /// It does not decode as a `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        Ok(codec::decode(self.0)?)
    }

    /// The bytes that are stored.
    pub fn bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.0)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Cart {
        items: Vec<String>,
    }

    impl Migrate for Cart {
        fn migrate(from: u32, old: StoredState<'_>) -> Result<Self, Error> {
            match from {
                1 => Ok(Self { items: vec![old.decode()?] }),
                2 => Ok(Self { items: old.decode()? }),
                _ => Err(Error::new("there was no such version")),
            }
        }
    }

    fn stored(value: &impl Serialize) -> BytesMut {
        let mut out = BytesMut::new();
        codec::encode_into(&mut out, value).unwrap();
        out
    }

    #[test]
    fn older_versions_are_read_and_newer_ones_refused() {
        let spec = StateSpec::<Cart>::new("cart").version(3);
        assert_eq!(spec.format(), "msgpack/3");
        let cart = |items: &[&str]| Cart { items: items.iter().map(ToString::to_string).collect() };
        assert_eq!(spec.read("msgpack", &stored(&"a")), Ok(cart(&["a"])));
        assert_eq!(spec.read("msgpack/2", &stored(&["a", "b"])), Ok(cart(&["a", "b"])));
        assert_eq!(spec.read("msgpack/3", &stored(&cart(&["c"]))), Ok(cart(&["c"])));
        for (format, words) in [
            ("msgpack/4", "by version 4, and this program knows version 3"),
            ("msgpack/0", "no such version"),
            ("json", "not as msgpack"),
            ("msgpack2", "not as msgpack"),
            ("msgpack/x", "not as msgpack"),
        ] {
            let error = spec.read(format, &stored(&"a")).unwrap_err();
            let told = match &error {
                Unreadable::Words(told) => told.clone(),
                Unreadable::Newer { stored, known } => {
                    format!("by version {stored}, and this program knows version {known}")
                }
            };
            assert!(told.contains(words), "{format}: {told}");
        }
        let plain = StateSpec::<Cart>::new("cart");
        let newer = Unreadable::Newer { stored: 2, known: 1 };
        assert_eq!(plain.read("msgpack/2", &stored(&cart(&[]))), Err(newer));
        assert_eq!(plain.format(), "msgpack");
    }
}
