//! Addresses: `scheme://user:password@host:port,host:port/path?parameters`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use emmer_store::{Result, StoreError, StoreErrorKind, StoreUrl};

use crate::layout::{Layout, PREFIX, percent_decode as decode};

/// How long an operation takes at most, connecting included, when the URL does not say
/// (`timeout_ms=`).
const OPERATION_TIMEOUT_MS: u64 = 4_800;
/// What an operator may ask for.
const OPERATION_TIMEOUT_MS_RANGE: RangeInclusive<u64> = 1_000..=60_000;
/// The most hosts one URL may name.
const HOSTS_MAX: usize = 16;

/// A server, or several that are one store, and how to talk to it. `Debug` shows no secrets.
#[derive(Clone)]
pub struct Place {
    /// The URL without secrets.
    pub name: String,
    /// The scheme.
    pub scheme: String,
    /// The user, if one is named.
    pub user: Option<String>,
    /// The password, if there is one.
    pub password: Option<String>,
    /// `host:port`, at least one.
    pub hosts: Vec<(String, u16)>,
    /// What follows the first slash behind the hosts; often empty.
    pub path: String,
    /// How long an operation takes at most (`timeout_ms=`, 4800).
    pub timeout: Duration,
    /// The names of keys (`prefix=`, `emmer`).
    pub layout: Layout,
    parameters: Vec<(String, String)>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.name).finish()
    }
}

