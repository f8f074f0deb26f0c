//! Addresses: `redis://user:password@host:port/database?parameters`, of a cluster some nodes.

use emmer_store::address::Path;
use emmer_store::{Parameter, Result, Rules, StoreErrorKind, User};
use emmer_store_keyvalue::layout::{Layout, PREFIX_PARAMETER};
use emmer_store_keyvalue::{Fault, tls};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates,
};

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["redis", "rediss"],
    shape: "redis://user:password@host:port/database (or rediss:// for TLS; of a cluster \
            host:port,host:port)",
    user: User::Free,
    hosts_max: 16,
    port: 6_379,
    path: Some(Path {
        usual: "0",
        is_legal: |number| number.parse::<u16>().is_ok(),
        rule: "the database is not a number: redis://host/0",
    }),
    parameters: &[
        Parameter::number("wait_replicas", 0, 16),
        Parameter::text("ca_file"),
        PREFIX_PARAMETER,
    ],
};

/// A server, or nodes of one cluster, and how to talk to them.
pub(crate) struct Address {
    pub(crate) place: emmer_store::Address,
    pub(crate) layout: Layout,
    database: i64,
    /// The authorities to trust, PEM; none: the system's.
    authorities: Option<Vec<u8>>,
    /// The replicas that must have a commit before it is acknowledged.
    pub(crate) wait_replicas: u32,
    /// True if the connection is encrypted.
    pub(crate) tls: bool,
}

impl Address {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let place = emmer_store::Address::parse(text, &RULES, password)?;
        let wait_replicas = place.parameters.number("wait_replicas").unwrap_or(0);
        let database = place.path.parse().unwrap_or(0);
        let tls = place.scheme == "rediss";
        if !tls && place.text("ca_file").is_some() {
            return Err(place.invalid("ca_file is for rediss:// only"));
        }
        if place.hosts.len() > 1 && database != 0 {
            return Err(
                place.invalid("several hosts are nodes of one cluster, which has database 0 only")
            );
        }
        let authorities = place.text("ca_file").map(tls::read_certificates).transpose();
        let authorities = authorities.map_err(|fault| fault.at(&place.name, "open"))?;
        if tls {
            tls::install_provider();
        }
        let layout = Layout::of(&place)?;
        let address = Self { place, layout, database, authorities, wait_replicas, tls };
        for (host, port) in &address.place.hosts {
            let made = address.client(host.trim_matches(['[', ']']), *port);
            made.map_err(|fault| fault.at(&address.place.name, "open"))?;
        }
        Ok(address)
    }

    /// A client of the server at `host:port`; nothing is sent yet.
    pub(crate) fn client(&self, host: &str, port: u16) -> std::result::Result<Client, Fault> {
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_lib_name("emmer", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.place.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.place.password {
            settings = settings.set_password(password);
        }
        let host = host.to_owned();
        let addr = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let invalid = |e: redis::RedisError| Fault::new(StoreErrorKind::Invalid, e.to_string());
        let info: ConnectionInfo =
            addr.into_connection_info().map_err(invalid)?.set_redis_settings(settings);
        if !self.tls {
            return Client::open(info).map_err(invalid);
        }
        let root_cert = self.authorities.clone();
        Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            .map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let address = Address::parse("redis://bob:s3cret@db:7000/2?wait_replicas=1", None).unwrap();
        let client = address.client("db", 7000).unwrap();
        let info = client.get_connection_info();
        assert_eq!(info.addr(), &ConnectionAddr::Tcp("db".into(), 7000));
        assert_eq!(info.redis_settings().db(), 2);
        assert_eq!(info.redis_settings().password(), Some("s3cret"));
        assert_eq!(address.place.name, "redis://bob:***@db:7000/2?wait_replicas=1");
        assert_eq!((address.wait_replicas, address.tls), (1, false));
        let from_outside = Address::parse("redis://db", Some("s3cret")).unwrap();
        assert_eq!(from_outside.place.password.as_deref(), Some("s3cret"));
        let v6 = Address::parse("rediss://[::1]", None).unwrap();
        let shown = v6.client("::1", 6379).unwrap().get_connection_info().addr().to_string();
        assert!(v6.tls && shown.contains("::1:6379"), "{shown}");
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("redis://bob:s3cret@db/x", "database"),
            ("redis://bob:s3cret@db?wait_replicas=17", "wait_replicas"),
            ("redis://bob:s3cret@a,b/1", "several hosts"),
            ("redis://bob:s3cret@db?ca_file=/x", "rediss://"),
            ("rediss://bob:s3cret@db?ca_file=/not/there", "ca_file"),
            ("redis://bob:s3cret@db?colour=red", "colour"),
        ] {
            let error = Address::parse(url, None).map(|a| a.tls).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
