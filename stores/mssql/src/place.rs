//! Where the server is: `mssql://user:password@host:port/database?parameters`, or `sqlserver://`.

use emmer_store::{Result, StoreError, StoreErrorKind, StoreUrl};
use emmer_store_relational::{Address, Limits, TlsMode, address};
use tiberius::{AuthMethod, Config, EncryptionLevel};

/// The port of a server whose URL names none.
const PORT: u16 = 1433;

/// A server and how to talk to it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The URL without secrets.
    pub(crate) name: String,
    /// How much the store takes.
    pub(crate) limits: Limits,
    /// How much TLS is asked for.
    pub(crate) tls: TlsMode,
    /// Whether the connection is surely encrypted.
    pub(crate) is_encrypted: bool,
    /// What the driver connects with.
    pub(crate) config: Config,
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let error = |store: &str, detail: String| {
            StoreError::new(StoreErrorKind::Invalid, store, "open", detail)
        };
        let url: StoreUrl = text.parse().map_err(|e| error("mssql://", format!("{e}")))?;
        let name = url.to_string();
        if !["mssql", "sqlserver"].contains(&url.scheme()) {
            return Err(error(&name, "this is no mssql:// URL".to_owned()));
        }
        let expected = |detail: &str| {
            error(
                &name,
                format!(
                    "{detail}; expected mssql://user:password@host:port/database with the \
                     parameters pool_max, timeout_ms, sslmode=disable|prefer|require|verify-full \
                     and ca_file; special characters of user and password as %XX"
                ),
            )
        };
        let address = Address::parse(&url).map_err(expected)?;
        let (mut limits, mut tls, mut root) = (Limits::default(), TlsMode::Require, None);
        for (key, value) in url.parameters() {
            match key {
                "sslmode" => tls = value.parse().map_err(expected)?,
                "ca_file" | "sslrootcert" => {
                    root = Some(address::decoded(value).map_err(expected)?);
                }
                _ if limits.take(key, value).map_err(expected)? => {}
                _ => return Err(expected("a parameter is not known")),
            }
        }
        let user = address.user.as_deref().ok_or_else(|| expected("no user is named"))?;
        let (host, port) = address.endpoint(PORT);
        let secret = address.password.as_deref().or(password).unwrap_or_default();
        let mut config = Config::new();
        config.host(host);
        config.port(port);
        if address.database.is_empty() {
            // The server would take the login's default, mostly `master`, and the tables would be
            // made there.
            return Err(expected("no database is named"));
        }
        config.database(&address.database);
        config.authentication(AuthMethod::sql_server(user, secret));
        config.application_name("emmer");
        config.encryption(match tls {
            TlsMode::Disable => EncryptionLevel::NotSupported,
            TlsMode::Prefer => EncryptionLevel::On,
            TlsMode::Require | TlsMode::VerifyFull => EncryptionLevel::Required,
        });
        match (tls, root) {
            (TlsMode::VerifyFull, Some(file)) => config.trust_cert_ca(file),
            (TlsMode::VerifyFull, None) => {}
            _ => config.trust_cert(),
        }
        let is_encrypted = matches!(tls, TlsMode::Require | TlsMode::VerifyFull);
        Ok(Self { name, limits, tls, is_encrypted, config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_secrets_stay_out_of_the_name() {
        let place = Place::parse("mssql://sa:s3cret@db:1434/emmer?pool_max=3", None).unwrap();
        assert_eq!(place.name, "mssql://sa:***@db:1434/emmer?pool_max=3");
        assert_eq!((place.limits.pool_max, place.config.get_addr().as_str()), (3, "db:1434"));
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("mssql://sa:s3cret@db/emmer?pool_max=0", "pool_max"),
            ("mssql://sa:s3cret@db/emmer?sslmode=maybe", "sslmode"),
            ("sqlserver://sa:s3cret@db/emmer?colour=red", "expected"),
            ("mssql://db/emmer", "user"),
            ("mssql://sa:s3cret@db", "no database"),
            ("mssql://sa:s3cret@db:1433/?pool_max=3", "no database"),
            ("mysql://bob:s3cret@db/emmer", "mssql"),
        ] {
            let error = Place::parse(url, None).map(|p| p.name).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
        }
    }
}
