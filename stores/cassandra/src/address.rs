//! Addresses: `cassandra://user:password@host,host/keyspace`.

use emmer_store::Result;
use emmer_store_keyvalue::Place;

/// What a URL looks like.
const EXPECTED: &str = "cassandra://user:password@host:9042,host:9042/keyspace with the parameters replication, tls, ca_file, \
                        page_rows and timeout_ms";
/// The parameters beside those of every store.
const PARAMETERS: &[&str] = &["replication", "tls", "ca_file", "page_rows"];
/// The port that clients use.
const PORT: u16 = 9_042;
/// The keyspace where the URL names none.
const KEYSPACE: &str = "emmer";
/// The longest name of a keyspace.
const KEYSPACE_BYTES_MAX: usize = 48;
/// How many copies of a row a keyspace has that is made here, where the URL does not say.
const REPLICATION: usize = 3;
/// The most copies.
const REPLICATION_MAX: usize = 15;
/// The most rows that may be asked for on a page.
const PAGE_ROWS_MAX: i32 = 50_000;

/// The nodes of a cluster, and where in it. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) place: Place,
    pub(crate) keyspace: String,
    /// How many copies of each row are kept, if the keyspace is made.
    pub(crate) replication: usize,
    pub(crate) tls: bool,
    /// The most rows of one page, where the URL says.
    pub(crate) page_rows: Option<i32>,
}

impl Address {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let place = Place::parse(url, &["cassandra"], PORT, PARAMETERS, EXPECTED)?;
        let number = |name: &str| place.parameter(name).map(str::parse::<usize>);
        if place.parameter("prefix").is_some() {
            return Err(place.invalid("tables lie in a keyspace: /keyspace instead of prefix="));
        }
        let keyspace = if place.path.is_empty() { KEYSPACE } else { &place.path }.to_owned();
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = keyspace.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !keyspace.chars().all(legal) || keyspace.len() > KEYSPACE_BYTES_MAX {
            let why =
                "a keyspace has up to 48 lower-case letters, digits and '_', the first a letter";
            return Err(place.invalid(why));
        }
        let replication = match number("replication") {
            None => REPLICATION,
            Some(Ok(copies)) if (1..=REPLICATION_MAX).contains(&copies) => copies,
            Some(_) => return Err(place.invalid("replication is not a number from 1 to 15")),
        };
        let page_rows = match place.parameter("page_rows").map(str::parse::<i32>) {
            None => None,
            Some(Ok(rows)) if (1..=PAGE_ROWS_MAX).contains(&rows) => Some(rows),
            Some(_) => return Err(place.invalid("page_rows is not a number from 1 to 50000")),
        };
        if place.password.is_some() && place.user.is_none() {
            return Err(place.invalid("a password without a user"));
        }
        let tls = place.flag("tls")?;
        if place.parameter("ca_file").is_some() && !tls {
            return Err(place.invalid("ca_file is for tls=true"));
        }
        Ok(Self { keyspace, replication, tls, page_rows, place })
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::StoreErrorKind;

    use super::*;

    #[test]
    fn addresses_are_read() {
        let address =
            Address::parse("cassandra://bob:s%40@one,two:1/teams_1?replication=1&tls=true")
                .unwrap();
        let hosts = [("one".to_owned(), 9_042), ("two".to_owned(), 1)];
        assert_eq!(
            (address.place.hosts.as_slice(), address.keyspace.as_str()),
            (&hosts[..], "teams_1")
        );
        assert_eq!((address.replication, address.tls, address.page_rows), (1, true, None));
        let address = Address::parse("cassandra://h?page_rows=7").unwrap();
        assert_eq!((address.keyspace.as_str(), address.replication), ("emmer", 3));
        assert_eq!((address.tls, address.page_rows), (false, Some(7)));
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
        for (url, word) in [
            ("cassandra://bob:s3cr@h/Emmer", "lower-case"),
            ("cassandra://bob:s3cr@h/1a", "lower-case"),
            ("cassandra://bob:s3cr@h/a-b", "lower-case"),
            ("cassandra://bob:s3cr@h/a/b", "lower-case"),
            ("cassandra://bob:s3cr@h?prefix=p", "/keyspace"),
            ("cassandra://bob:s3cr@h?replication=0", "replication"),
            ("cassandra://bob:s3cr@h?page_rows=0", "page_rows"),
            ("cassandra://bob:s3cr@h?tls=perhaps", "tls"),
            ("cassandra://bob:s3cr@h?ca_file=f", "tls=true"),
            ("cassandra://:s3cr@h", "without a user"),
            ("cassandra://bob:s3cr@h?colour=red", "colour"),
        ] {
            let error = Address::parse(url).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cr"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
