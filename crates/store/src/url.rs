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

/// Other names of schemes in servers' own clients, and the names here.
const ALIASES: [(&str, &str); 3] =
    [("azure", "azure-table"), ("postgresql", "postgres"), ("valkey", "redis")];

/// The address of a system store. `Display` and `Debug` replace everything that may be a secret by
/// `***`: what stands between the first colon and the last `@`, and every parameter whose name
/// sounds secret.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: String,
    rest: String,
}

impl StoreUrl {
    /// The scheme, one of [`SCHEMES`]; never another name of one.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Everything behind `://` up to the `?` of the parameters, secrets included.
    pub fn place(&self) -> &str {
        let (_, rest) = self.split_credentials();
        let query = rest.find('?').map_or(0, |at| rest.len() - at);
        self.rest.get(..self.rest.len() - query).unwrap_or_default()
    }

    /// The parameters behind the `?`, in order, as they were written (no percent-decoding).
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.query())
    }

    fn query(&self) -> &str {
        self.rest.split_once('?').map_or("", |(_, query)| query)
    }

    /// The credentials, if there are any, and the rest. The last `@` of all divides them: a
    /// password may hold a slash, a question mark or an `@` that was not escaped. Files have none.
    pub(crate) fn split_credentials(&self) -> (Option<&str>, &str) {
        match self.rest.rsplit_once('@').filter(|_| self.scheme != "sqlite") {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, &self.rest),
        }
    }

    /// As [`parameters`](Self::parameters), of a server whose password may hold a question mark.
    pub fn parameters_behind_credentials(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.split_credentials().1.split_once('?').map_or("", |(_, query)| query))
    }

    /// The whole text, secrets included: for the driver, never for a message.
    pub fn expose(&self) -> String {
        format!("{}://{}", self.scheme, self.rest)
    }
}

/// A text with its `%XX` resolved. None if one of them is broken, or the bytes are not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
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
        let parts = text.split_once("://");
        // In URLs the case of a scheme means nothing (RFC 3986, 3.1).
        let mut scheme = parts.map(|(scheme, _)| scheme.to_ascii_lowercase()).unwrap_or_default();
        if let Some((_, own)) = ALIASES.iter().find(|(alias, _)| *alias == scheme) {
            scheme = (*own).to_owned();
        }
        if let Some((_, rest)) = parts.filter(|_| SCHEMES.contains(&scheme.as_str())) {
            return Ok(Self { scheme, rest: rest.to_owned() });
        }
        let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        Err(match foreign(text) {
            Some(hint) => ParseStoreUrlError::Foreign(hint),
            // Else it may be anything, a secret too.
            None if scheme.is_empty() || !is_scheme => ParseStoreUrlError::NoScheme,
            None => ParseStoreUrlError::UnknownScheme(scheme.chars().take(40).collect()),
        })
    }
}

/// The way to write an address of another program here. None for unknown forms.
fn foreign(text: &str) -> Option<&'static str> {
    let lower = text.trim_start().to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().all(|word| lower.contains(word));
    if lower.starts_with("mongodb+srv://") {
        Some(
            "mongodb+srv:// has the servers looked up in the DNS, which is not done here: name \
             them, as in mongodb://user:password@host:27017,host:27017/database?tls=true",
        )
    } else if has(&["accountendpoint=", "accountkey="]) {
        Some(
            "a connection string of Azure Cosmos DB: write its AccountEndpoint and AccountKey as \
             cosmos://HOST/DATABASE?account_key=KEY",
        )
    } else if has(&["accountname=", "accountkey="]) {
        Some(
            "a connection string of Azure Storage: write its AccountName and AccountKey as \
             azure-table://NAME?account_key=KEY",
        )
    } else if lower.trim().is_empty() {
        Some("it is empty: expected scheme://..., as in sqlite://cluster.db")
    } else if lower.starts_with("sqlite:") && !lower.starts_with("sqlite://") {
        Some("two slashes are missing: write sqlite://cluster.db, or sqlite:///var/lib/cluster.db")
    } else if is_path(&lower) {
        Some(
            "a path alone is not an address: write sqlite:// before it, as in \
             sqlite://cluster.db or sqlite:///var/lib/cluster.db",
        )
    } else if lower.starts_with("jdbc:") {
        Some(
            "an address for Java: write it without jdbc:, as in postgres://user:password@host/database",
        )
    } else if has(&["server=", ";"]) || has(&["data source=", ";"]) {
        Some("a connection string of ADO.NET: write it as mssql://user:password@host:1433/database")
    } else {
        None
    }
}

/// Returns true if a text looks like a file.
fn is_path(text: &str) -> bool {
    let begins = ["/", "./", "../", "~", ".\\"].iter().any(|start| text.starts_with(start));
    let ends = [".db", ".sqlite", ".sqlite3"].iter().any(|end| text.ends_with(end));
    !text.contains("://") && (begins || ends)
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
    /// The text is an address of another program; this says how to write it here.
    #[error("not the address of a system store: {0}")]
    Foreign(&'static str),
    /// The scheme names no store.
    #[error("{0:?} is not a system store: expected one of {list}", list = SCHEMES.join(", "))]
    UnknownScheme(String),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        let (credentials, rest) = self.split_credentials();
        match credentials.map(|text| text.split_once(':').ok_or(text)) {
            None => {}
            Some(Err(_)) if self.has_tokens() => f.write_str("***@")?,
            Some(Err(user)) => write!(f, "{user}@")?,
            Some(Ok((user, _))) => write!(f, "{user}:***@")?,
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        match self.stray_password() {
            Some(password) => f.write_str(&place.replacen(password, "***", 1))?,
            None => f.write_str(place)?,
        }
        let mut separator = '?';
        for (name, value) in pairs(query) {
            let shown = if sounds_secret(name) { "***" } else { value };
            write!(f, "{separator}{name}={shown}")?;
            separator = '&';
        }
        Ok(())
    }
}

/// Returns true if the value of a parameter of this name is kept out of every text.
fn sounds_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["pass", "pwd", "secret", "key", "token", "sas", "sig", "credential"]
        .iter()
        .any(|s| lower.contains(s))
}

