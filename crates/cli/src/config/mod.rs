//! Configuration: a TOML file, then `EMMER_*` variables, then flags; the later one wins, key by
//! key.
//!
//! Every value keeps the place it came from, so that an error names key and place. Names nobody
//! knows are refused with the nearest that somebody does.

mod build;
mod file;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::Args;

use crate::exit::{Failure, Result};

/// The flags of every command that can be configured.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// A TOML file with any of the keys that docs/operations.md lists [environment: EMMER_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sets any key, as in `--set membership.probe_period=500ms`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of the file.
    File {
        /// Where the file is.
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
    /// Where.
    pub place: Place,
}

/// Every key that was set anywhere, each with the value that wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, Entry>);

impl Settings {
    /// Layers file, environment and flags. `flags` are key, value if given, and how the flag is
    /// called.
    pub fn load(
        args: &ConfigArgs,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        flags: Vec<(&'static str, Option<String>, &'static str)>,
    ) -> Result<Self> {
        let mut variables = Self::default();
        let mut path = args.config.clone();
        for (name, value) in environment {
            let Some(name) = name.to_str().filter(|name| name.starts_with(keys::VARIABLE_PREFIX))
            else {
                continue;
            };
            let not_text =
                || Failure::usage(format!("environment variable {name}: the value is not UTF-8"));
            if name == keys::CONFIG_VARIABLE {
                path = path.or_else(|| Some(PathBuf::from(value)));
                continue;
            }
            let key = keys::of_variable(name).map_err(Failure::usage)?;
            let text = value.into_string().map_err(|_| not_text())?;
            variables.put(key, text, Place::Variable(name.to_owned()));
        }
        let mut settings = path.map_or_else(|| Ok(Self::default()), |path| file::read(&path))?;
        settings.0.extend(variables.0);
        for assignment in &args.set {
            let Some((key, text)) = assignment.split_once('=') else {
                return Err(Failure::usage(format!("--set {assignment}: expected KEY=VALUE")));
            };
            let key =
                keys::check(key.trim()).map_err(|why| Failure::usage(format!("--set: {why}")))?;
            settings.put(key, text.trim().to_owned(), Place::Flag("--set"));
        }
        for (key, text, flag) in flags {
            if let Some(text) = text {
                settings.put(key.to_owned(), text, Place::Flag(flag));
            }
        }
        Ok(settings)
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
    pub fn required(&self, key: &str, flag: &str) -> Result<&Entry> {
        self.get(key).ok_or_else(|| {
            let variable = keys::variable(key);
            Failure::usage(format!(
                "{key} is not set: give {flag}, or {key} in the file, or {variable}"
            ))
        })
    }

    /// Every key that was set, and its place, in one line. The store is left out: it may hold a
    /// password.
    pub fn told(&self) -> String {
        let set = self.0.iter().filter(|(key, _)| *key != "store");
        let set = set.map(|(key, entry)| format!("{key} = {:?} ({})", entry.text, entry.place));
        set.collect::<Vec<_>>().join(", ")
    }

    fn put(&mut self, key: String, text: String, place: Place) {
        self.0.insert(key, Entry { text, place });
    }
}

impl Entry {
    /// The failure that this value of `key` is.
    pub fn wrong(&self, key: &str, why: impl fmt::Display) -> Failure {
        Failure::usage(format!("{}: {key}: {why}", self.place))
    }
}
