//! From settings to the options of a silo.

use std::time::Duration;

use emmer::placement::{Metadata, Strategy};
use emmer::{ClusterId, SiloOptions, membership};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Entry, Settings, keys};
use crate::exit::{Failure, Result};

/// The named sets of membership options.
const PROFILES: [&str; 4] = ["default", "classic", "fast", "orleans-2026"];

impl Settings {
    /// The cluster, which must be given.
    pub fn cluster(&self) -> Result<ClusterId> {
        let entry = self.required("cluster_id", "--cluster-id")?;
        ClusterId::new(&entry.text).map_err(|error| entry.wrong("cluster_id", error))
    }

    /// The service, if it has a name of its own.
    pub fn service(&self) -> Result<Option<ClusterId>> {
        self.parsed("service_id")
    }

    /// The options of a silo: the defaults, and what was set.
    pub fn silo_options(&self) -> Result<SiloOptions> {
        let mut options = SiloOptions::default();
        options.cluster_id = self.cluster()?;
        options.service_id = self.service()?;
        self.required("listen", "--listen")?;
        set(&mut options.listen, self.parsed("listen")?);
        options.advertise = self.parsed("advertise")?;
        options.gateway = self.parsed("gateway")?;
        options.name = self.get("name").map(|entry| entry.text.clone());
        options.role = self.get("role").map(|entry| entry.text.clone());
        set(&mut options.update_zone, self.parsed("update_zone")?);
        set(&mut options.fault_zone, self.parsed("fault_zone")?);
        options.metadata = self.metadata()?;
        set(&mut options.response_timeout, self.duration("response_timeout")?);
        set(&mut options.collection_age, self.duration("collection_age")?);
        options.collection_quantum = self.duration("collection_quantum")?;
        set(&mut options.load_period, self.duration("load_period")?);
        set(&mut options.activation_count_choices, self.parsed("activation_count_choices")?);
        set(&mut options.version_selector, self.parsed("version_selector")?);
        set(&mut options.activation_timeout, self.duration("activation_timeout")?);
        set(&mut options.deactivation_timeout, self.duration("deactivation_timeout")?);
        set(&mut options.shutdown_timeout, self.duration("shutdown_timeout")?);
        set(&mut options.connect_timeout, self.duration("connect_timeout")?);
        options.membership = self.membership()?;
        options.load_shedding = self.overlay("load_shedding", &options.load_shedding)?;
        options.records = self.overlay("records", &options.records)?;
        options.reminders = self.overlay("reminders", &options.reminders)?;
        options.limits = self.overlay("limits", &options.limits)?;
        options.check().map_err(|error| match self.get(&error.option) {
            Some(entry) => entry.wrong(&error.option, error.reason),
            None => Failure::usage(error),
        })?;
        Ok(options)
    }

    /// What the silo says of itself.
    fn metadata(&self) -> Result<Metadata> {
        let Some(entry) = self.get(keys::METADATA) else { return Ok(Metadata::new()) };
        let mut metadata = Metadata::new();
        for part in entry.text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                let why = format!("{part:?} has no `=`: write zone=a, disk=ssd");
                return Err(entry.wrong(keys::METADATA, why));
            };
            let key = key.trim().to_owned();
            if metadata.insert(key.clone(), value.trim().to_owned()).is_some() {
                return Err(entry.wrong(keys::METADATA, format!("{key:?} is there twice")));
            }
        }
        Ok(metadata)
    }

    /// The strategy of grain classes that name none.
    pub fn placement(&self) -> Result<Strategy> {
        let Some(entry) = self.get(keys::PLACEMENT) else { return Ok(Strategy::default()) };
        entry.text.parse().map_err(|error| entry.wrong(keys::PLACEMENT, error))
    }

    /// The membership options alone.
    pub fn membership(&self) -> Result<membership::Config> {
        let profile = match self.get(keys::PROFILE) {
            None => membership::Config::default(),
            Some(entry) => profile(entry)?,
        };
        let config = self.overlay("membership", &profile)?;
        config.validate().map_err(|error| {
            let key = format!("membership.{}", error.option);
            match self.get(&key).or_else(|| self.get(keys::PROFILE)) {
                Some(entry) => entry.wrong(&key, error.reason),
                // The contradiction is with another key that was set.
                None => Failure::usage(format!("{key}: {}", error.reason)),
            }
        })?;
        Ok(config)
    }

    fn duration(&self, key: &str) -> Result<Option<Duration>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        membership::humane::parse(&entry.text).map(Some).map_err(|error| entry.wrong(key, error))
    }

    /// `base` with every key of `table` that was set.
    fn overlay<T: Serialize + DeserializeOwned>(&self, table: &str, base: &T) -> Result<T> {
        let internal =
            |error: &dyn std::fmt::Display| Failure::other(format!("[{table}]: {error}"));
        let mut values = toml::Table::try_from(base).map_err(|error| internal(&error))?;
        for (key, entry) in &self.0 {
            let Some(name) = key.strip_prefix(table).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            let Some(slot) = values.get_mut(name) else { continue };
            *slot = like(slot, &entry.text).map_err(|why| entry.wrong(key, why))?;
            // One by one, so that a value out of its type's range is named with its key and place.
            let _: T = values.clone().try_into().map_err(|error: toml::de::Error| {
                let first = error.message().lines().next().unwrap_or_default();
                entry.wrong(key, first)
            })?;
        }
        values.try_into().map_err(|error| internal(&error))
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

/// `text` as a value of the same type as `model`.
fn like(model: &toml::Value, text: &str) -> std::result::Result<toml::Value, String> {
    match model {
        toml::Value::Integer(_) => {
            let number = text.parse().map_err(|_| format!("{text:?} is not a whole number"))?;
            Ok(toml::Value::Integer(number))
        }
        toml::Value::Boolean(_) => {
            let truth = text.parse().map_err(|_| format!("{text:?} is neither true nor false"))?;
            Ok(toml::Value::Boolean(truth))
        }
        _ => Ok(toml::Value::String(text.to_owned())),
    }
}

fn profile(entry: &Entry) -> Result<membership::Config> {
    match entry.text.as_str() {
        "default" => Ok(membership::Config::default()),
        "classic" => Ok(membership::Config::classic()),
        "fast" => Ok(membership::Config::fast()),
        "orleans-2026" => Ok(membership::Config::orleans_2026()),
        other => {
            let known = PROFILES.map(str::to_owned);
            let why = match keys::nearest(other, &known) {
                Some(nearest) => format!("unknown profile {other:?}; did you mean {nearest:?}?"),
                None => format!("unknown profile {other:?}; there are {}", PROFILES.join(", ")),
            };
            Err(entry.wrong(keys::PROFILE, why))
        }
    }
}
