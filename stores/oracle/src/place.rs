//! Where the server is: `oracle://user:password@host:port/service?parameters`.

use emmer_store::{Result, StoreError, StoreErrorKind, StoreUrl};
use emmer_store_relational::{Address, Limits, TlsMode, address};
use oracledb::Config;

/// The port of a listener whose URL names none.
const PORT: u16 = 1_521;
/// The same with TLS.
const TLS_PORT: u16 = 2_484;

/// A server and how to talk to it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The URL without secrets.
    pub(crate) name: String,
    /// How much the store takes.
    pub(crate) limits: Limits,
    /// Whether the connection is encrypted.
    pub(crate) is_tls: bool,
    /// What the driver connects with.
    pub(crate) config: Config,
}

/// The parameters of a URL.
#[derive(Default)]
struct Parameters {
    limits: Limits,
    is_tls: bool,
    wallet: Option<String>,
    sid: Option<String>,
}

impl Parameters {
    fn parse(url: &StoreUrl) -> std::result::Result<Self, &'static str> {
        let mut found = Self::default();
        for (key, value) in url.parameters() {
            match key {
                "sslmode" => {
                    found.is_tls = match value.parse()? {
                        TlsMode::Disable => false,
                        TlsMode::VerifyFull => true,
                        TlsMode::Prefer | TlsMode::Require => {
                            return Err(
                                "sslmode is disable or verify-full here: a listener has TLS on a \
                                        port of its own, and the driver always checks the \
                                        certificate",
                            );
                        }
                    }
                }
                "wallet" => found.wallet = Some(address::decoded(value)?),
                "sid" => found.sid = Some(address::decoded(value)?),
                _ if found.limits.take(key, value)? => {}
                _ => return Err("a parameter is not known"),
            }
        }
        if found.wallet.is_some() && !found.is_tls {
            return Err("a wallet is for sslmode=verify-full");
        }
        Ok(found)
    }
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let error = |store: &str, detail: String| {
            StoreError::new(StoreErrorKind::Invalid, store, "open", detail)
        };
        let url: StoreUrl = text.parse().map_err(|e| error("oracle://", format!("{e}")))?;
        let name = url.to_string();
        if url.scheme() != "oracle" {
            return Err(error(&name, "this is no oracle:// URL".to_owned()));
        }
        let expected = |detail: &str| {
            error(
                &name,
                format!(
                    "{detail}; expected oracle://user:password@host:port/service with the \
                     parameters pool_max, timeout_ms, sslmode=disable|verify-full, wallet (a \
                     folder with ewallet.pem) and sid (instead of the service); special characters \
                     of user and password as %XX"
                ),
            )
        };
        let address = Address::parse(&url).map_err(expected)?;
        let Parameters { limits, is_tls, wallet, sid } =
            Parameters::parse(&url).map_err(expected)?;
        let user = address.user.as_deref().ok_or_else(|| expected("no user is named"))?;
        let secret = address.password.as_deref().or(password);
        let secret =
            secret.filter(|s| !s.is_empty()).ok_or_else(|| expected("no password is given"))?;
        let database = database(&address.database, sid.as_deref()).map_err(expected)?;
        let (protocol, port) = if is_tls { ("tcps", TLS_PORT) } else { ("tcp", PORT) };
        let (host, port) = address.endpoint(port);
        // The driver puts these into a text of its own, where brackets mean something, and takes a
        // name for granted.
        if rustls::pki_types::ServerName::try_from(host).is_err() {
            return Err(expected("the host is no name and no IP address"));
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
            .map_err(|e| expected(&e.to_string()))?;
        if let Some(wallet) = wallet {
            config = config.set_wallet_location(wallet);
        }
        Ok(Self { name, limits, is_tls, config })
    }
}

/// Which database of the listener.
fn database(service: &str, sid: Option<&str>) -> std::result::Result<String, &'static str> {
    let (key, name) = match (service, sid) {
        ("", None) => return Err("no service is named"),
        (service, None) => ("SERVICE_NAME", service),
        ("", Some(sid)) => ("SID", sid),
        _ => return Err("a service and a sid are named"),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.$#-".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err("a service's name has letters, digits and _.$#- only");
    }
    Ok(format!("({key}={name})"))
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
