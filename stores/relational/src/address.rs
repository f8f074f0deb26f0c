//! `scheme://user:password@host:port/database?parameters`, for servers whose drivers read no such
//! URL or read it otherwise.

use emmer_store::StoreUrl;

/// The parts of a URL, `%XX` resolved.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Address {
    /// The user.
    pub user: Option<String>,
    /// The password. Never printed.
    pub password: Option<String>,
    /// The host's name or IP address, without the brackets of IPv6.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
    /// What stands behind the slash.
    pub database: String,
}

impl Address {
    /// Reads the part of a URL before its parameters.
    ///
    /// # Errors
    /// In words that hold no part of the credentials: no host, a port that is none, a broken `%XX`.
    pub fn parse(url: &StoreUrl) -> Result<Self, &'static str> {
        // The last `@`: a password may hold one that was not escaped. And a `?` in a password ends
        // the place early.
        let whole = url.expose();
        let rest = whole.split_once("://").map_or("", |(_, rest)| rest);
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let place = rest.split_once('?').map_or(rest, |(place, _)| place);
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (host, port) = host_and_port(authority)?;
        let (user, password) = match credentials.map(|c| c.split_once(':').unwrap_or((c, ""))) {
            None => (None, None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let filled = |text: Option<String>| text.filter(|t| !t.is_empty());
        Ok(Self {
            user: filled(user),
            password: filled(password),
            host: decoded(host)?,
            port,
            database: decoded(database)?,
        })
    }

    /// The host with the port it has, or `port`.
    pub fn endpoint(&self, port: u16) -> (&str, u16) {
        (&self.host, self.port.unwrap_or(port))
    }
}

fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("a bracket of the host is missing")?;
            (host, rest.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("no host is named");
    }
    let number = port.map(|port| port.parse().map_err(|_| "the port is no number from 0 to 65535"));
    Ok((host, number.transpose()?))
}

/// `%XX` resolved.
///
/// # Errors
/// What follows a `%` is no number of two digits, or the bytes are no UTF-8.
pub fn decoded(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<&u8>| byte.and_then(|b| char::from(*b).to_digit(16));
        let (high, low) = (digit(rest.next()), digit(rest.next()));
        let broken = "a % is not followed by two hexadecimal digits: write it as %25";
        let value = high.zip(low).map(|(high, low)| high * 16 + low).ok_or(broken)?;
        bytes.push(u8::try_from(value).map_err(|_| broken)?);
    }
    String::from_utf8(bytes).map_err(|_| "a %XX makes no UTF-8")
}

/// How much TLS a URL asks for (`sslmode=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// None, even if the server offers it.
    Disable,
    /// If the server offers it, whoever it is.
    #[default]
    Prefer,
    /// Nothing without, whoever the server is.
    Require,
    /// Nothing without, and only from a server with a certificate for its name from a root that is
    /// trusted.
    VerifyFull,
}

impl std::str::FromStr for TlsMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-full" => Ok(Self::VerifyFull),
            _ => Err("sslmode is none of disable, prefer, require, verify-full"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<Address, &'static str> {
        Address::parse(&url.parse().unwrap())
    }

    #[test]
    fn urls_fall_into_parts() {
        let found = parsed("mysql://bob:s3%2Fcret%40@db.example:3307/emmer?x=1").unwrap();
        assert_eq!(
            (found.user.as_deref(), found.password.as_deref()),
            (Some("bob"), Some("s3/cret@"))
        );
        assert_eq!((found.endpoint(1), found.database.as_str()), (("db.example", 3307), "emmer"));
        // Not escaped as it should be, but there is only one way to understand it.
        let found = parsed("mysql://bob:s/3?c@ret@[::1]/emmer").unwrap();
        assert_eq!(
            (found.password.as_deref(), found.endpoint(3306)),
            (Some("s/3?c@ret"), ("::1", 3306))
        );
        let found = parsed("mysql://db").unwrap();
        assert_eq!((found.user, found.password, found.database.as_str()), (None, None, ""));
    }

    #[test]
    fn mistakes_are_named() {
        for (url, word) in [
            ("mysql:///emmer", "host"),
            ("mysql://bob:x@:1/emmer", "host"),
            ("mysql://db:port/emmer", "port"),
            ("mysql://bob:%zz@db/emmer", "%25"),
            ("mysql://bob:%ff@db/emmer", "UTF-8"),
            ("mysql://[::1/emmer", "bracket"),
        ] {
            assert!(parsed(url).map(|a| a.host).unwrap_err().contains(word), "{url}");
        }
    }
}
