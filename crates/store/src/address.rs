//! Addresses of servers: `scheme://user:password@host:port,host:port/path?parameters`. A store
//! describes by [`Rules`] which parts its addresses have, and their allowed values.

use std::fmt;
use std::time::Duration;

use crate::contract::{Result, StoreError, StoreErrorKind};
use crate::url::{StoreUrl, percent_decode};

/// The time of an operation in milliseconds, connecting included, where the URL does not say.
pub const OPERATION_TIMEOUT_MS: u64 = 4_800;
/// The parameter of every server: the longest time of an operation.
const TIMEOUT: Parameter = Parameter::number("timeout_ms", 1_000, 60_000);

/// The rules for the addresses of one store.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The schemes; the first is the usual one.
    pub schemes: &'static [&'static str],
    /// An example of what stands before the `?`, for errors.
    pub shape: &'static str,
    /// The users.
    pub user: User,
    /// The most hosts.
    pub hosts_max: usize,
    /// The port of a host that names none.
    pub port: u16,
    /// The text behind the hosts; none if there may be no text.
    pub path: Option<Path>,
    /// The parameters without `timeout_ms`, which every server has.
    pub parameters: &'static [Parameter],
}

/// The user and the password before the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Either of them, both or neither.
    Free,
    /// None; the text says what to write instead.
    Never(&'static str),
    /// A password only with a user.
    BeforePassword,
    /// Both or neither.
    WithPassword,
    /// A user always, a password or not.
    Always,
}

/// The text behind the hosts.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The text where the URL has none.
    pub usual: &'static str,
    /// Returns true if the text may stand there.
    pub is_legal: fn(&str) -> bool,
    /// Rule in words, as a sentence.
    pub rule: &'static str,
}

/// A parameter behind the `?`.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    name: &'static str,
    alias: &'static str,
    takes: Takes,
}

#[derive(Clone, Copy, Debug)]
enum Takes {
    Text,
    Flag,
    Number(u64, u64),
    OneOf(&'static [&'static str]),
}

impl Parameter {
    const fn new(name: &'static str, takes: Takes) -> Self {
        Self { name, alias: name, takes }
    }

    /// Any text, with `%XX` for special characters.
    pub const fn text(name: &'static str) -> Self {
        Self::new(name, Takes::Text)
    }

    /// `true` or `false`; the name alone is `true`.
    pub const fn flag(name: &'static str) -> Self {
        Self::new(name, Takes::Flag)
    }

    /// A whole number from `least` to `most`.
    pub const fn number(name: &'static str, least: u64, most: u64) -> Self {
        Self::new(name, Takes::Number(least, most))
    }

    /// One of some words.
    pub const fn one_of(name: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(name, Takes::OneOf(words))
    }

    /// Adds another name of the parameter, which other programs use.
    #[must_use]
    pub const fn or(mut self, alias: &'static str) -> Self {
        self.alias = alias;
        self
    }

    /// Checks a value.
    fn check(&self, value: &str) -> std::result::Result<(), String> {
        let name = self.name;
        match self.takes {
            Takes::Text => Ok(()),
            Takes::Flag if matches!(value, "" | "true" | "false") => Ok(()),
            Takes::Flag => Err(format!("{name} is neither true nor false")),
            Takes::Number(least, most)
                if value.parse().is_ok_and(|n: u64| (least..=most).contains(&n)) =>
            {
                Ok(())
            }
            Takes::Number(least, most) => {
                Err(format!("{name} is not a number from {least} to {most}"))
            }
            Takes::OneOf(words) if words.contains(&value) => Ok(()),
            Takes::OneOf(words) => Err(format!("{name} is not one of {}", words.join(", "))),
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.takes {
            Takes::OneOf(words) => write!(f, "{}={}", self.name, words.join("|")),
            _ => f.write_str(self.name),
        }
    }
}

/// The parameters of a URL, each checked, and under the name that it has here.
#[derive(Clone, Default)]
pub struct Parameters {
    values: Vec<(&'static str, String)>,
    /// Parameters that the store does not know, as they were written.
    pub others: Vec<(String, String)>,
}

impl Parameters {
    /// Reads those behind the `?` of a URL.
    ///
    /// # Errors
    /// In words without secrets: a value that its parameter does not take.
    pub fn read(url: &StoreUrl, known: &[Parameter]) -> std::result::Result<Self, String> {
        let mut found = Self::default();
        for (key, value) in url.parameters_behind_credentials() {
            let is_meant =
                |parameter: &&Parameter| [parameter.name, parameter.alias].contains(&key);
            let Some(parameter) = known.iter().chain([&TIMEOUT]).find(is_meant) else {
                found.others.push((key.to_owned(), value.to_owned()));
                continue;
            };
            let value = percent_decode(value)
                .ok_or_else(|| format!("{key} is not written as %XX: write % as %25"))?;
            parameter.check(&value)?;
            if found.text(parameter.name).is_some() {
                return Err(format!("{key} is there twice"));
            }
            found.values.push((parameter.name, value));
        }
        Ok(found)
    }

