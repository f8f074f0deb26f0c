//! Addresses: `cassandra://user:password@host,host/keyspace`.

use emmer_store::address::Path;
use emmer_store::{Parameter, Result, Rules, User};

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["cassandra"],
    shape: "cassandra://user:password@host:9042,host:9042/keyspace",
    user: User::BeforePassword,
    hosts_max: 16,
    port: 9_042,
    path: Some(Path {
        usual: "emmer",
        is_legal: is_keyspace,
        rule: "a keyspace has up to 48 lower-case letters, digits and '_', the first a letter",
    }),
    parameters: &[
        Parameter::number("replication", 1, 15),
        Parameter::flag("tls"),
        Parameter::text("ca_file"),
        Parameter::number("page_rows", 1, 50_000),
    ],
};
/// The copies of a row in a keyspace that is made here, where the URL does not say.
const REPLICATION: usize = 3;

/// The nodes of a cluster, and where in it. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) place: emmer_store::Address,
    /// The copies of each row, if the keyspace is made.
    pub(crate) replication: usize,
    pub(crate) tls: bool,
    /// The most rows of one page, where the URL says.
    pub(crate) page_rows: Option<i32>,
}

impl Address {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let place = emmer_store::Address::parse(url, &RULES, None)?;
        let replication = place.parameters.number("replication").unwrap_or(REPLICATION);
        let page_rows = place.parameters.number("page_rows");
        Ok(Self { replication, tls: place.tls(false)?, page_rows, place })
    }

    /// The name of the keyspace.
    pub(crate) fn keyspace(&self) -> &str {
        &self.place.path
    }
}

fn is_keyspace(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    begins && name.chars().all(is_legal) && name.len() <= 48
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
        assert_eq!((address.place.hosts.as_slice(), address.keyspace()), (&hosts[..], "teams_1"));
        assert_eq!((address.replication, address.tls, address.page_rows), (1, true, None));
        let address = Address::parse("cassandra://h?page_rows=7").unwrap();
        assert_eq!((address.keyspace(), address.replication), ("emmer", 3));
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
            ("cassandra://bob:s3cr@h?ca_file=f&tls=false", "tls=false"),
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
