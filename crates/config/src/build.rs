//! From settings to the options of a silo.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use emmer_core::ClusterId;
use emmer_membership as membership;
use emmer_placement::{Metadata, Strategy};
use emmer_runtime::{Setting, SiloOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::effective::Effective;
use super::{ConfigError, Entry, Result, Settings, keys};

/// The named sets of membership options.
const PROFILES: [&str; 4] = ["default", "classic", "fast", "orleans-2026"];

impl Settings {
    /// The cluster, which must be given.
    ///
    /// # Errors
    /// The key is not set, or its value is not valid.
    pub fn cluster(&self) -> Result<ClusterId> {
        let entry = self.required("cluster_id", "--cluster-id")?;
        ClusterId::new(&entry.text).map_err(|error| entry.wrong("cluster_id", error))
    }

    /// The service, if it has a name of its own.
    ///
    /// # Errors
    /// The value is not valid.
    pub fn service(&self) -> Result<Option<ClusterId>> {
        self.parsed("service_id")
    }

    /// The options of a silo: the defaults, with the settings.
    ///
    /// # Errors
    /// [`ConfigError`], with all that keeps a silo from starting: a store that is not set and a
    /// wrong placement too, which are no options.
    pub fn silo_options(&self) -> Result<SiloOptions> {
        let mut options = SiloOptions::default();
        let mut wrong = ConfigError::default();
        wrong.take(self.required("store", "--store").map(drop));
        set(&mut options.cluster_id, wrong.take(self.cluster()));
        set(&mut options.service_id, wrong.take(self.service()));
        wrong.take(self.required("listen", "--listen").map(drop));
        set(&mut options.listen, wrong.take(self.address("listen")).flatten());
        set(&mut options.advertise, wrong.take(self.address("advertise")));
        set(&mut options.gateway, wrong.take(self.address("gateway")));
        set(&mut options.advertise_gateway, wrong.take(self.address("advertise_gateway")));
        options.name = self.get("name").map(|entry| entry.text.clone());
        options.role = self.get("role").map(|entry| entry.text.clone());
        wrong.parsed(self, "update_zone", &mut options.update_zone);
        wrong.parsed(self, "fault_zone", &mut options.fault_zone);
        set(&mut options.metadata, wrong.take(self.metadata()));
        wrong.time(self, "response_timeout", &mut options.response_timeout);
        wrong.time(self, "collection_age", &mut options.collection_age);
        set(&mut options.collection_quantum, wrong.take(self.duration("collection_quantum")));
        wrong.percent(self, "memory_max", &mut options.memory_max);
        wrong.truth(self, "balance", &mut options.balance);
        wrong.percent(self, "balance_share", &mut options.balance_share);
        wrong.truth(self, "repartition", &mut options.repartition);
        wrong.time(self, "load_period", &mut options.load_period);
        wrong.parsed(self, "activation_count_choices", &mut options.activation_count_choices);
        wrong.parsed(self, "version_selector", &mut options.version_selector);
        wrong.time(self, "activation_timeout", &mut options.activation_timeout);
        wrong.time(self, "deactivation_timeout", &mut options.deactivation_timeout);
        wrong.time(self, "shutdown_timeout", &mut options.shutdown_timeout);
        wrong.time(self, "liveness_timeout", &mut options.liveness_timeout);
        wrong.time(self, "connect_timeout", &mut options.connect_timeout);
        wrong.truth(self, "insecure", &mut options.insecure);
        wrong.truth(self, "list_types_to_clients", &mut options.list_types_to_clients);
        set(&mut options.membership, wrong.take(self.membership()));
        wrong.overlaid(self, "admin", &mut options.admin);
        wrong.overlaid(self, "load_shedding", &mut options.load_shedding);
        wrong.overlaid(self, "records", &mut options.records);
        wrong.overlaid(self, "reminders", &mut options.reminders);
        wrong.overlaid(self, "limits", &mut options.limits);
        wrong.take(self.placement());
        // Options are checked once all of them are understood.
        wrong.check()?;
        options.check().map_err(|error| match self.get(&error.option) {
            Some(entry) => entry.wrong(&error.option, error.reason),
            None => ConfigError::new(error),
        })?;
        options.settings = self.effective()?.into_iter().map(Effective::look).collect();
        Ok(options)
    }

    /// The limits alone.
    ///
    /// # Errors
    /// [`ConfigError`], with all that is wrong.
    pub fn limits(&self) -> Result<emmer_core::limits::Limits> {
        self.overlay("limits", &SiloOptions::default().limits)
    }

    /// The silo's metadata: `zone=a, disk=ssd`.
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
    ///
    /// # Errors
    /// The value is not a built-in strategy.
    pub fn placement(&self) -> Result<Strategy> {
        let Some(entry) = self.get(keys::PLACEMENT) else { return Ok(Strategy::default()) };
        entry.text.parse().map_err(|error| entry.wrong(keys::PLACEMENT, error))
    }

    /// The membership options alone.
    ///
    /// # Errors
    /// A value is wrong, or two contradict each other.
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
                None => ConfigError::new(format!("{key}: {}", error.reason)),
            }
        })?;
        Ok(config)
    }

    /// The address under a key: an IP address and a port.
    ///
    /// # Errors
    /// The value is not valid.
    pub fn address(&self, key: &str) -> Result<Option<SocketAddr>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        let address = Setting::<SocketAddr>::value(entry.text.as_str());
        address.map(Some).map_err(|why| entry.wrong(key, why))
    }

    pub(super) fn truth(&self, key: &str) -> Result<Option<bool>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        let why = |_| entry.wrong(key, format!("{:?} is neither true nor false", entry.text));
        entry.text.parse().map(Some).map_err(why)
    }

    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        membership::humantime::parse(&entry.text).map(Some).map_err(|error| entry.wrong(key, error))
    }

    /// `base` with every key of `table` that was set.
    fn overlay<T: Serialize + DeserializeOwned>(&self, table: &str, base: &T) -> Result<T> {
        let internal = |error: &dyn Display| ConfigError::new(format!("[{table}]: {error}"));
        let mut values = toml::Table::try_from(base).map_err(|error| internal(&error))?;
        let mut wrong = ConfigError::default();
        for (key, entry) in &self.0 {
            let Some(name) = key.strip_prefix(table).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            let Some(slot) = values.get_mut(name) else { continue };
            let read = like(slot, &entry.text).map_err(|why| entry.wrong(key, why));
            let Some(value) = wrong.take(read) else { continue };
            let before = std::mem::replace(slot, value);
            // Key by key, so that an error about a value out of range names key and place.
            let fits: std::result::Result<T, toml::de::Error> = values.clone().try_into();
            if let Err(error) = fits {
                wrong.0.extend(entry.wrong(key, out_of_type(&error)).0);
                values.insert(name.to_owned(), before);
            }
        }
        wrong.check()?;
        values.try_into().map_err(|error| internal(&error))
    }
}

