//! The place of the server: `mssql://user:password@host:port/database?parameters`, or
//! `sqlserver://`.

use emmer_store::address::Path;
use emmer_store::{Address, Result, Rules, User};
use emmer_store_relational::{CA_FILE, Limits, POOL_MAX, SSL_MODE, TlsMode};
use tiberius::{AuthMethod, Config, EncryptionLevel};

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["mssql", "sqlserver"],
    shape: "mssql://user:password@host:port/database",
    user: User::Always,
    hosts_max: 1,
    port: 1_433,
    // The server would take the login's default, mostly `master`, and the tables would be made
    // there.
    path: Some(Path { usual: "", is_legal: |name| !name.is_empty(), rule: "no database is named" }),
    parameters: &[POOL_MAX, SSL_MODE, CA_FILE],
};

/// A server and how to talk to it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The URL without secrets.
    pub(crate) name: String,
    /// Sizes that the store takes.
    pub(crate) limits: Limits,
    /// Level of TLS.
    pub(crate) tls: TlsMode,
    /// True if the connection is surely encrypted.
    pub(crate) is_encrypted: bool,
    /// Configuration of the driver.
    pub(crate) config: Config,
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let address = Address::parse(text, &RULES, password)?;
        let limits = Limits::of(&address.parameters);
        let tls = TlsMode::of(&address.parameters, TlsMode::Require);
        let (host, port) = address.endpoint();
        let user = address.user.as_deref().unwrap_or_default();
        let secret = address.password.as_deref().unwrap_or_default();
        let mut config = Config::new();
        config.host(host);
        config.port(port);
        config.database(&address.path);
        config.authentication(AuthMethod::sql_server(user, secret));
        config.application_name("emmer");
        config.encryption(match tls {
            TlsMode::Disable => EncryptionLevel::NotSupported,
            TlsMode::Prefer => EncryptionLevel::On,
            TlsMode::Require | TlsMode::VerifyFull => EncryptionLevel::Required,
        });
        match (tls, address.text("ca_file")) {
            (TlsMode::VerifyFull, Some(file)) => config.trust_cert_ca(file),
            (TlsMode::VerifyFull, None) => {}
            _ => config.trust_cert(),
        }
        let is_encrypted = matches!(tls, TlsMode::Require | TlsMode::VerifyFull);
        Ok(Self { name: address.name, limits, tls, is_encrypted, config })
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
