//! The settings of a silo as people read them.

use std::time::Duration;

use emmer_membership::humantime;
use serde::{Deserialize, Serialize};

use super::SiloOptions;

/// Place of a value that the settings do not have.
const PROGRAM: &str = "the program";

/// A setting of a silo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SettingLook {
    /// The key, as files and `--set` name it.
    pub key: String,
    /// Its value, without secrets; none without one.
    pub value: Option<String>,
    /// Place that it comes from; none for a default.
    pub place: Option<String>,
}

impl SettingLook {
    /// A setting.
    pub const fn new(key: String, value: Option<String>, place: Option<String>) -> Self {
        Self { key, value, place }
    }
}

impl SiloOptions {
    /// The options that are in no table, by the keys of the settings, as they are written there.
    pub fn listed(&self) -> Vec<(&'static str, Option<String>)> {
        let time = |time: Duration| Some(humantime::print(time));
        let text = |text: &dyn ToString| Some(text.to_string());
        vec![
            ("cluster_id", text(&self.cluster_id)),
            ("service_id", self.service_id.as_ref().map(ToString::to_string)),
            ("listen", text(&self.listen)),
            ("advertise", self.advertise.map(|address| address.to_string())),
            ("gateway", self.gateway.map(|address| address.to_string())),
            ("advertise_gateway", self.advertise_gateway.map(|address| address.to_string())),
            ("name", self.name.clone()),
            ("role", self.role.clone()),
            ("update_zone", text(&self.update_zone)),
            ("fault_zone", text(&self.fault_zone)),
            ("response_timeout", time(self.response_timeout)),
            ("collection_age", time(self.collection_age)),
            ("balance", text(&self.balance)),
            ("balance_share", text(&self.balance_share)),
            ("repartition", text(&self.repartition)),
            ("memory_max", text(&self.memory_max)),
            ("load_period", time(self.load_period)),
            ("activation_count_choices", text(&self.activation_count_choices)),
            ("version_selector", text(&self.version_selector)),
            ("activation_timeout", time(self.activation_timeout)),
            ("deactivation_timeout", time(self.deactivation_timeout)),
            ("shutdown_timeout", time(self.shutdown_timeout)),
            ("liveness_timeout", time(self.liveness_timeout)),
            ("connect_timeout", time(self.connect_timeout)),
            ("insecure", text(&self.insecure)),
            ("list_types_to_clients", text(&self.list_types_to_clients)),
        ]
    }

    /// Every setting for operators: those of the files, the environment and the flags, and what the
    /// program itself has set.
    pub(crate) fn all_settings(&self) -> Vec<SettingLook> {
        let (mut all, defaults) = (self.settings.clone(), Self::default().listed());
        for (key, value) in self.listed() {
            let place = || Some(PROGRAM.to_owned());
            match all.iter_mut().find(|row| row.key == key) {
                // A text that was written may say the same in other words.
                Some(row) if row.place.is_none() && row.value != value => {
                    (row.value, row.place) = (value, place());
                }
                Some(_) => {}
                None => {
                    let is_default = defaults.contains(&(key, value.clone()));
                    let place = if is_default { None } else { place() };
                    all.push(SettingLook::new(key.to_owned(), value, place));
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_sets_is_shown_over_a_default() {
        let mut options = SiloOptions { balance: true, ..SiloOptions::default() };
        let row = |key: &str, value: &str, place: Option<&str>| {
            SettingLook::new(key.to_owned(), Some(value.to_owned()), place.map(str::to_owned))
        };
        options.settings = vec![
            row("balance", "false", None),
            row("load_period", "1000ms", Some("--set")),
            row("log", "warn", None),
        ];
        let all = options.all_settings();
        let first = [
            row("balance", "true", Some(PROGRAM)),
            row("load_period", "1000ms", Some("--set")),
            row("log", "warn", None),
        ];
        assert_eq!(all[..3], first);
        assert!(all.contains(&row("collection_age", "15m", None)));
        assert_eq!(all.len(), options.listed().len() + 1);
    }
}
