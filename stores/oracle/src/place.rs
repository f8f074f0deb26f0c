//! The place of the server: `oracle://user:password@host:port/service?parameters`.

use emmer_store::address::Path;
use emmer_store::{Address, Parameter, Result, Rules, User};
use emmer_store_relational::{Limits, POOL_MAX, SSL_MODE, TlsMode};
use oracledb::Config;

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["oracle"],
    shape: "oracle://user:password@host:port/service",
    user: User::Always,
    hosts_max: 1,
    // It depends on the encryption.
    port: 0,
    path: Some(Path {
        usual: "",
        is_legal: is_plain,
        rule: "a service's name has letters, digits and _.$#- only",
    }),
    parameters: &[
        POOL_MAX,
        SSL_MODE,
        // A folder with ewallet.pem.
        Parameter::text("wallet"),
        // Instead of the service.
        Parameter::text("sid"),
    ],
};
/// The port of a listener whose URL names none.
const PORT: u16 = 1_521;
/// Port with TLS.
const TLS_PORT: u16 = 2_484;

/// A server and how to talk to it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The URL without secrets.
    pub(crate) name: String,
    /// Sizes that the store takes.
    pub(crate) limits: Limits,
    /// True if the connection is encrypted.
    pub(crate) is_tls: bool,
    /// Configuration of the driver.
    pub(crate) config: Config,
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let address = Address::parse(text, &RULES, password)?;
        let limits = Limits::of(&address.parameters);
        let is_tls = match TlsMode::of(&address.parameters, TlsMode::Disable) {
            TlsMode::Disable => false,
            TlsMode::VerifyFull => true,
            TlsMode::Prefer | TlsMode::Require => {
                return Err(address.invalid(
                    "sslmode is disable or verify-full here: a listener has TLS on a port of its \
                     own, and the driver always checks the certificate",
                ));
            }
        };
        let wallet = address.text("wallet");
        if wallet.is_some() && !is_tls {
            return Err(address.invalid("a wallet is for sslmode=verify-full"));
        }
        let user = address.user.as_deref().unwrap_or_default();
        let secret = address.password.as_deref();
        let secret = secret.ok_or_else(|| address.invalid("no password is given"))?;
        let database = database(&address.path, address.text("sid"))
            .map_err(|detail| address.invalid(detail))?;
        let protocol = if is_tls { "tcps" } else { "tcp" };
        let (host, port) = match address.endpoint() {
            (host, 0) => (host, if is_tls { TLS_PORT } else { PORT }),
            endpoint => endpoint,
        };
        // The driver puts these into a text of its own, where brackets mean something, and takes a
        // name for granted.
        if rustls::pki_types::ServerName::try_from(host).is_err() {
            return Err(address.invalid("the host is neither a name nor an IP address"));
        }
        // Who repeats is the store: the driver would sleep for a second after every attempt that
        // failed, the last one too.
        let text = format!(
            "(DESCRIPTION=(RETRY_COUNT=0)(RETRY_DELAY=0)(ADDRESS=(PROTOCOL={protocol})(HOST={host})(PORT={port}))(CONNECT_DATA={database}))"
        );
        let mut config = Config::default()
            .set_credentials(user, secret)
            .set_driver_name("emmer")
            .set_transport_connect_timeout(Some(limits.timeout))
            .set_connect_string(&text)
            .map_err(|e| address.invalid(e))?;
        if let Some(wallet) = wallet {
            config = config.set_wallet_location(wallet);
        }
        Ok(Self { name: address.name, limits, is_tls, config })
    }
}

/// Database of the listener.
fn database(service: &str, sid: Option<&str>) -> std::result::Result<String, &'static str> {
    let (key, name) = match (service, sid) {
        ("", None) => return Err("no service is named"),
        (service, None) => ("SERVICE_NAME", service),
        ("", Some(sid)) => ("SID", sid),
        _ => return Err("a service and a sid are named"),
    };
    if name.is_empty() || !is_plain(name) {
        return Err("a sid has letters, digits and _.$#- only");
    }
    Ok(format!("({key}={name})"))
}

fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_.$#-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(url: &str) -> String {
        Place::parse(url, Some("s3cret")).unwrap().config.get_connect_descriptor()
    }

    #[test]
    fn urls_are_read_and_secrets_stay_out_of_the_name() {
        let place =
            Place::parse("oracle://bob:s3cret@db:1522/emmer.example?pool_max=3", None).unwrap();
        assert_eq!(place.name, "oracle://bob:***@db:1522/emmer.example?pool_max=3");
        assert_eq!(
            (place.limits.pool_max, place.is_tls, place.config.user()),
            (3, false, Some("bob"))
        );
        let text = place.config.get_connect_descriptor();
        assert!(text.contains("(PROTOCOL=tcp)(HOST=db)(PORT=1522)"), "{text}");
        assert!(
            text.contains("(SERVICE_NAME=emmer.example)") && !text.contains("s3cret"),
            "{text}"
        );
    }

    #[test]
    fn ports_follow_tls_and_a_sid_stands_for_a_service() {
        assert!(descriptor("oracle://bob@db/emmer").contains("(PORT=1521)"));
        let text = descriptor("oracle://bob@[::1]/?sid=ORCL&sslmode=verify-full&wallet=%2Fetc%2Fw");
        assert!(text.contains("(PROTOCOL=tcps)") && text.contains("(PORT=2484)"), "{text}");
        assert!(text.contains("(SID=ORCL)"), "{text}");
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("oracle://bob:s3cret@db/emmer?pool_max=0", "pool_max"),
            ("oracle://bob:s3cret@db/emmer?sslmode=require", "verify-full"),
            ("oracle://bob:s3cret@db/emmer?wallet=%2Fw", "wallet"),
            ("oracle://bob:s3cret@db/emmer?colour=red", "expected"),
            ("oracle://bob:s3cret@db", "service"),
            ("oracle://bob:s3cret@db/emmer?sid=ORCL", "sid"),
            ("oracle://bob:s3cret@db/a)(b", "letters"),
            ("oracle://bob:s3cret@d(b/emmer", "host"),
            ("oracle://db/emmer", "user"),
            ("oracle://bob@db/emmer", "password"),
            ("mysql://bob:s3cret@db/emmer", "oracle"),
        ] {
            let error = Place::parse(url, None).map(|p| p.name).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
        }
    }
}
