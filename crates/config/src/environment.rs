//! The variables of the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{ConfigError, Place, Settings, keys};

/// The settings that variables say, and the file that one of them names. Their mistakes go to
/// `wrong`.
pub(super) fn read(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    wrong: &mut ConfigError,
) -> (Settings, Option<PathBuf>) {
    let (mut settings, mut file) = (Settings::default(), None);
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(keys::VARIABLE_PREFIX))
        else {
            continue;
        };
        if name == keys::CONFIG_VARIABLE {
            file = Some(PathBuf::from(value));
            continue;
        }
        let Some(text) = value.to_str() else {
            wrong.0.push(format!("environment variable {name}: the value is not UTF-8"));
            continue;
        };
        match keys::of_variable(name) {
            Ok(key) => settings.put(key, text.to_owned(), Place::Variable(name.to_owned())),
            Err(_) if is_of_a_service(name, text) => {}
            Err(why) => wrong.0.push(why),
        }
    }
    (settings, file)
}

/// Kubernetes tells each container of every service in its namespace, in the form that Docker once
/// had: one called `emmer`, or `emmer-gateway`, makes variables with our prefix.
fn is_of_a_service(name: &str, value: &str) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    if name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") {
        return true;
    }
    // `_PORT`, `_PORT_30000_TCP`, `_PORT_30000_TCP_ADDR`
    let Some((_, behind)) = name.rsplit_once("_PORT") else { return false };
    if behind.is_empty() {
        // `.._PORT_30000_TCP_PORT` has a number.
        return is_address || name.contains("_TCP_") || name.contains("_UDP_");
    }
    let mut parts = behind.trim_start_matches('_').split('_');
    parts.next().is_some_and(|port| port.parse::<u16>().is_ok())
        && parts.next().is_some_and(|kind| ["TCP", "UDP", "SCTP"].contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> (Settings, ConfigError) {
        let mut wrong = ConfigError::default();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        (read(variables, &mut wrong).0, wrong)
    }

    #[test]
    fn what_kubernetes_says_of_services_is_passed_over() {
        let (settings, wrong) = of(&[
            ("EMMER_SERVICE_HOST", "10.96.0.7"),
            ("EMMER_SERVICE_PORT", "30000"),
            ("EMMER_SERVICE_PORT_GATEWAY", "30000"),
            ("EMMER_PORT", "tcp://10.96.0.7:30000"),
            ("EMMER_PORT_30000_TCP", "tcp://10.96.0.7:30000"),
            ("EMMER_PORT_30000_TCP_PROTO", "tcp"),
            ("EMMER_PORT_30000_TCP_PORT", "30000"),
            ("EMMER_PORT_30000_TCP_ADDR", "10.96.0.7"),
            ("EMMER_GATEWAY_SERVICE_HOST", "10.96.0.8"),
            ("EMMER_GATEWAY_PORT", "tcp://10.96.0.8:30000"),
            ("EMMER_NAME", "one"),
        ]);
        assert_eq!(wrong, ConfigError::default());
        assert_eq!(settings.get("name").map(|entry| &*entry.text), Some("one"));
    }

    #[test]
    fn a_misspelt_one_is_named_whatever_it_looks_like() {
        for (name, value) in [("EMMER_PORT", "30000"), ("EMMER_LISTE", "x"), ("EMMER_PORTS", "tcp")]
        {
            let (_, wrong) = of(&[(name, value)]);
            assert!(wrong.to_string().contains(name), "{name}: {wrong}");
        }
    }
}
