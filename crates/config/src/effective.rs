//! Every setting with the value that holds, and the place it comes from.

use emmer_runtime::SiloOptions;
use emmer_runtime::admin::SettingLook;
use emmer_store::url::StoreUrl;
use serde::Serialize;

use super::{Place, Result, Settings, keys, telemetry, tls};

/// A setting as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The key, as files and `--set` name it.
    pub key: String,
    /// Its value, without secrets; None without a value, or when it is made at the start of a silo.
    pub value: Option<String>,
    /// The place it comes from; none for a default.
    pub place: Option<Place>,
}

impl Settings {
    /// Every setting that there is, in the order of the documentation. Values need not fit
    /// together: [`silo_options`](Self::silo_options) says that.
    ///
    /// # Errors
    /// A value of a table is wrong.
    pub fn effective(&self) -> Result<Vec<Effective>> {
        let defaults = SiloOptions::default();
        let tables = [
            ("membership", table(&self.membership()?)),
            ("admin", table(&defaults.admin)),
            ("load_shedding", table(&defaults.load_shedding)),
            ("records", table(&defaults.records)),
            ("reminders", table(&defaults.reminders)),
            ("limits", table(&defaults.limits)),
        ];
        let of_table = |key: &str| {
            let (name, field) = key.split_once('.')?;
            let (_, table) = tables.iter().find(|(known, _)| *known == name)?;
            let value = table.get(field)?;
            Some(plain(value))
        };
        let default_of = |key: &str| top(key, &defaults).or_else(|| of_table(key));
        let effective = |key: String| match self.get(&key) {
            None => Effective { value: default_of(&key), key, place: None },
            Some(entry) => {
                let value = match key.as_str() {
                    "store" => shown(&entry.text),
                    tls::SECRET | telemetry::TOKEN => tls::shown_secret(&entry.text).to_owned(),
                    _ => entry.text.clone(),
                };
                Effective { value: Some(value), place: Some(entry.place.clone()), key }
            }
        };
        Ok(keys::all().into_iter().map(effective).collect())
    }
}

impl Effective {
    /// The setting as operators of a silo see it.
    pub(super) fn look(self) -> SettingLook {
        SettingLook::new(self.key, self.value, self.place.map(|place| place.to_string()))
    }
}

/// A value as it is written after `--set`.
pub(super) fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(truth) => truth.to_string(),
        // Options have no others.
        _ => String::new(),
    }
}

fn table(options: &impl Serialize) -> toml::Table {
    // Options are tables of plain values, which a test checks.
    toml::Table::try_from(options).unwrap_or_default()
}

/// The address of a store without its secrets. What cannot be read may be one.
fn shown(url: &str) -> String {
    url.parse::<StoreUrl>().map_or_else(|_| "***".to_owned(), |url| url.to_string())
}

/// The default of a key that is in no table of options.
fn top(key: &str, defaults: &SiloOptions) -> Option<String> {
    match key {
        // They have to be set.
        "cluster_id" | "listen" => None,
        "log" => Some("warn".to_owned()),
        "log_format" => Some("text".to_owned()),
        keys::PLACEMENT => Some("random".to_owned()),
        keys::PROFILE => Some("default".to_owned()),
        "tls.rollout" => Some("require".to_owned()),
        "tls.overlap" => Some("1h".to_owned()),
        "tls.telemetry" | "tls.anonymous_clients" => Some("false".to_owned()),
        _ => defaults.listed().into_iter().find(|(known, _)| *known == key)?.1,
    }
}