/// A share in percent.
struct Percent(u8);

impl FromStr for Percent {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let percent = text.parse().ok().filter(|percent| *percent <= 100);
        percent.map(Self).ok_or("expected a whole number from 0 to 100")
    }
}

impl ConfigError {
    fn parsed<T>(&mut self, settings: &Settings, key: &str, slot: &mut T)
    where
        T: FromStr,
        T::Err: Display,
    {
        set(slot, self.take(settings.parsed(key)).flatten());
    }

    fn percent(&mut self, settings: &Settings, key: &str, slot: &mut u8) {
        let parsed = self.take(settings.parsed::<Percent>(key)).flatten();
        set(slot, parsed.map(|Percent(percent)| percent));
    }

    fn truth(&mut self, settings: &Settings, key: &str, slot: &mut bool) {
        set(slot, self.take(settings.truth(key)).flatten());
    }

    fn time(&mut self, settings: &Settings, key: &str, slot: &mut Duration) {
        set(slot, self.take(settings.duration(key)).flatten());
    }

    fn overlaid<T: Serialize + DeserializeOwned>(
        &mut self,
        settings: &Settings,
        table: &str,
        slot: &mut T,
    ) {
        set(slot, self.take(settings.overlay(table, slot)));
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
            let number = text.parse().map_err(|_| {
                let digits = text.strip_prefix('-').unwrap_or(text);
                let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
                if is_number {
                    format!("{text} is out of range")
                } else {
                    format!("{text:?} is not a whole number")
                }
            })?;
            Ok(toml::Value::Integer(number))
        }
        toml::Value::Boolean(_) => {
            let truth = text.parse().map_err(|_| format!("{text:?} is neither true nor false"))?;
            Ok(toml::Value::Boolean(truth))
        }
        _ => Ok(toml::Value::String(text.to_owned())),
    }
}

/// Says why a value does not fit the type of its setting. For a number serde names the type.
fn out_of_type(error: &toml::de::Error) -> String {
    let said = error.message().lines().next().unwrap_or_default();
    let number = || said.strip_prefix("invalid value: integer `")?.split_once("`, expected ");
    let Some((number, kind)) = number() else { return said.to_owned() };
    let max = match kind {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        // Larger than any number that a file can hold.
        "u64" | "usize" => return format!("{number} is negative: expected 0 or more"),
        _ => return said.to_owned(),
    };
    format!("{number} is out of range: expected 0 to {max}")
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
