//! Where the ensemble is: `zookeeper://user:password@host:port,host:port/chroot?parameters`.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use emmer_store::{Result, StoreError, StoreErrorKind, StoreUrl};

use crate::paths;

/// The port where the URL names none.
const PORT: u16 = 2181;
/// The node under which everything is kept where the URL names none.
const ROOT: &str = "/emmer";
/// The longest such node, in bytes: it is part of every path that travels.
const ROOT_BYTES_MAX: usize = 200;
/// How long an operation takes at most, connecting included, when the URL does not say
/// (`timeout_ms=`).
const OPERATION_TIMEOUT: Duration = Duration::from_millis(4_800);
/// What an operator may ask for.
const OPERATION_TIMEOUT_MS: RangeInclusive<u64> = 1_000..=60_000;

/// Who we say we are: `user:password`, for ZooKeeper's scheme `digest`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials(pub(crate) String);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// An ensemble and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The URL without secrets.
    pub(crate) name: String,
    /// Host names or addresses with ports, at least one.
    pub(crate) hosts: Vec<(String, u16)>,
    /// The node under which everything is kept, as `/a/b`; empty for the root.
    pub(crate) root: String,
    pub(crate) credentials: Option<Credentials>,
    /// Whether connections are encrypted.
    pub(crate) tls: bool,
    /// Certificates to trust (PEM).
    pub(crate) ca_file: Option<PathBuf>,
    /// How long an operation takes at most.
    pub(crate) timeout: Duration,
}

impl Place {
    /// Reads a URL. `password` stands in for one the URL leaves out.
    pub(crate) fn parse(text: &str, password: Option<&str>) -> Result<Self> {
        let error = |store: &str, detail: &str| {
            StoreError::new(StoreErrorKind::Invalid, store, "open", detail.to_owned())
        };
        let url: StoreUrl = text.parse().map_err(|e| error("zookeeper://", &format!("{e}")))?;
        let name = url.to_string();
        let wrong = |detail: &str| error(&name, detail);
        if url.scheme() != "zookeeper" {
            return Err(wrong("this is no zookeeper:// URL"));
        }
        let expected = "expected zookeeper://user:password@host:port,host:port/node?parameters; \
                        special characters of user and password as %XX";
        let (user, rest) = match url.place().rsplit_once('@') {
            None => (None, url.place()),
            Some((user, rest)) => (Some(user), rest),
        };
        let (hosts, root) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let mut place = Self {
            hosts: hosts
                .split(',')
                .map(host)
                .collect::<Option<_>>()
                .ok_or_else(|| wrong(expected))?,
            root: self::root(root).ok_or_else(|| {
                wrong("the node must be a plain path of letters, digits and .-_:+=@, as in /emmer")
            })?,
            credentials: user
                .map(|user| credentials(user, password).ok_or_else(|| wrong(expected)))
                .transpose()?,
            tls: false,
            ca_file: None,
            timeout: OPERATION_TIMEOUT,
            name: name.clone(),
        };
        for (key, value) in url.parameters() {
            match key {
                "timeout_ms" => {
                    let parsed = value.parse().ok().filter(|ms| OPERATION_TIMEOUT_MS.contains(ms));
                    let parsed = parsed
                        .ok_or_else(|| wrong("timeout_ms is not a number from 1000 to 60000"))?;
                    place.timeout = Duration::from_millis(parsed);
                }
                "tls" => {
                    place.tls =
                        value.parse().map_err(|_| wrong("tls is neither true nor false"))?;
                }
                "ca_file" => {
                    place.ca_file =
                        Some(PathBuf::from(decoded(value).ok_or_else(|| wrong(expected))?));
                }
                other => {
                    let known = "timeout_ms, tls and ca_file";
                    return Err(wrong(&format!(
                        "there is no parameter {other:?}, there are {known}"
                    )));
                }
            }
        }
        if place.ca_file.is_some() && !place.tls {
            return Err(wrong("ca_file without tls=true"));
        }
        Ok(place)
    }

    /// The hosts as the driver wants them.
    pub(crate) fn hosts_text(&self) -> String {
        let host = |(host, port): &(String, u16)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        };
        self.hosts.iter().map(host).collect::<Vec<_>>().join(",")
    }
}

fn host(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            let _: std::net::Ipv6Addr = address.parse().ok()?;
            (
                address,
                rest.strip_prefix(':')
                    .or_else(|| rest.is_empty().then_some(""))
                    .map(str::to_owned)?,
            )
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
            if host.is_empty() || !host.bytes().all(legal) {
                return None;
            }
            (host, port.to_owned())
        }
    };
    let port = if port.is_empty() { PORT } else { port.parse().ok().filter(|port| *port != 0)? };
    Some((host.to_owned(), port))
}

fn root(path: &str) -> Option<String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Some(ROOT.to_owned());
    }
    let legal = |part: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b".-_:+=@".contains(&b);
        !part.is_empty() && part.bytes().all(plain) && paths::escape(part) == part
    };
    let parts = path.strip_prefix('/')?;
    (path.len() <= ROOT_BYTES_MAX && parts.split('/').all(legal)).then(|| path.to_owned())
}

fn credentials(user: &str, password: Option<&str>) -> Option<Credentials> {
    let (user, password) = match user.split_once(':') {
        Some((user, password)) => (decoded(user)?, decoded(password)?),
        None => (decoded(user)?, password?.to_owned()),
    };
    // ZooKeeper splits at the first colon.
    (!user.is_empty() && !user.contains(':')).then(|| Credentials(format!("{user}:{password}")))
}

/// `%XX` as the bytes they stand for.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        let mut byte = *first;
        if byte == b'%' {
            byte = u8::from_str_radix(std::str::from_utf8(more.get(..2)?).ok()?, 16).ok()?;
            rest = more.get(2..)?;
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_secrets_stay_out_of_the_name() {
        let place = Place::parse(
            "zookeeper://bob:s3%3Acret@a,b:2182,[::1]:2183/apps/emmer?timeout_ms=1000",
            None,
        )
        .unwrap();
        assert_eq!(
            place.name,
            "zookeeper://bob:***@a,b:2182,[::1]:2183/apps/emmer?timeout_ms=1000"
        );
        assert_eq!(place.hosts_text(), "a:2181,b:2182,[::1]:2183");
        assert_eq!((place.root.as_str(), place.timeout), ("/apps/emmer", Duration::from_secs(1)));
        assert_eq!(place.credentials, Some(Credentials("bob:s3:cret".to_owned())));
        assert!(!format!("{place:?}").contains("cret"), "{place:?}");
        let place = Place::parse("zookeeper://a/", None).unwrap();
        assert_eq!((place.root.as_str(), place.credentials, place.tls), ("/emmer", None, false));
        let place =
            Place::parse("zookeeper://bob@a?tls=true&ca_file=/etc/ca.pem", Some("environment"))
                .unwrap();
        assert_eq!(place.credentials, Some(Credentials("bob:environment".to_owned())));
        assert_eq!(place.ca_file, Some(PathBuf::from("/etc/ca.pem")));
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("zookeeper://bob:s3cret@a?timeout_ms=999", "timeout_ms"),
            ("zookeeper://bob:s3cret@a?tls=maybe", "tls"),
            ("zookeeper://bob:s3cret@a?ca_file=x", "tls=true"),
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
            let error = Place::parse(url, None).map(|p| p.name).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
