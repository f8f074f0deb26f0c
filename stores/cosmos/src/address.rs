//! Addresses: `cosmos://account:key@account.documents.azure.com/database`, and who we are to the
//! service there.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_store::address::Path;
use emmer_store::{Parameter, Result, Rules, User};
use emmer_store_keyvalue::azure::Token;
use emmer_store_keyvalue::layout::{Layout, PREFIX_PARAMETER};

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["cosmos"],
    shape: "cosmos://account:key@account.documents.azure.com/database",
    user: User::Free,
    hosts_max: 1,
    port: 443,
    path: Some(Path {
        usual: "emmer",
        is_legal: is_name,
        rule: "the database has 255 letters at most and none of / \\ # ? %",
    }),
    parameters: &[
        Parameter::text("account_key"),
        Parameter::text("token"),
        Parameter::text("token_file"),
        Parameter::flag("tls"),
        Parameter::number("page_rows", 1, PAGE_ROWS as u64),
        PREFIX_PARAMETER,
    ],
};
/// The rest of the host's name where a URL gives the account's name alone.
const PUBLIC_CLOUD: &str = "documents.azure.com";
/// The rows of a page, and the most that may be asked for.
const PAGE_ROWS: u32 = 1_000;
/// The variable of the environment that holds a key which the URL leaves out.
const KEY_VARIABLE: &str = "AZURE_COSMOS_KEY";

/// The credentials. `Debug` shows no secrets.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// The account's key.
    Key(String),
    /// A token of Microsoft Entra.
    Token(Arc<Token>),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "account key",
            Self::Token(_) => "token",
        })
    }
}

/// A container of an account. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) place: emmer_store::Address,
    layout: Layout,
    pub(crate) credentials: Credentials,
    pub(crate) tls: bool,
    /// The most rows of one page.
    pub(crate) page_rows: u32,
}

impl Address {
    /// Reads a URL; nothing is sent yet. `environment` gives variables.
    pub(crate) fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut place = emmer_store::Address::parse(url, &RULES, None)?;
        let (tls, mut is_here) = (place.tls(true)?, false);
        for (host, _) in &mut place.hosts {
            is_here = ["127.0.0.1", "localhost", "[::1]"].contains(&host.as_str());
            if !host.contains(['.', '[']) && !is_here {
                *host = format!("{host}.{PUBLIC_CLOUD}");
            }
        }
        if !tls && !is_here {
            return Err(place.invalid("tls=false is for an emulator on this host alone"));
        }
        let layout = Layout::of(&place)?;
        if !is_name(layout.prefix()) {
            return Err(place.invalid("the prefix has 255 letters at most and none of / \\ # ? %"));
        }
        let page_rows = place.parameters.number("page_rows").unwrap_or(PAGE_ROWS);
        let credentials = credentials(&place, environment)?;
        Ok(Self { place, layout, credentials, tls, page_rows })
    }

    /// The account's URL.
    pub(crate) fn endpoint(&self) -> String {
        self.place.bases(self.tls).into_iter().next().unwrap_or_default()
    }

    /// The name of the database.
    pub(crate) fn database(&self) -> &str {
        &self.place.path
    }

    /// The name of the container.
    pub(crate) fn container(&self) -> &str {
        self.layout.prefix()
    }
}

/// Returns true if a database or a container may be called so.
fn is_name(text: &str) -> bool {
    text.len() <= 255 && !text.contains(['/', '\\', '#', '?', '%'])
}

/// The credentials that the URL has, or the environment.
fn credentials(
    place: &emmer_store::Address,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Credentials> {
    let key = |key: &str| {
        let decoded = BASE64.decode(key).map_err(|_| "the account key is not base64");
        decoded.map(|_| Credentials::Key(key.to_owned()))
    };
    let token = |token: Token| Credentials::Token(Arc::new(token));
    let named: [Option<std::result::Result<Credentials, &str>>; 3] = [
        place.password.as_deref().or_else(|| place.text("account_key")).map(key),
        place.text("token").map(|text| Token::of(text).map(token)),
        place.text("token_file").map(|path| Ok(token(Token::of_file(path)))),
    ];
    let mut named = named.into_iter().flatten();
    match (named.next(), named.next()) {
        (Some(_), Some(_)) => {
            Err(place.invalid("more than one of account key, token and token_file"))
        }
        (Some(one), None) => one.map_err(|why| place.invalid(why)),
        (None, _) => match environment(KEY_VARIABLE).filter(|text| !text.is_empty()) {
            Some(text) => {
                key(&text).map_err(|why| place.invalid(format_args!("{KEY_VARIABLE}: {why}")))
            }
            None => Err(place.invalid(format_args!(
                "there is no account key, token or token_file, and {KEY_VARIABLE} is not set"
            ))),
        },
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
        for (url, endpoint, database, who) in [
            (
                "cosmos://acct:a2V5@acct.documents.azure.com/shop",
                "https acct.documents.azure.com",
                "shop",
                "account key",
            ),
            (
                "cosmos://acct?account_key=a2V5",
                "https acct.documents.azure.com",
                "emmer",
                "account key",
            ),
            (
                "cosmos://acct.documents.azure.cn/shop?token=t",
                "https acct.documents.azure.cn",
                "shop",
                "token",
            ),
            (
                "cosmos://a:a2V5@127.0.0.1:8081/e?tls=false",
                "http 127.0.0.1:8081",
                "e",
                "account key",
            ),
        ] {
            let address = parse(url).unwrap();
            let found = address.endpoint().replace("://", " ");
            assert_eq!((found.as_str(), address.database()), (endpoint, database), "{url}");
            assert_eq!(format!("{:?}", address.credentials), who, "{url}");
        }
        let address = parse("cosmos://acct?token=t&page_rows=2&prefix=silos").unwrap();
        assert_eq!((address.page_rows, address.container()), (2, "silos"));
        let from = Address::parse("cosmos://acct", |name| {
            (name == "AZURE_COSMOS_KEY").then(|| "a2V5".to_owned())
        });
        assert!(matches!(from.unwrap().credentials, Credentials::Key(_)));
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
        for (url, word) in [
            ("cosmos://acct:s3cret!@acct", "base64"),
            ("cosmos://acct:s3cr@a,b", "one host"),
            ("cosmos://acct:s3cr@acct?token=s3cret", "more than one"),
            ("cosmos://acct?token=s3cret%0a", "characters"),
            ("cosmos://acct?account_key=s3cr&prefix=a%3Fb", "prefix"),
            ("cosmos://acct?account_key=s3cr&page_rows=1001", "page_rows"),
            ("cosmos://acct?account_key=s3cr&tls=perhaps", "tls"),
            ("cosmos://acct?account_key=s3cr&tls=false", "emulator"),
            ("cosmos://acct?account_key=s3cr&colour=red", "colour"),
            ("cosmos://acct/shop", "AZURE_COSMOS_KEY"),
            ("cosmos://acct:s3cr@acct/a%23b", "database"),
        ] {
            let error = parse(url).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cr"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("s3cr"));
        }
    }
}
