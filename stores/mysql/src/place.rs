//! The place of the server: `mysql://user:password@host:port/database?parameters`, or `mariadb://`.

use std::path::Path;
use std::time::Duration;

use emmer_store::address::Path as UrlPath;
use emmer_store::{Address, Result, Rules, User};
use emmer_store_relational::{CA_FILE, Limits, POOL_MAX, SSL_MODE, TlsMode};
use mysql_async::{Opts, OptsBuilder, SslOpts};

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["mysql", "mariadb"],
    shape: "mysql://user:password@host:port/database (or mariadb://)",
    user: User::Free,
    hosts_max: 1,
    port: 3_306,
    path: Some(UrlPath {
        usual: "",
        is_legal: |name| !name.is_empty(),
        rule: "no database is named",
    }),
    parameters: &[POOL_MAX, SSL_MODE, CA_FILE],
};
/// The statements one connection keeps prepared.
const STATEMENTS_MAX: usize = 256;
/// Time after which the kernel asks a silent peer if it is there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A server and how to talk to it.
#[derive(Clone)]
pub(crate) struct Place {
    /// The URL without secrets.
    pub(crate) name: String,
    /// Sizes that the store takes.
    pub(crate) limits: Limits,
    /// True if the connection is encrypted.
    pub(crate) tls: TlsMode,
    plain: Opts,
    secure: Opts,
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let address = Address::parse(text, &RULES, password)?;
        let limits = Limits::of(&address.parameters);
        let tls = TlsMode::of(&address.parameters, TlsMode::Prefer);
        let (host, port) = address.endpoint();
        let plain = OptsBuilder::default()
            .ip_or_hostname(host)
            .tcp_port(port)
            .user(address.user.clone())
            .pass(address.password.clone())
            .db_name(Some(address.path.clone()))
            .prefer_socket(false)
            .client_found_rows(true)
            .tcp_keepalive(Some(KEEPALIVE))
            .stmt_cache_size(STATEMENTS_MAX)
            // A value may have 16 MiB; the server's own limit is asked for when the session begins.
            .max_allowed_packet(Some(1 << 30))
            .wait_timeout(Some(28_800))
            .connect_attribute("program_name", "emmer");
        let secure = plain.clone().ssl_opts(ssl_options(tls, address.text("ca_file")));
        Ok(Self { name: address.name, limits, tls, plain: plain.into(), secure: secure.into() })
    }

    /// Options of the driver.
    pub(crate) fn options(&self, secure: bool) -> Opts {
        if secure { self.secure.clone() } else { self.plain.clone() }
    }
}

/// Trusted roots: the file's, else those of the system.
fn ssl_options(tls: TlsMode, root: Option<&str>) -> SslOpts {
    let verify = tls == TlsMode::VerifyFull;
    let roots = match root {
        Some(file) => vec![Path::new(file).to_path_buf().into()],
        // What cannot be read is not trusted; none at all is an error of the first connection.
        None if verify => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.into_iter().map(|certificate| certificate.to_vec().into()).collect()
        }
        None => Vec::new(),
    };
    // Without verification no signature is asked for, and the built-in roots only fill the list.
    SslOpts::default()
        .with_root_certs(roots)
        .with_disable_built_in_roots(verify)
        .with_danger_accept_invalid_certs(!verify)
}

#[cfg(test)]
mod tests {
    use emmer_store::StoreErrorKind;

    use super::*;

    #[test]
    fn urls_are_read_and_secrets_stay_out_of_the_name() {
        let place =
            Place::parse("mysql://bob:s3cret@db:3307/emmer?pool_max=3&sslmode=disable", None)
                .unwrap();
        assert_eq!(place.name, "mysql://bob:***@db:3307/emmer?pool_max=3&sslmode=disable");
        assert_eq!((place.limits.pool_max, place.tls), (3, TlsMode::Disable));
        let options = place.options(false);
        assert_eq!(
            (options.tcp_port(), options.pass(), options.db_name()),
            (3307, Some("s3cret"), Some("emmer"))
        );
        let place = Place::parse("mariadb://bob@db/emmer", Some("from the environment")).unwrap();
        assert_eq!(place.options(true).pass(), Some("from the environment"));
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("mysql://bob:s3cret@db/emmer?pool_max=0", "pool_max"),
            ("mysql://bob:s3cret@db/emmer?timeout_ms=999", "timeout_ms"),
            ("mysql://bob:s3cret@db/emmer?sslmode=maybe", "sslmode"),
            ("mysql://bob:s3cret@db/emmer?colour=red", "expected"),
            ("mysql://bob:s3cret@db:port/emmer", "port"),
            ("mysql://bob:s3%ffcret@db/emmer", "%XX"),
            ("mysql://bob:s3cret@db", "database"),
            ("postgres://bob:s3cret@db/emmer", "mysql"),
        ] {
            let error = Place::parse(url, None).map(|p| p.name).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
