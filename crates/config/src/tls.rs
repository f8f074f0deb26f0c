//! The settings of TLS: the table `[tls]`.

use std::path::Path;

#[cfg(feature = "tls")]
use emmer_runtime::{Tls, TlsRollout};

#[cfg(feature = "tls")]
use super::{ConfigError, Result};
use super::{Entry, Settings};

/// Its keys.
pub(super) const KEYS: [&str; 8] = [
    "tls.authority",
    "tls.certificate",
    "tls.key",
    "tls.secret",
    "tls.rollout",
    "tls.overlap",
    "tls.anonymous_clients",
    "tls.telemetry",
];

/// The key that names the place of a secret.
pub(super) const SECRET: &str = "tls.secret";

/// The place of a secret. A text that names no file may be the secret itself, put there by mistake.
pub(super) fn shown_secret(text: &str) -> &str {
    if text.starts_with("env:") || Path::new(text).exists() { text } else { "***" }
}

impl Settings {
    /// The first key about TLS that was set: for a program that was built without it.
    pub fn asks_for_tls(&self) -> Option<(&'static str, &Entry)> {
        KEYS.into_iter().find_map(|key| Some((key, self.get(key)?)))
    }

    /// The security of connections; none if no key about TLS is set.
    ///
    /// # Errors
    /// [`ConfigError`], with all that is wrong. The files are read by the silo or client.
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Result<Option<Tls>> {
        let Some((first, entry)) = self.asks_for_tls() else { return Ok(None) };
        let mut wrong = ConfigError::default();
        let path = |key: &str| self.get(key).map(|entry| entry.text.clone());
        let files = ["tls.authority", "tls.certificate", "tls.key"].map(path);
        let mut tls = match (files, self.get("tls.secret")) {
            ([Some(authority), Some(certificate), Some(key)], None) => {
                Tls::new(authority, certificate, key)
            }
            ([None, None, None], Some(secret)) => match secret.text.strip_prefix("env:") {
                Some(variable) => Tls::secret_in_variable(variable),
                None => Tls::secret(&secret.text),
            },
            (_, Some(secret)) => {
                let why = "a silo has a secret or a certificate, not both: take tls.authority, \
                           tls.certificate and tls.key away";
                return Err(secret.wrong("tls.secret", why));
            }
            _ => {
                let why = "a silo with TLS needs tls.authority, tls.certificate and tls.key, or \
                           tls.secret";
                return Err(entry.wrong(first, why));
            }
        };
        if let Some(step) = wrong.take(self.rollout()).flatten() {
            tls = tls.rollout(step);
        }
        if let Some(overlap) = wrong.take(self.duration("tls.overlap")).flatten() {
            tls = tls.overlap(overlap);
        }
        if wrong.take(self.truth("tls.anonymous_clients")).flatten().unwrap_or(false) {
            tls = tls.anonymous_clients();
        }
        wrong.take(self.truth("tls.telemetry"));
        wrong.check()?;
        Ok(Some(tls))
    }

    /// The encryption of the telemetry port; none if it is not asked for.
    ///
    /// # Errors
    /// [`ConfigError`]: a value is wrong, or the silo has a secret, which no scraper understands.
    #[cfg(feature = "tls")]
    pub fn telemetry_tls(&self) -> Result<Option<Tls>> {
        if !self.truth("tls.telemetry")?.unwrap_or(false) {
            return Ok(None);
        }
        match (self.get("tls.telemetry"), self.get("tls.secret")) {
            (Some(entry), Some(_)) => {
                let why = "needs certificates: no scraper understands tls.secret";
                Err(entry.wrong("tls.telemetry", why))
            }
            _ => self.tls(),
        }
    }

    #[cfg(feature = "tls")]
    fn rollout(&self) -> Result<Option<TlsRollout>> {
        let Some(entry) = self.get("tls.rollout") else { return Ok(None) };
        match entry.text.as_str() {
            "accept" => Ok(Some(TlsRollout::Accept)),
            "prefer" => Ok(Some(TlsRollout::Prefer)),
            "require" => Ok(Some(TlsRollout::Require)),
            other => {
                let why = format!("{other:?} is not one of accept, prefer and require");
                Err(entry.wrong("tls.rollout", why))
            }
        }
    }
}