    /// A parameter as text; none if the URL does not have it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// A number; none if the URL does not have it.
    pub fn number<N: TryFrom<u64>>(&self, name: &str) -> Option<N> {
        N::try_from(self.text(name)?.parse().ok()?).ok()
    }

    /// A flag; none if the URL does not have it.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).map(|value| value != "false")
    }

    /// The longest time of an operation, connecting included.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.number(TIMEOUT.name).unwrap_or(OPERATION_TIMEOUT_MS))
    }
}

/// The address of a server, or of several that are one store. `Debug` shows no secrets.
#[derive(Clone)]
pub struct Address {
    /// The URL without secrets.
    pub name: String,
    /// The scheme.
    pub scheme: String,
    /// The user, if one is named.
    pub user: Option<String>,
    /// The password, if there is one.
    pub password: Option<String>,
    /// Hosts and ports, at least one; an IPv6 address stands in brackets.
    pub hosts: Vec<(String, u16)>,
    /// The text behind the hosts, without the slash.
    pub path: String,
    /// The longest time of an operation, connecting included (`timeout_ms=`, 4800).
    pub timeout: Duration,
    /// The parameters.
    pub parameters: Parameters,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.name).finish()
    }
}

impl Address {
    /// Reads a URL by the rules of a store. `password` is that of the environment, for a URL that
    /// leaves it out.
    ///
    /// # Errors
    /// `Invalid`, with the rule that is broken, the shape that was expected, and no secret.
    pub fn parse(text: &str, rules: &Rules, password: Option<&str>) -> Result<Self> {
        let invalid = |store: &str, detail: String| {
            StoreError::new(StoreErrorKind::Invalid, store, "open", detail)
        };
        let usual = rules.schemes.first().copied().unwrap_or_default();
        let url: StoreUrl =
            text.parse().map_err(|e| invalid(&format!("{usual}://"), format!("{e}")))?;
        let name = url.to_string();
        let wrong = |detail: String| invalid(&name, format!("{detail}: {}", rules.expected()));
        if !rules.schemes.contains(&url.scheme()) {
            return Err(wrong(format!("this is no {usual}:// URL")));
        }
        Self::read(&url, &name, rules, password).map_err(wrong)
    }

    fn read(
        url: &StoreUrl,
        name: &str,
        rules: &Rules,
        from_outside: Option<&str>,
    ) -> std::result::Result<Self, String> {
        let (credentials, rest) = url.split_credentials();
        let place = rest.split_once('?').map_or(rest, |(place, _)| place);
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let (user, password) = match credentials.map(|c| c.split_once(':').unwrap_or((c, ""))) {
            None => (None, None),
            Some((user, password)) => {
                let decoded = |text: &str| {
                    let text = percent_decode(text).ok_or(
                        "special characters of user and password are written as %XX, and % as %25",
                    )?;
                    Ok::<_, String>(Some(text).filter(|text| !text.is_empty()))
                };
                (decoded(user)?, decoded(password)?)
            }
        };
        let from_outside = from_outside
            .filter(|text| !text.is_empty() && (user.is_some() || rules.user == User::Free));
        let password = password.or_else(|| from_outside.map(str::to_owned));
        rules.user.check(user.is_some(), password.is_some())?;
        let hosts: Option<Vec<_>> = hosts.split(',').map(|text| host(text, rules.port)).collect();
        let hosts = hosts.ok_or(
            "no host is named, or a host is not a name or IP address with an optional port from \
             1 to 65535",
        )?;
        if hosts.len() > rules.hosts_max {
            return Err(match rules.hosts_max {
                1 => "only one host may be named".to_owned(),
                most => format!("more than {most} hosts are named"),
            });
        }
        let path = percent_decode(path).ok_or("the text behind the hosts has a broken %XX")?;
        let path = match rules.path {
            None if path.is_empty() => path,
            None if rules.parameters.iter().any(|parameter| parameter.name == "prefix") => {
                return Err("a path behind the hosts: use ?prefix=".to_owned());
            }
            None => return Err("a path behind the hosts".to_owned()),
            Some(rule) => {
                let path = if path.is_empty() { rule.usual.to_owned() } else { path };
                if !(rule.is_legal)(&path) {
                    return Err(rule.rule.to_owned());
                }
                path
            }
        };
        let parameters = Parameters::read(url, rules.parameters)?;
        if let Some((key, _)) = parameters.others.first() {
            return Err(format!("there is no parameter {key:?}"));
        }
        let (name, scheme) = (name.to_owned(), url.scheme().to_owned());
        let timeout = parameters.timeout();
        Ok(Self { name, scheme, user, password, hosts, path, timeout, parameters })
    }

