//! Addresses: `dynamodb://key:secret@eu-central-1`, and who we are to the service there.

use emmer_store::{Parameter, Result, Rules, StoreError, User};
use emmer_store_keyvalue::layout::{Layout, PREFIX_PARAMETER};

use crate::credentials::Credentials;

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["dynamodb"],
    shape: "dynamodb://accesskey:secret@region or dynamodb://accesskey:secret@host?region=...",
    user: User::Free,
    hosts_max: 1,
    port: 443,
    path: None,
    parameters: &[
        Parameter::text("session_token"),
        Parameter::text("credentials_file"),
        Parameter::text("region"),
        Parameter::text("ca_file"),
        Parameter::flag("tls"),
        // The service ends a page at 1 MiB by itself.
        Parameter::number("page_rows", 1, 100_000),
        PREFIX_PARAMETER,
    ],
};
/// The shortest name of a table.
const TABLE_NAME_BYTES_MIN: usize = 3;
/// Variables of the environment for parts that a URL leaves out, as the vendor's own tools have
/// them.
const KEY_VARIABLE: &str = "AWS_ACCESS_KEY_ID";
const SECRET_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN_VARIABLE: &str = "AWS_SESSION_TOKEN";
const REGION_VARIABLES: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

/// The service in a region. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) place: emmer_store::Address,
    pub(crate) layout: Layout,
    pub(crate) region: String,
    pub(crate) credentials: Credentials,
    pub(crate) tls: bool,
    /// The most rows of one page, where the URL says.
    pub(crate) page_rows: Option<i32>,
}

impl Address {
    /// Reads a URL; nothing is sent yet. `environment` gives variables.
    pub(crate) fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let environment = |name: &str| environment(name).filter(|text| !text.is_empty());
        let mut place = emmer_store::Address::parse(url, &RULES, None)?;
        let tls = place.tls(true)?;
        let mut region = None;
        for (host, _) in &mut place.hosts {
            region = if host.contains(['.', '[']) || host == "localhost" {
                region_of(host)
            } else {
                let region = std::mem::take(host);
                let china = if region.starts_with("cn-") { ".cn" } else { "" };
                *host = format!("dynamodb.{region}.amazonaws.com{china}");
                Some(region)
            };
        }
        let environment_region = || REGION_VARIABLES.into_iter().find_map(environment);
        let named = place.text("region").map(str::to_owned);
        let region = named.or(region).or_else(environment_region);
        let region =
            region.ok_or_else(|| place.invalid("no region is named: region=, or AWS_REGION"))?;
        if !region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(place.invalid("a region's name is made of letters, digits and '-'"));
        }
        let layout = Layout::of(&place)?;
        let prefix = layout.prefix();
        if prefix.contains('/') || prefix.len() < TABLE_NAME_BYTES_MIN {
            return Err(place.invalid(
                "tables have names without '/': prefix must have three letters at least",
            ));
        }
        let page_rows = place.parameters.number("page_rows");
        let credentials = credentials(&place, environment)?;
        Ok(Self { place, layout, region, credentials, tls, page_rows })
    }
}

/// The region of one of the service's own hosts: `dynamodb.eu-central-1.amazonaws.com`.
fn region_of(host: &str) -> Option<String> {
    let mut parts = host.split('.');
    let service = parts.next()?;
    let region = parts.next()?;
    let rest = parts.collect::<Vec<_>>().join(".");
    let known = service.starts_with("dynamodb")
        && (rest.starts_with("amazonaws.") || rest.starts_with("api.aws"));
    known.then(|| region.to_owned())
}