impl StoreUrl {
    /// A text, such as an error of a driver, in which `***` stands for each secret of this address.
    pub fn mask(&self, text: &str) -> String {
        let mut secrets = self.secrets();
        // The longest first: one may be part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }

    /// Returns true if there is something to mask.
    pub fn has_secrets(&self) -> bool {
        !self.secrets().is_empty()
    }

    /// The secrets, as they are written and unescaped. A single letter does not count.
    fn secrets(&self) -> Vec<String> {
        let (credentials, rest) = self.split_credentials();
        let token = credentials.filter(|text| !text.contains(':') && self.has_tokens());
        let password = credentials.and_then(|text| Some(text.split_once(':')?.1));
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        // Files named by a parameter are no secrets.
        let values = pairs(query)
            .filter(|(name, _)| sounds_secret(name) && !name.ends_with("_file"))
            .map(|(_, value)| value);
        let written = values.chain(token).chain(password).chain(self.stray_password());
        let both = written.flat_map(|text| [Some(text.to_owned()), percent_decode(text)]);
        both.flatten().filter(|secret| secret.chars().nth(1).is_some()).collect()
    }

    /// Returns true if a token stands where others have a user.
    fn has_tokens(&self) -> bool {
        self.scheme == "consul"
    }

    /// The password of an address whose host was forgotten, as in `postgres://user:password`: what
    /// stands behind a colon and is no port.
    fn stray_password(&self) -> Option<&str> {
        let (credentials, rest) = self.split_credentials();
        if credentials.is_some() || self.scheme == "sqlite" || self.scheme == "memory" {
            return None;
        }
        let hosts = rest.split(['/', '?']).next().unwrap_or_default();
        let behind = |host: &'_ str| match host.rsplit_once(']') {
            Some((_, port)) => host.len() - port.trim_start_matches(':').len(),
            None => host.find(':').map_or(host.len(), |at| at + 1),
        };
        let is_port = |text: &str| text.is_empty() || text.parse::<u16>().is_ok();
        hosts.split(',').map(|host| &host[behind(host)..]).find(|text| !is_port(text))
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
            ("consul://s3cret@db:8500", "consul://***@db:8500"),
            ("postgres://bob:s3cret", "postgres://bob:***"),
            ("mysql://bob:s3cret/emmer?x=1", "mysql://bob:***/emmer?x=1"),
            ("zookeeper://a:2181,b:2181/emmer", "zookeeper://a:2181,b:2181/emmer"),
            ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
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
    fn no_text_of_a_driver_shows_a_secret() {
        for address in [
            "postgres://bob:s3cret@db/emmer",
            "postgres://bob:s3%63ret@db/emmer",
            "postgres://bob:s3cret",
            "consul://s3cret@db",
            "sqlite://a.db?key=s3cret",
            "azure-table://acct?account_key=s3cret",
        ] {
            let url: StoreUrl = address.parse().unwrap();
            let said = url.mask(&format!("cannot open {address}: s3cret is wrong"));
            assert!(!said.contains("s3cret") && said.contains("cannot open"), "{said}");
        }
        let url: StoreUrl = "postgres://bob@db/emmer?password_file=/run/s3cret".parse().unwrap();
        assert_eq!(url.mask("/run/s3cret is not there"), "/run/s3cret is not there");
    }

    #[test]
    fn what_other_programs_write_gets_a_hint_and_stays_secret() {
        for (text, hint) in [
            ("mongodb+srv://bob:s3cret@cluster0.abc.net/db", "mongodb://user"),
            (
                "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=s3cret==;\
                 EndpointSuffix=core.windows.net",
                "azure-table://NAME?account_key=KEY",
            ),
            (
                "BlobEndpoint=https://example.com;AccountName=acct;AccountKey=s3cret",
                "azure-table://",
            ),
            ("AccountEndpoint=https://example.com:443/;AccountKey=s3cret;", "cosmos://HOST"),
            ("Server=tcp:db.example.com,1433;User ID=bob;Password=s3cret;", "mssql://"),
            ("jdbc:postgresql://bob:s3cret@db/emmer", "without jdbc:"),
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains(hint) && !error.contains("s3cret"), "{error}");
        }
        let odd = "s3cret key=x://host".parse::<StoreUrl>();
        assert_eq!(odd, Err(ParseStoreUrlError::NoScheme));
    }

    #[test]
    fn other_names_of_schemes_are_those_of_the_stores() {
        for (text, shown) in [
            ("postgresql://bob@db/emmer", "postgres://bob@db/emmer"),
            ("azure://acct?account_key=s3cret", "azure-table://acct?account_key=***"),
            ("VALKEY://db", "redis://db"),
        ] {
            assert_eq!(text.parse::<StoreUrl>().unwrap().to_string(), shown);
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