    /// The first host, an IPv6 address without its brackets, and its port.
    pub fn endpoint(&self) -> (&str, u16) {
        let (host, port) = self.hosts.first().map_or(("", 0), |(host, port)| (host, *port));
        (host.trim_matches(['[', ']']), port)
    }

    /// The beginnings of the URLs of its hosts: scheme, host and port, without a port that goes
    /// without saying.
    pub fn bases(&self, tls: bool) -> Vec<String> {
        let (scheme, usual) = if tls { ("https", 443) } else { ("http", 80) };
        let base = |(host, port): &(String, u16)| match *port {
            port if port == usual => format!("{scheme}://{host}"),
            port => format!("{scheme}://{host}:{port}"),
        };
        self.hosts.iter().map(base).collect()
    }

    /// Returns true if connections are encrypted: as `tls=` says, else if there is a `ca_file`,
    /// else as `usual`.
    ///
    /// # Errors
    /// `Invalid`: a `ca_file` for connections that are not encrypted.
    pub fn tls(&self, usual: bool) -> Result<bool> {
        let has_ca = self.text("ca_file").is_some();
        match self.parameters.flag("tls") {
            Some(false) if has_ca => {
                Err(self.invalid("ca_file is for encryption: leave out tls=false"))
            }
            Some(tls) => Ok(tls),
            None => Ok(usual || has_ca),
        }
    }

    /// A parameter as text; none if the URL does not have it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.parameters.text(name)
    }

    /// An error about the address.
    pub fn invalid(&self, detail: impl fmt::Display) -> StoreError {
        StoreError::new(StoreErrorKind::Invalid, self.name.as_str(), "open", detail)
    }
}

impl Rules {
    /// The addresses that keep these rules, in words.
    pub fn expected(&self) -> String {
        let mut names: Vec<String> = self.parameters.iter().map(ToString::to_string).collect();
        let last = TIMEOUT.to_string();
        let text = if names.is_empty() {
            format!("the parameter {last}")
        } else {
            names.sort_unstable();
            format!("the parameters {} and {last}", names.join(", "))
        };
        format!("expected {} with {text}", self.shape)
    }
}

impl User {
    fn check(self, user: bool, password: bool) -> std::result::Result<(), &'static str> {
        match self {
            Self::Never(hint) if user || password => Err(hint),
            Self::BeforePassword if password && !user => Err("a password without a user"),
            Self::WithPassword if password != user => {
                Err("a user needs a password, and a password a user")
            }
            Self::Always if !user => Err("no user is named"),
            _ => Ok(()),
        }
    }
}