impl Place {
    /// Reads a URL. Beside `prefix` and `timeout_ms` it may have the parameters `known`; text that
    /// is no legal address is answered with `expected`.
    ///
    /// # Errors
    /// `Invalid`, without secrets.
    pub fn parse(
        text: &str,
        schemes: &[&str],
        default_port: u16,
        known: &[&str],
        expected: &str,
    ) -> Result<Self> {
        let invalid = |store: &str, detail: String| {
            StoreError::new(StoreErrorKind::Invalid, store, "open", detail)
        };
        let first = schemes.first().copied().unwrap_or_default();
        let url: StoreUrl =
            text.parse().map_err(|e| invalid(&format!("{first}://"), format!("{e}")))?;
        let name = url.to_string();
        let invalid = |detail: String| invalid(&name, format!("{detail}: expected {expected}"));
        if !schemes.contains(&url.scheme()) {
            return Err(invalid(format!("this is no {first}:// URL")));
        }
        let exposed = url.expose();
        let rest = exposed.split_once("://").map_or("", |(_, rest)| rest);
        // The last `@` of all, as `StoreUrl` has it when it hides passwords.
        let (credentials, rest) = rest.rsplit_once('@').map_or((None, rest), |(c, r)| (Some(c), r));
        let (user, password) = match credentials.map(|c| c.split_once(':').unwrap_or((c, ""))) {
            None => (None, None),
            Some((user, password)) => {
                let decoded = |text: &str| {
                    decode(text).ok_or_else(|| {
                        invalid(
                            "special characters of user and password are written as %XX".to_owned(),
                        )
                    })
                };
                (
                    Some(decoded(user)?).filter(|t| !t.is_empty()),
                    Some(decoded(password)?).filter(|t| !t.is_empty()),
                )
            }
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let hosts: Option<Vec<_>> = hosts.split(',').map(|h| host(h, default_port)).collect();
        let hosts = hosts
            .filter(|h| h.len() <= HOSTS_MAX)
            .ok_or_else(|| invalid("no host is named, or too many".to_owned()))?;
        let mut parameters = Vec::new();
        for (key, value) in
            query.split('&').filter(|p| !p.is_empty()).map(|p| p.split_once('=').unwrap_or((p, "")))
        {
            if key != "prefix" && key != "timeout_ms" && !known.contains(&key) {
                return Err(invalid(format!("there is no parameter {key:?}")));
            }
            let value =
                decode(value).ok_or_else(|| invalid(format!("{key} is not written as %XX")))?;
            parameters.push((key.to_owned(), value));
        }
        let find = |key: &str| parameters.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        let ms = find("timeout_ms").map_or(Some(OPERATION_TIMEOUT_MS), |v| v.parse().ok());
        let ms = ms.filter(|ms| OPERATION_TIMEOUT_MS_RANGE.contains(ms));
        let ms =
            ms.ok_or_else(|| invalid("timeout_ms is not a number from 1000 to 60000".to_owned()))?;
        let layout = Layout::new(find("prefix").unwrap_or(PREFIX)).ok_or_else(|| {
            invalid(
                "prefix is not made of letters, digits, '-', '_', '.' and single '/'".to_owned(),
            )
        })?;
        let (scheme, path) = (url.scheme().to_owned(), path.to_owned());
        let timeout = Duration::from_millis(ms);
        Ok(Self {
            name: name.clone(),
            scheme,
            user,
            password,
            hosts,
            path,
            timeout,
            layout,
            parameters,
        })
    }

    /// What URLs of its hosts begin with: scheme, host and port, without a port that goes without
    /// saying.
    pub fn bases(&self, tls: bool) -> Vec<String> {
        let (scheme, usual) = if tls { ("https", 443) } else { ("http", 80) };
        let base = |(host, port): &(String, u16)| match *port {
            port if port == usual => format!("{scheme}://{host}"),
            port => format!("{scheme}://{host}:{port}"),
        };
        self.hosts.iter().map(base).collect()
    }

    /// A parameter as the URL gives it, decoded.
    pub fn parameter(&self, key: &str) -> Option<&str> {
        self.parameters.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A parameter that is `true` or `false`; `false` when it is not there.
    ///
    /// # Errors
    /// `Invalid`: it is something else.
    pub fn flag(&self, key: &str) -> Result<bool> {
        match self.parameter(key) {
            None | Some("false") => Ok(false),
            Some("" | "true") => Ok(true),
            Some(_) => Err(self.invalid(format!("{key} is neither true nor false"))),
        }
    }

    /// An error about the address.
    pub fn invalid(&self, detail: impl fmt::Display) -> StoreError {
        StoreError::new(StoreErrorKind::Invalid, self.name.as_str(), "open", detail)
    }
}

fn host(text: &str, default_port: u16) -> Option<(String, u16)> {
    let legal = |host: &str| {
        !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c))
    };
    if let Some((v6, rest)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        v6.parse::<std::net::Ipv6Addr>().ok()?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None if rest.is_empty() => default_port,
            None => return None,
        };
        return Some((format!("[{v6}]"), port));
    }
    let (host, port) = match text.split_once(':') {
        None => (text, default_port),
        Some((host, port)) => (host, port.parse().ok()?),
    };
    legal(host).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Place> {
        Place::parse(text, &["etcd"], 2379, &["tls"], "etcd://host:port")
    }

    #[test]
    fn urls_are_read() {
        let place =
            parse("etcd://bob:a%2Fb%40@one:1,[::1],two/x?timeout_ms=1000&prefix=a/b&tls=true")
                .unwrap();
        assert_eq!((place.user.as_deref(), place.password.as_deref()), (Some("bob"), Some("a/b@")));
        let hosts = [("one".to_owned(), 1), ("[::1]".to_owned(), 2379), ("two".to_owned(), 2379)];
        assert_eq!((place.hosts.as_slice(), place.path.as_str()), (hosts.as_slice(), "x"));
        assert_eq!((place.timeout, place.layout.prefix()), (Duration::from_secs(1), "a/b"));
        assert!(place.flag("tls").unwrap());
        assert!(!format!("{place:?}").contains("a%2Fb"), "{place:?}");
        assert_eq!(parse("etcd://h").unwrap().timeout, Duration::from_millis(4_800));
        assert_eq!(parse("etcd://:pw@h").unwrap().user, None);
        let bases = |url, tls| parse(url).unwrap().bases(tls).join(" ").replace("://", " ");
        assert_eq!(bases("etcd://h:443,[::1]", true), "https h https [::1]:2379");
        assert_eq!(bases("etcd://h:443,g:80", false), "http h:443 http g");
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("etcd://bob:s3cret@", "host"),
            ("etcd://bob:s3cret@h:port", "host"),
            ("etcd://bob:s3cret@h h", "host"),
            ("etcd://bob:s3cret@[::1", "host"),
            ("etcd://bob:s3cret%@h", "%XX"),
            ("etcd://bob:s3cret@h?colour=red", "colour"),
            ("etcd://bob:s3cret@h?timeout_ms=999", "timeout_ms"),
            ("etcd://bob:s3cret@h?prefix=/", "prefix"),
            ("redis://bob:s3cret@h", "no etcd://"),
        ] {
            let error = parse(url).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
