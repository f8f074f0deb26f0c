//! The settings of the port for metrics and health.

use super::{ConfigError, Settings};

/// The key that names the place of the token for orders over HTTP.
pub(super) const TOKEN: &str = "telemetry_token";

/// Lengths of a token, in bytes.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=8_192;

impl Settings {
    /// The token for orders over HTTP; none if no place is given. It is read now.
    ///
    /// # Errors
    /// [`ConfigError`]: the place has no token, or there is no port for orders.
    pub fn telemetry_token(&self) -> Result<Option<String>, ConfigError> {
        let Some(entry) = self.get(TOKEN) else { return Ok(None) };
        if self.get("telemetry").is_none() {
            return Err(entry.wrong(TOKEN, "needs a port: set telemetry too"));
        }
        let read = match entry.text.strip_prefix("env:") {
            Some(variable) => std::env::var(variable)
                .map_err(|_| format!("the environment has no variable {variable:?} of text")),
            None => std::fs::read_to_string(&entry.text)
                .map_err(|error| format!("the file with the token cannot be read: {error}")),
        };
        let token = read.map_err(|why| entry.wrong(TOKEN, why))?;
        let token = token.trim();
        let is_fit =
            TOKEN_BYTES.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_fit {
            Ok(Some(token.to_owned()))
        } else {
            let why = "the token has to be 16 to 8192 visible ASCII characters";
            Err(entry.wrong(TOKEN, why))
        }
    }
}
