//! Addresses: `mongodb://user:password@host,host/database`.

use emmer_store::Result;
use emmer_store_keyvalue::Place;

/// What a URL looks like.
const EXPECTED: &str = "mongodb://user:password@host:27017,host:27017/database with the parameters replicaSet, authSource, \
                        directConnection, tls, ca_file and timeout_ms";
/// The parameters beside those of every store. Those that other programs have too are called as
/// they are there.
const PARAMETERS: &[&str] = &["replicaSet", "authSource", "directConnection", "tls", "ca_file"];
/// The port that clients use.
const PORT: u16 = 27_017;
/// The database where the URL names none.
const DATABASE: &str = "emmer";
/// The longest name of a database.
const DATABASE_BYTES_MAX: usize = 63;

/// The servers of a replica set, and which database. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) place: Place,
    pub(crate) database: String,
    /// Whether to talk to the one host only, whatever other members there are.
    pub(crate) direct: bool,
    pub(crate) tls: bool,
}

impl Address {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let place = Place::parse(url, &["mongodb"], PORT, PARAMETERS, EXPECTED)?;
        if place.parameter("prefix").is_some() {
            return Err(place.invalid("tables lie in a database: /database instead of prefix="));
        }
        let database = if place.path.is_empty() { DATABASE } else { &place.path }.to_owned();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !database.chars().all(legal) || database.len() > DATABASE_BYTES_MAX {
            return Err(place.invalid("a database has up to 63 letters, digits, '_' and '-'"));
        }
        if place.password.is_some() != place.user.is_some() {
            return Err(place.invalid("a user needs a password, and a password a user"));
        }
        let direct = place.flag("directConnection")?;
        if direct && place.hosts.len() > 1 {
            return Err(place.invalid("directConnection is for one host"));
        }
        let tls = place.flag("tls")?;
        if place.parameter("ca_file").is_some() && !tls {
            return Err(place.invalid("ca_file is for tls=true"));
        }
        Ok(Self { database, direct, tls, place })
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
        assert_eq!(
            (address.place.hosts.as_slice(), address.database.as_str()),
            (&hosts[..], "teams-1")
        );
        assert_eq!(address.place.parameter("replicaSet"), Some("rs0"));
        assert!(address.tls && !address.direct);
        let address = Address::parse("mongodb://h?directConnection=true").unwrap();
        assert!(address.direct && !address.tls);
        assert_eq!(address.database, "emmer");
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
        for (url, word) in [
            ("mongodb://bob:s3cr@h/a.b", "letters"),
            ("mongodb://bob:s3cr@h/a/b", "letters"),
            ("mongodb://bob:s3cr@h?prefix=p", "/database"),
            ("mongodb://bob:s3cr@h?tls=perhaps", "tls"),
            ("mongodb://bob:s3cr@h?ca_file=f", "tls=true"),
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
