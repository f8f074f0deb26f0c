//! Where the ensemble is: `zookeeper://user:password@host:port,host:port/chroot?parameters`.

use std::fmt;

use emmer_store::address::Path;
use emmer_store::{Address, Parameter, Result, Rules, User};

use crate::paths;

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["zookeeper"],
    shape: "zookeeper://user:password@host:port,host:port/node",
    user: User::WithPassword,
    hosts_max: 16,
    port: 2_181,
    path: Some(Path {
        usual: "emmer",
        is_legal: is_node,
        rule: "the node must be a plain path of letters, digits and .-_:+=@, as in /emmer, of 200 \
               at most",
    }),
    parameters: &[Parameter::flag("tls"), Parameter::text("ca_file")],
};

/// The user and the password, `user:password`, for ZooKeeper's scheme `digest`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials(pub(crate) String);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// An ensemble and how to talk to it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: Address,
    /// The node under which everything is kept, as `/a/b`.
    pub(crate) root: String,
    pub(crate) credentials: Option<Credentials>,
    /// True if connections are encrypted.
    pub(crate) tls: bool,
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let address = Address::parse(text, &RULES, password)?;
        let credentials = match (&address.user, &address.password) {
            // ZooKeeper splits at the first colon.
            (Some(user), _) if user.contains(':') => {
                return Err(address.invalid("a user's name has no colon"));
            }
            (Some(user), Some(password)) => Some(Credentials(format!("{user}:{password}"))),
            _ => None,
        };
        let root = format!("/{}", address.path.trim_end_matches('/'));
        Ok(Self { root, credentials, tls: address.tls(false)?, address })
    }

    /// Host names or addresses with ports, at least one.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&str, u16)> {
        self.address.hosts.iter().map(|(host, port)| (host.trim_matches(['[', ']']), *port))
    }

    /// The hosts as the driver wants them.
    pub(crate) fn hosts_text(&self) -> String {
        let host = |(host, port): &(String, u16)| format!("{host}:{port}");
        self.address.hosts.iter().map(host).collect::<Vec<_>>().join(",")
    }
}

fn is_node(path: &str) -> bool {
    let is_legal = |part: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b".-_:+=@".contains(&b);
        !part.is_empty() && part.bytes().all(plain) && paths::escape(part) == part
    };
    // It is part of every path that travels.
    path.len() <= 200 && path.strip_suffix('/').unwrap_or(path).split('/').all(is_legal)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use emmer_store::StoreErrorKind;

    use super::*;

    #[test]
    fn urls_are_read_and_secrets_stay_out_of_the_name() {
        let place = Place::parse(
            "zookeeper://bob:s3%3Acret@a,b:2182,[::1]:2183/apps/emmer?timeout_ms=1000",
            None,
        )
        .unwrap();
        assert_eq!(
            place.address.name,
            "zookeeper://bob:***@a,b:2182,[::1]:2183/apps/emmer?timeout_ms=1000"
        );
        assert_eq!(place.hosts_text(), "a:2181,b:2182,[::1]:2183");
        assert_eq!(
            (place.root.as_str(), place.address.timeout),
            ("/apps/emmer", Duration::from_secs(1))
        );
        assert_eq!(place.credentials, Some(Credentials("bob:s3:cret".to_owned())));
        assert!(!format!("{place:?}").contains("cret"), "{place:?}");
        let place = Place::parse("zookeeper://a/", None).unwrap();
        assert_eq!((place.root.as_str(), place.credentials, place.tls), ("/emmer", None, false));
        let place =
            Place::parse("zookeeper://bob@a?tls=true&ca_file=/etc/ca.pem", Some("environment"))
                .unwrap();
        assert_eq!(place.credentials, Some(Credentials("bob:environment".to_owned())));
        assert_eq!(place.address.text("ca_file"), Some("/etc/ca.pem"));
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("zookeeper://bob:s3cret@a?timeout_ms=999", "timeout_ms"),
            ("zookeeper://bob:s3cret@a?tls=maybe", "tls"),
            ("zookeeper://bob:s3cret@a?ca_file=x&tls=false", "tls=false"),
            ("zookeeper://bob:s3cret@a?colour=red", "colour"),
            ("zookeeper://bob:s3cret@", "expected"),
            ("zookeeper://bob:s3cret@a:port/emmer", "expected"),
            ("zookeeper://bob:s3cret@a,,b/emmer", "expected"),
            ("zookeeper://bob:s3%ffcret@a/emmer", "%XX"),
            ("zookeeper://bob@a/emmer", "expected"),
            ("zookeeper://bob:s3cret@a/em mer", "path"),
            ("zookeeper://bob:s3cret@a/../emmer", "path"),
            ("zookeeper://bob:s3cret@a//emmer", "path"),
            ("etcd://bob:s3cret@a", "zookeeper"),
        ] {
            let error = Place::parse(url, None).map(|p| p.root).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
