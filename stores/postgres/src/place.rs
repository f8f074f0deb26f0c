//! The place of the server: `postgres://user:password@host:port/database?parameters`.

use std::time::Duration;

use emmer_store::{Parameter, Parameters, Result, StoreError, StoreErrorKind, StoreUrl};
use emmer_store_relational::{CA_FILE, Limits, POOL_MAX, SSL_MODE, TlsMode};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::tls;

/// The parameters that are not the driver's.
const OURS: [Parameter; 3] = [POOL_MAX, SSL_MODE, CA_FILE];
/// Time after which the kernel gives up on a peer that acknowledges nothing.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which the kernel asks a silent peer if it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// A server and how to talk to it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The URL without secrets.
    pub(crate) name: String,
    /// Configuration of the driver.
    pub(crate) config: Config,
    /// Connector for TLS, if it encrypts.
    pub(crate) tls: Option<MakeRustlsConnect>,
    /// Sizes that the store takes.
    pub(crate) limits: Limits,
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let error = |store: &str, detail: &str| {
            StoreError::new(StoreErrorKind::Invalid, store, "open", detail.to_owned())
        };
        let url: StoreUrl = text.parse().map_err(|e| error("postgres://", &format!("{e}")))?;
        let name = url.to_string();
        if url.scheme() != "postgres" {
            return Err(error(&name, "this is not a postgres:// URL"));
        }
        let wrong = |detail: String| error(&name, &detail);
        let parameters = Parameters::read(&url, &OURS).map_err(wrong)?;
        let limits = Limits::of(&parameters);
        let mode = TlsMode::of(&parameters, TlsMode::Prefer);
        let others: Vec<String> =
            parameters.others.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let driver_url = format!("postgres://{}?{}", url.place(), others.join("&"));
        // The driver's own words may repeat a piece of a password that was not escaped.
        let mut config: Config = driver_url.parse().map_err(|_| {
            let expected = "expected postgres://user:password@host:port/database?parameters, with \
                            the parameters of libpq's URLs that tokio-postgres knows \
                            (application_name, options, target_session_attrs, ...), sslmode, \
                            ca_file, pool_max and timeout_ms; special characters of user and \
                            password as %XX";
            match unknown(&parameters) {
                Some(key) => {
                    wrong(format!("the parameter {key} or its value is not known; {expected}"))
                }
                None => error(&name, expected),
            }
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(error(&name, "no host is named: expected postgres://user@host/database"));
        }
        let tls = tls::connector(mode, parameters.text("ca_file"))
            .map_err(|detail| error(&name, &detail))?;
        config.ssl_mode(match mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyFull => SslMode::Require,
        });
        if config.get_password().is_none()
            && let Some(password) = password
        {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("emmer");
        }
        if config.get_connect_timeout().is_none() {
            // For each of several hosts.
            config.connect_timeout(limits.statement_timeout());
        }
        config.tcp_user_timeout(TCP_USER_TIMEOUT).keepalives_idle(KEEPALIVE_IDLE);
        Ok(Self { name, config, tls, limits })
    }
}

/// The first parameter that the driver refuses, in a URL that is good without it. What stands there
/// is shown in the store's name, too.
fn unknown(parameters: &Parameters) -> Option<&str> {
    let is_refused = |(key, value): &&(String, String)| {
        format!("postgres://h/d?{key}={value}").parse::<Config>().is_err()
    };
    parameters.others.iter().find(is_refused).map(|(key, _)| key.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_secrets_stay_out_of_the_name() {
        let place =
            Place::parse("postgres://bob:s3cret@db:5433/emmer?pool_max=3&sslmode=disable", None)
                .unwrap();
        assert_eq!(place.name, "postgres://bob:***@db:5433/emmer?pool_max=3&sslmode=disable");
        assert_eq!((place.limits.pool_max, place.config.get_ports()), (3, [5433].as_slice()));
        assert_eq!(place.config.get_password(), Some(b"s3cret".as_slice()));
        let place = Place::parse("postgres://bob@db/emmer", Some("from the environment")).unwrap();
        assert_eq!(place.config.get_password(), Some(b"from the environment".as_slice()));
        // Wrong escapes that have only one possible meaning.
        let place = Place::parse("postgres://bob:a/s3?cret@db/emmer", None).unwrap();
        assert_eq!(place.config.get_password(), Some(b"a/s3?cret".as_slice()));
        assert!(!place.name.contains("cret"), "{}", place.name);
        let place = Place::parse("postgres://bob:own@db/emmer", Some("other")).unwrap();
        assert_eq!(place.config.get_password(), Some(b"own".as_slice()));
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("postgres://bob:s3cret@db/emmer?pool_max=0", "pool_max"),
            ("postgres://bob:s3cret@db/emmer?pool_max=65", "pool_max"),
            ("postgres://bob:s3cret@db/emmer?timeout_ms=999", "timeout_ms"),
            ("postgres://bob:s3cret@db/emmer?colour=red", "parameter colour"),
            ("postgres://bob:s3cret@db:port/emmer", "%XX"),
            ("postgres://bob:s3%ffcret@db/emmer?x", "%XX"),
            ("postgres://bob:s3cret@db/emmer?sslmode=maybe", "verify-full"),
            (
                "postgres://bob:s3cret@db/emmer?sslmode=verify-full&sslrootcert=/not/there",
                "ca_file",
            ),
            ("postgres:///emmer", "host"),
            ("mysql://bob:s3cret@db/emmer", "postgres"),
        ] {
            let error = Place::parse(url, None).map(|p| p.name).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
