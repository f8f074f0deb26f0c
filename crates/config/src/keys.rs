//! Every key there is, and how it is called in the environment.

use emmer_runtime::SiloOptions;

use super::tls;

/// Prefix of every variable.
pub(super) const VARIABLE_PREFIX: &str = "EMMER_";

/// Names the file; no key of its own.
pub(super) const CONFIG_VARIABLE: &str = "EMMER_CONFIG";

/// The keys outside any table.
const TOP: [&str; 36] = [
    "store",
    "cluster_id",
    "service_id",
    "listen",
    "advertise",
    "gateway",
    "advertise_gateway",
    "name",
    "role",
    "update_zone",
    "fault_zone",
    METADATA,
    "log",
    "log_format",
    "telemetry",
    super::telemetry::TOKEN,
    "otlp",
    "traces",
    "response_timeout",
    "collection_age",
    "collection_quantum",
    "memory_max",
    "balance",
    "balance_share",
    "repartition",
    "load_period",
    "activation_count_choices",
    "version_selector",
    PLACEMENT,
    "activation_timeout",
    "deactivation_timeout",
    "shutdown_timeout",
    "liveness_timeout",
    "connect_timeout",
    "insecure",
    "list_types_to_clients",
];

/// The strategy of grain classes that name none.
pub(super) const PLACEMENT: &str = "placement";

/// The silo's metadata, as `key=value`, separated by commas.
pub(super) const METADATA: &str = "metadata";

/// Name of the set of membership options that holds where no key says otherwise.
pub(super) const PROFILE: &str = "membership.profile";

/// All keys. Those of a table are the fields of its options, so a new option is a new key.
pub(super) fn all() -> Vec<String> {
    let defaults = SiloOptions::default();
    let mut keys: Vec<String> = TOP.iter().map(|key| (*key).to_owned()).collect();
    keys.extend(tls::KEYS.map(str::to_owned));
    keys.push(PROFILE.to_owned());
    keys.extend(fields("membership", toml::Table::try_from(&defaults.membership)));
    keys.extend(fields("admin", toml::Table::try_from(&defaults.admin)));
    keys.extend(fields("load_shedding", toml::Table::try_from(&defaults.load_shedding)));
    keys.extend(fields("records", toml::Table::try_from(&defaults.records)));
    keys.extend(fields("reminders", toml::Table::try_from(&defaults.reminders)));
    keys.extend(fields("limits", toml::Table::try_from(&defaults.limits)));
    keys
}

/// The tables that keys are in.
pub(super) fn tables() -> Vec<String> {
    let mut tables: Vec<String> =
        all().iter().filter_map(|key| Some(key.split_once('.')?.0.to_owned())).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

fn fields<E>(table: &str, options: Result<toml::Table, E>) -> Vec<String> {
    options.map(|o| o.keys().map(|key| format!("{table}.{key}")).collect()).unwrap_or_default()
}

/// The variable that sets `key`: `EMMER_MEMBERSHIP_PROBE_PERIOD` sets `membership.probe_period`.
pub(super) fn variable(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

/// The key itself, if there is such a one.
pub(super) fn check(key: &str) -> Result<String, String> {
    let keys = all();
    if keys.iter().any(|known| known == key) {
        return Ok(key.to_owned());
    }
    // A key in the wrong table is more likely than another word: compare without the table, too.
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let moved = keys.iter().find(|known| last(known) == last(key)).cloned();
    let nearest = moved.or_else(|| nearest(key, &keys));
    Err(unknown("key", key, nearest))
}

/// The key that a variable sets.
pub(super) fn of_variable(name: &str) -> Result<String, String> {
    let keys = all();
    if let Some(key) = keys.iter().find(|key| variable(key) == name) {
        return Ok(key.clone());
    }
    let names: Vec<String> =
        keys.iter().map(|key| variable(key)).chain([CONFIG_VARIABLE.into()]).collect();
    Err(unknown("environment variable", name, nearest(name, &names)))
}

/// The likeliest of `names`, if any is alike at all.
pub(super) fn nearest(name: &str, names: &[String]) -> Option<String> {
    let alike = |known: &&String| strsim::jaro_winkler(name, known);
    let best = names.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(&best) > 0.7).then(|| best.clone())
}

fn unknown(what: &str, name: &str, nearest: Option<String>) -> String {
    let name: String = name.chars().take(80).collect();
    match nearest {
        Some(nearest) => format!("unknown {what} {name:?}; did you mean {nearest:?}?"),
        None => {
            format!("unknown {what} {name:?}; the command `emmer config` lists all keys")
        }
    }
}
