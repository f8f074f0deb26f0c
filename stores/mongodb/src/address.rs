//! Addresses: `mongodb://user:password@host,host/database`.

use emmer_store::address::Path;
use emmer_store::{Parameter, Result, Rules, User};

/// The rules for URLs. Parameters that other programs have too are called as they are there.
const RULES: Rules = Rules {
    schemes: &["mongodb"],
    shape: "mongodb://user:password@host:27017,host:27017/database",
    user: User::WithPassword,
    hosts_max: 16,
    port: 27_017,
    path: Some(Path {
        usual: "emmer",
        is_legal: |name| {
            let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            name.chars().all(is_legal) && name.len() <= 63
        },
        rule: "a database has up to 63 letters, digits, '_' and '-'",
    }),
    parameters: &[
        Parameter::text("replicaSet"),
        Parameter::text("authSource"),
        Parameter::flag("directConnection"),
        Parameter::flag("tls"),
        Parameter::text("ca_file"),
    ],
};

/// The servers of a replica set, and which database. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) place: emmer_store::Address,
    /// True if only the one host is used, whatever other members exist.
    pub(crate) direct: bool,
    pub(crate) tls: bool,
}

impl Address {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let place = emmer_store::Address::parse(url, &RULES, None)?;
        let direct = place.parameters.flag("directConnection").unwrap_or(false);
        if direct && place.hosts.len() > 1 {
            return Err(place.invalid("directConnection is for one host"));
        }
        Ok(Self { direct, tls: place.tls(false)?, place })
    }

    /// The name of the database.
    pub(crate) fn database(&self) -> &str {
        &self.place.path
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::StoreErrorKind;

    use super::*;

    #[test]
    fn addresses_are_read() {
        let address =
            Address::parse("mongodb://bob:s%40@one,two:1/teams-1?replicaSet=rs0&tls=true").unwrap();
        let hosts = [("one".to_owned(), 27_017), ("two".to_owned(), 1)];
        assert_eq!((address.place.hosts.as_slice(), address.database()), (&hosts[..], "teams-1"));
        assert_eq!(address.place.text("replicaSet"), Some("rs0"));
        assert!(address.tls && !address.direct);
        let address = Address::parse("mongodb://h?directConnection=true").unwrap();
        assert!(address.direct && !address.tls);
        assert_eq!(address.database(), "emmer");
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
        for (url, word) in [
            ("mongodb://bob:s3cr@h/a.b", "letters"),
            ("mongodb://bob:s3cr@h/a/b", "letters"),
            ("mongodb://bob:s3cr@h?prefix=p", "/database"),
            ("mongodb://bob:s3cr@h?tls=perhaps", "tls"),
            ("mongodb://bob:s3cr@h?ca_file=f&tls=false", "tls=false"),
            ("mongodb://bob:s3cr@h,g?directConnection=true", "one host"),
            ("mongodb://:s3cr@h", "needs"),
            ("mongodb://bob@h", "needs"),
            ("mongodb://bob:s3cr@h?colour=red", "colour"),
            ("mongodb+srv://bob:s3cr@h", "mongodb://"),
        ] {
            let error = Address::parse(url).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cr"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
        }
    }
}
