//! The settings of a silo: a TOML file, then `EMMER_*` variables, then flags; the later one wins,
//! key by key (`docs/settings.md`).
//!
//! Every value keeps its place, so that an error names key and place, and a person can see the
//! value in force and its source ([`Settings::effective`]). An unknown name is refused with the
//! nearest known name. All mistakes are listed at once.

mod build;
mod effective;
mod environment;
mod file;
#[cfg(feature = "clap")]
mod flags;
mod keys;
#[cfg(feature = "log")]
mod log;
mod telemetry;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

pub use self::effective::Effective;
#[cfg(feature = "clap")]
pub use self::flags::SiloFlags;

#[doc = concat!("The flags that name a file and single settings.")]
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
pub struct ConfigArgs {
    /// A TOML file with settings, as in `cluster_id = "dev"` [environment: EMMER_CONFIG]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub config: Option<PathBuf>,
    /// Sets any key of that file, as in `--set membership.probe_period=500ms`; may be repeated
    #[cfg_attr(feature = "clap", arg(long, value_name = "KEY=VALUE"))]
    pub set: Vec<String>,
}

/// The mistakes in settings, a sentence each: the place, the key, and the expected value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigError(Vec<String>);

impl ConfigError {
    /// One mistake.
    pub fn new(mistake: impl fmt::Display) -> Self {
        Self(vec![mistake.to_string()])
    }

    /// The mistakes, in the order in which they were found.
    pub fn mistakes(&self) -> &[String] {
        &self.0
    }

    /// # Errors
    /// There is a mistake.
    fn check(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Takes up the mistakes of `result`, and returns its value.
    fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.0.extend(error.0)).ok()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

/// The result of reading settings.
pub type Result<T> = std::result::Result<T, ConfigError>;

/// Place that a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of the file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The text as it was written.
    pub text: String,
    /// Place.
    pub place: Place,
}

/// Every key that was set anywhere, each with the value that wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, Entry>);

impl Settings {
    /// The settings of the process: its file, its environment, and `flags` as
    /// [`load`](Self::load) takes them.
    ///
    /// # Errors
    /// [`ConfigError`], with all that is wrong.
    pub fn of_process(
        args: &ConfigArgs,
        flags: Vec<(&'static str, Option<String>, &'static str)>,
    ) -> Result<Self> {
        Self::load(args, std::env::vars_os(), flags)
    }

    /// Layers file, environment and flags. `flags` are key, value if given, and how the flag is
    /// called.
    ///
    /// # Errors
    /// [`ConfigError`], with all that is wrong.
    pub fn load(
        args: &ConfigArgs,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: Vec<(&'static str, Option<String>, &'static str)>,
    ) -> Result<Self> {
        let mut wrong = ConfigError::default();
        let (variables, named) = environment::read(environment, &mut wrong);
        let path = args.config.clone().or(named);
        let of_file = path.map_or_else(|| Ok(Self::default()), |path| file::read(&path));
        let mut settings = wrong.take(of_file).unwrap_or_default();
        settings.0.extend(variables.0);
        for assignment in &args.set {
            let Some((key, text)) = assignment.split_once('=') else {
                let why = format!("--set {assignment}: expected KEY=VALUE");
                wrong.0.push(why);
                continue;
            };
            let known = keys::check(key.trim());
            let known = known.map_err(|why| ConfigError::new(format!("--set: {why}")));
            if let Some(key) = wrong.take(known) {
                settings.put(key, text.trim().to_owned(), Place::Flag("--set"));
            }
        }
        for (key, text, flag) in flags {
            if let Some(text) = text {
                settings.put(key.to_owned(), text, Place::Flag(flag));
            }
        }
        wrong.check().map(|()| settings)
    }

    /// The value of a key, if it was set.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.0.get(key)
    }

    /// The value of a key, parsed.
    pub fn parsed<T>(&self, key: &str) -> Result<Option<T>>
    where
        T: std::str::FromStr,
        T::Err: fmt::Display,
    {
        let parse = |entry: &Entry| entry.text.parse().map_err(|error| entry.wrong(key, error));
        self.get(key).map(parse).transpose()
    }

    /// The value of a key that has no default.
    ///
    /// # Errors
    /// It is not set, or is the store and not the address of one.
    pub fn required(&self, key: &str, flag: &str) -> Result<&Entry> {
        let entry = self.get(key).ok_or_else(|| {
            let variable = keys::variable(key);
            ConfigError::new(format!(
                "{key} is not set: give {flag}, or {key} in the file, or {variable}"
            ))
        })?;
        if key == "store" {
            let address = entry.text.parse::<emmer_store::StoreUrl>();
            address.map_err(|error| entry.wrong(key, error))?;
        }
        Ok(entry)
    }

    /// Every key that was set, and its place, in one line. The store is left out: it may hold a
    /// password.
    pub fn told(&self) -> String {
        let set = self.0.iter().filter(|(key, _)| *key != "store").map(|(key, entry)| {
            let is_secret = [tls::SECRET, telemetry::TOKEN].contains(&key.as_str());
            let text = if is_secret { tls::shown_secret(&entry.text) } else { &entry.text };
            format!("{key} = {text:?} ({})", entry.place)
        });
        set.collect::<Vec<_>>().join(", ")
    }

    fn put(&mut self, key: String, text: String, place: Place) {
        self.0.insert(key, Entry { text, place });
    }
}

impl Entry {
    /// The mistake that this value of `key` is.
    pub fn wrong(&self, key: &str, why: impl fmt::Display) -> ConfigError {
        ConfigError::new(format!("{}: {key}: {why}", self.place))
    }
}