fn host(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((v6, rest)) => {
            v6.parse::<std::net::Ipv6Addr>().ok()?;
            (format!("[{v6}]"), if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p)));
            let legal = |c: char| c.is_alphanumeric() || "-._".contains(c);
            if host.is_empty() || !host.chars().all(legal) {
                return None;
            }
            (host.to_owned(), port)
        }
    };
    let port =
        port.map_or(Some(default_port), |port| port.parse().ok().filter(|port| *port > 0))?;
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        schemes: &["etcd"],
        shape: "etcd://user:password@host:port/name",
        user: User::BeforePassword,
        hosts_max: 3,
        port: 2_379,
        path: Some(Path {
            usual: "emmer",
            is_legal: |name| name.len() < 6,
            rule: "a name has up to five letters",
        }),
        parameters: &[
            Parameter::text("ca_file").or("sslrootcert"),
            Parameter::flag("tls"),
            Parameter::number("pool_max", 1, 64),
            Parameter::one_of("sslmode", &["disable", "require"]),
        ],
    };

    fn parse(text: &str) -> Result<Address> {
        Address::parse(text, &RULES, Some("outside"))
    }

    #[test]
    fn urls_are_read() {
        let found =
            parse("etcd://bob:a%2Fb%40@one:1,[::1],two/x?timeout_ms=1000&tls=true&pool_max=3")
                .unwrap();
        assert_eq!((found.user.as_deref(), found.password.as_deref()), (Some("bob"), Some("a/b@")));
        let hosts = [("one".to_owned(), 1), ("[::1]".to_owned(), 2379), ("two".to_owned(), 2379)];
        assert_eq!((found.hosts.as_slice(), found.path.as_str()), (hosts.as_slice(), "x"));
        assert_eq!((found.timeout, found.tls(false).unwrap()), (Duration::from_secs(1), true));
        assert_eq!(found.parameters.number("pool_max"), Some(3_usize));
        assert!(!format!("{found:?}").contains("a%2Fb"), "{found:?}");
        let found = parse("etcd://h?sslrootcert=%2Fx").unwrap();
        assert_eq!((found.timeout.as_millis(), found.path.as_str()), (4_800, "emmer"));
        assert_eq!((found.text("ca_file"), found.tls(false).unwrap()), (Some("/x"), true));
        assert_eq!((found.user, found.password), (None, None));
        assert_eq!(parse("etcd://bob@h").unwrap().password.as_deref(), Some("outside"));
        // Wrong escapes that have only one possible meaning.
        let found = parse("etcd://bob:s/3?c@ret@[::1]/emmer?tls").unwrap();
        assert_eq!(
            (found.password.as_deref(), found.endpoint()),
            (Some("s/3?c@ret"), ("::1", 2379))
        );
        let bases = |url, tls| parse(url).unwrap().bases(tls).join(" ").replace("://", " ");
        assert_eq!(bases("etcd://h:443,[::1]", true), "https h https [::1]:2379");
        assert_eq!(bases("etcd://h:443,g:80", false), "http h:443 http g");
    }

    #[test]
    fn mistakes_are_named_without_the_password() {
        for (url, word) in [
            ("etcd://bob:s3cret@", "no host"),
            ("etcd://bob:s3cret@h:port", "port"),
            ("etcd://bob:s3cret@h:0", "port"),
            ("etcd://bob:s3cret@h h", "host"),
            ("etcd://bob:s3cret@[::1", "host"),
            ("etcd://bob:s3cret@[::1]x", "host"),
            ("etcd://bob:s3cret@a,,b", "host"),
            ("etcd://bob:s3cret@a,b,c,d", "more than 3 hosts"),
            ("etcd://bob:s3cret%@h", "%XX"),
            ("etcd://bob:s3%ffcret@h", "%XX"),
            ("etcd://:s3cret@h", "without a user"),
            ("etcd://bob:s3cret@h/longer", "five letters"),
            ("etcd://bob:s3cret@h?colour=red", "colour"),
            ("etcd://bob:s3cret@h?tls=maybe", "tls is neither"),
            ("etcd://bob:s3cret@h?tls=true&tls=true", "tls is there twice"),
            ("etcd://bob:s3cret@h?pool_max=65", "pool_max is not a number from 1 to 64"),
            ("etcd://bob:s3cret@h?sslmode=x", "sslmode is not one of disable, require"),
            ("etcd://bob:s3cret@h?timeout_ms=999", "from 1000 to 60000"),
            ("redis://bob:s3cret@h", "no etcd:// URL"),
        ] {
            let error = parse(url).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cret"), "{url}: {text}");
            assert!(
                text.ends_with(
                    "expected etcd://user:password@host:port/name with the parameters ca_file, \
                     pool_max, sslmode=disable|require, tls and timeout_ms"
                ),
                "{text}"
            );
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
        let error = parse("etcd://h?tls=false&ca_file=f").unwrap().tls(true).unwrap_err();
        assert!(error.to_string().contains("ca_file"), "{error}");
    }
}