/// Credentials of the URL, or of the environment.
fn credentials(
    place: &emmer_store::Address,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Credentials> {
    let invalid = |why: &str| -> StoreError { place.invalid(why) };
    let token = place.text("session_token");
    match (&place.user, &place.password, place.text("credentials_file")) {
        (None, None, Some(file)) if token.is_none() => Ok(Credentials::file(file)),
        (_, _, Some(_)) => Err(invalid("more than one of access key and credentials_file")),
        (Some(id), Some(secret), None) => Credentials::key(id, secret, token).map_err(invalid),
        (None, None, None) if token.is_none() => {
            match (environment(KEY_VARIABLE), environment(SECRET_VARIABLE)) {
                (Some(id), Some(secret)) => {
                    let token = environment(TOKEN_VARIABLE);
                    Credentials::key(&id, &secret, token.as_deref()).map_err(invalid)
                }
                _ => Ok(Credentials::Nobody),
            }
        }
        _ => Err(invalid("an access key needs its secret, and a session token both")),
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::StoreErrorKind;

    use super::*;

    fn parse(url: &str) -> Result<Address> {
        Address::parse(url, |_| None)
    }

    #[test]
    fn addresses_are_read() {
        for (url, base, region) in [
            (
                "dynamodb://AK:a/b+c@eu-central-1",
                "https dynamodb.eu-central-1.amazonaws.com",
                "eu-central-1",
            ),
            (
                "dynamodb://AK:s@cn-north-1",
                "https dynamodb.cn-north-1.amazonaws.com.cn",
                "cn-north-1",
            ),
            (
                "dynamodb://AK:s@dynamodb.us-east-1.amazonaws.com",
                "https dynamodb.us-east-1.amazonaws.com",
                "us-east-1",
            ),
            (
                "dynamodb://AK:s@dynamodb-fips.us-west-2.amazonaws.com",
                "https dynamodb-fips.us-west-2.amazonaws.com",
                "us-west-2",
            ),
            (
                "dynamodb://a:s@127.0.0.1:8000?region=local&tls=false",
                "http 127.0.0.1:8000",
                "local",
            ),
            (
                "dynamodb://a:s@localhost:8000?region=local&tls=false",
                "http localhost:8000",
                "local",
            ),
        ] {
            let address = parse(url).unwrap();
            let bases = address.place.bases(address.tls).join(",").replace("://", " ");
            assert_eq!(bases, base, "{url}");
            assert_eq!(address.region, region, "{url}");
            assert!(matches!(address.credentials, Credentials::Key(_)), "{url}");
        }
        let key = parse("dynamodb://AK:a/b+c@eu-central-1").unwrap().credentials.now().unwrap();
        assert_eq!((key.access_key_id(), key.secret_access_key()), ("AK", "a/b+c"));
        let address =
            parse("dynamodb://eu-central-1?page_rows=2&timeout_ms=1000&credentials_file=f")
                .unwrap();
        assert_eq!((address.page_rows, address.place.timeout.as_millis()), (Some(2), 1_000));
        assert!(matches!(address.credentials, Credentials::File { .. }));
    }

    #[test]
    fn the_environment_fills_in_what_the_url_leaves_out() {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "AK"),
            ("AWS_SECRET_ACCESS_KEY", "s3cret"),
            ("AWS_SESSION_TOKEN", "t"),
            ("AWS_REGION", "eu-west-1"),
        ];
        let of =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let address = Address::parse("dynamodb://127.0.0.1:8000", of).unwrap();
        let key = address.credentials.now().unwrap();
        assert_eq!((address.region.as_str(), key.session_token()), ("eu-west-1", Some("t")));
        assert!(matches!(parse("dynamodb://eu-west-1").unwrap().credentials, Credentials::Nobody));
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
        for (url, word) in [
            ("dynamodb://AK:s3cr@a,b", "one host"),
            ("dynamodb://AK:s3cr@127.0.0.1", "region"),
            ("dynamodb://AK:s3cr@eu_1", "letters"),
            ("dynamodb://AK@eu-1", "secret"),
            ("dynamodb://eu-1?session_token=s3cr", "session token"),
            ("dynamodb://AK:s3cr@eu-1?credentials_file=f", "more than one"),
            ("dynamodb://AK:s3cr%0a@eu-1", "characters"),
            ("dynamodb://AK:s3cr@eu-1/x", "behind the host"),
            ("dynamodb://AK:s3cr@eu-1?prefix=a/b", "prefix"),
            ("dynamodb://AK:s3cr@eu-1?prefix=em", "prefix"),
            ("dynamodb://AK:s3cr@eu-1?page_rows=0", "page_rows"),
            ("dynamodb://AK:s3cr@eu-1?tls=perhaps", "tls"),
            ("dynamodb://AK:s3cr@eu-1?colour=red", "colour"),
        ] {
            let error = parse(url).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cr"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("s3cr"));
        }
    }
}
