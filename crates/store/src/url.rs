//! Connection strings: `scheme://rest`, whose credentials are never printed.

use std::fmt;
use std::str::FromStr;

/// Every scheme that names a system store.
pub const SCHEMES: [&str; 18] = [
    "memory",
    "sqlite",
    "postgres",
    "mysql",
    "mariadb",
    "mssql",
    "sqlserver",
    "oracle",
    "redis",
    "rediss",
    "zookeeper",
    "consul",
    "etcd",
    "azure-table",
    "cosmos",
    "dynamodb",
    "mongodb",
    "cassandra",
];

/// The address of a system store. `Display` and `Debug` replace everything that may be a secret by
/// `***`: what stands between the first colon and the last `@`, and every parameter whose name
/// sounds secret.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: String,
    rest: String,
}

impl StoreUrl {
    /// The scheme, one of [`SCHEMES`].
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Everything behind `://` up to the `?`, secrets included.
    pub fn place(&self) -> &str {
        self.rest.split_once('?').map_or(&self.rest, |(place, _)| place)
    }

    /// The parameters behind the `?`, in order, as they were written (no percent-decoding).
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.query())
    }

    fn query(&self) -> &str {
        self.rest.split_once('?').map_or("", |(_, query)| query)
    }

    /// The whole text, secrets included: for the driver, never for a message.
    pub fn expose(&self) -> String {
        format!("{}://{}", self.scheme, self.rest)
    }
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|p| !p.is_empty()).map(|p| p.split_once('=').unwrap_or((p, "")))
}

impl FromStr for StoreUrl {
    type Err = ParseStoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The text itself stays out of the errors: it may hold a password.
        if let Some(at) = text.find(char::is_control) {
            return Err(ParseStoreUrlError::ControlCharacter(at));
        }
        let (scheme, rest) = text.split_once("://").ok_or(ParseStoreUrlError::NoScheme)?;
        // In URLs the case of a scheme means nothing (RFC 3986, 3.1).
        let scheme = scheme.to_ascii_lowercase();
        if !SCHEMES.contains(&scheme.as_str()) {
            return Err(ParseStoreUrlError::UnknownScheme(scheme.chars().take(40).collect()));
        }
        Ok(Self { scheme, rest: rest.to_owned() })
    }
}

/// The text is not the address of a system store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseStoreUrlError {
    /// There is no `://`.
    #[error(
        "not the address of a system store: expected scheme://..., as in sqlite://cluster.db or \
         memory://"
    )]
    NoScheme,
    /// A control character stands at this byte: no store's address has one, and a log would not
    /// show it.
    #[error(
        "not the address of a system store: byte {0} is a control character; expected one line of \
         text, as in sqlite://cluster.db or memory://"
    )]
    ControlCharacter(usize),
    /// The scheme names no store.
    #[error("{0:?} is no system store: expected one of {list}", list = SCHEMES.join(", "))]
    UnknownScheme(String),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        // The last `@` of all: a password may hold an unescaped slash, question mark or `@`. Files
        // have none.
        let credentials = self.rest.rsplit_once('@').filter(|_| self.scheme != "sqlite");
        let (place, query) = match credentials {
            None => (self.place(), self.query()),
            Some((user, rest)) => {
                match user.split_once(':') {
                    None => write!(f, "{user}@")?,
                    Some((user, _)) => write!(f, "{user}:***@")?,
                }
                rest.split_once('?').unwrap_or((rest, ""))
            }
        };
        f.write_str(place)?;
        let mut separator = '?';
        for (name, value) in pairs(query) {
            let lower = name.to_ascii_lowercase();
            let secret = ["pass", "pwd", "secret", "key", "token", "sig", "credential"];
            let shown = if secret.iter().any(|s| lower.contains(s)) { "***" } else { value };
            write!(f, "{separator}{name}={shown}")?;
            separator = '&';
        }
        Ok(())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_no_secret() {
        for (text, shown) in [
            (
                "postgres://bob:s3cret@db:5432/emmer?sslmode=require",
                "postgres://bob:***@db:5432/emmer?sslmode=require",
            ),
            ("redis://:s3cret@db:6379/0", "redis://:***@db:6379/0"),
            ("mysql://bob:s3/cret@db/emmer", "mysql://bob:***@db/emmer"),
            ("mysql://bob:s3?cret@db/emmer?x=1", "mysql://bob:***@db/emmer?x=1"),
            ("azure-table://acct?account_key=s3cret&x=1", "azure-table://acct?account_key=***&x=1"),
            ("mysql://bob:a@s3cret@db/emmer", "mysql://bob:***@db/emmer"),
            ("sqlite:///var/lib/a@b.db?mode=rw", "sqlite:///var/lib/a@b.db?mode=rw"),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(
                (format!("{url}"), format!("{url:?}")),
                (shown.to_owned(), shown.to_owned())
            );
            assert_eq!(url.expose(), text);
        }
    }

    #[test]
    fn refuses_unknown_schemes_without_repeating_the_rest() {
        let error = "postgress://bob:s3cret@db".parse::<StoreUrl>().unwrap_err().to_string();
        assert!(
            error.contains("postgress") && error.contains("sqlite") && !error.contains("s3cret"),
            "{error}"
        );
        assert!("cluster.db".parse::<StoreUrl>().is_err());
    }

    #[test]
    fn the_case_of_a_scheme_means_nothing_and_that_of_the_rest_stays() {
        for text in ["POSTGRES://Bob@DB/Emmer?X=Y", "Postgres://Bob@DB/Emmer?X=Y"] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(
                (url.scheme(), url.expose().as_str()),
                ("postgres", "postgres://Bob@DB/Emmer?X=Y")
            );
        }
    }

    #[test]
    fn splits_place_and_parameters() {
        let url: StoreUrl = "sqlite://a/b.db?mode=rw&x".parse().unwrap();
        assert_eq!((url.scheme(), url.place()), ("sqlite", "a/b.db"));
        assert_eq!(url.parameters().collect::<Vec<_>>(), [("mode", "rw"), ("x", "")]);
    }
}
