//! Addresses: `azure-table://account:key@account.table.core.windows.net`, and who we are to the
//! service there.

use emmer_store::address::Path;
use emmer_store::{Parameter, Result, Rules, StoreError, User};
use emmer_store_keyvalue::azure::Token;
use emmer_store_keyvalue::layout::{Layout, PREFIX_PARAMETER};

use crate::credentials::Credentials;

/// The rules for URLs.
const RULES: Rules = Rules {
    schemes: &["azure-table"],
    shape: "azure-table://account:key@account.table.core.windows.net",
    user: User::Free,
    hosts_max: 1,
    port: 443,
    path: Some(Path {
        usual: "",
        is_legal: |name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
        rule: "the text behind the host is not the name of an account",
    }),
    parameters: &[
        Parameter::text("account_key"),
        Parameter::text("sas_token"),
        Parameter::text("token"),
        Parameter::text("token_file"),
        Parameter::text("ca_file"),
        Parameter::flag("tls"),
        Parameter::number("page_rows", 1, PAGE_ROWS_MAX as u64),
        PREFIX_PARAMETER,
    ],
};
/// Domain behind the account's name where a URL names nothing else.
const PUBLIC_CLOUD: &str = "table.core.windows.net";
/// The most rows the service puts on a page.
const PAGE_ROWS_MAX: usize = 1_000;
/// Variables of the environment for secrets that a URL leaves out, as the vendor's own tools have
/// them.
const KEY_VARIABLE: &str = "AZURE_STORAGE_KEY";
const SAS_VARIABLE: &str = "AZURE_STORAGE_SAS_TOKEN";

/// An account of the service. `Debug` shows no secrets.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) place: emmer_store::Address,
    pub(crate) layout: Layout,
    /// The account's name, as paths begin with it at an emulator; empty or `/name`.
    pub(crate) root: String,
    pub(crate) credentials: Credentials,
    pub(crate) tls: bool,
    /// The most rows of one page.
    pub(crate) page_rows: usize,
}

impl Address {
    /// Reads a URL; nothing is sent yet. `environment` gives variables.
    pub(crate) fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut place = emmer_store::Address::parse(url, &RULES, None)?;
        let tls = place.tls(true)?;
        let mut account = place.user.clone().unwrap_or_else(|| place.path.clone());
        for (host, _) in &mut place.hosts {
            if account.is_empty() {
                account = host.split('.').next().unwrap_or_default().to_owned();
            }
            if !host.contains(['.', '[']) && place.path.is_empty() && host != "localhost" {
                *host = format!("{host}.{PUBLIC_CLOUD}");
            }
        }
        if account.is_empty() || !account.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(place.invalid("the account's name is not made of letters and digits"));
        }
        let layout = Layout::of(&place)?;
        let prefix = layout.prefix();
        if !prefix.chars().all(|c| c.is_ascii_alphanumeric())
            || !prefix.starts_with(|c: char| c.is_ascii_alphabetic())
            || prefix.len() < 3
        {
            return Err(place.invalid(
                "tables have names of letters and digits: prefix must have three at least",
            ));
        }
        let page_rows = place.parameters.number("page_rows").unwrap_or(PAGE_ROWS_MAX);
        let credentials = credentials(&place, &account, environment)?;
        let root = if place.path.is_empty() { String::new() } else { format!("/{}", place.path) };
        Ok(Self { place, layout, root, credentials, tls, page_rows })
    }

    /// Beginning of the URLs of tables: scheme, host and the account where it is in the path.
    pub(crate) fn base(&self) -> String {
        let base = self.place.bases(self.tls).into_iter().next().unwrap_or_default();
        format!("{base}{}", self.root)
    }
}

/// Credentials of the URL, or of the environment.
fn credentials(
    place: &emmer_store::Address,
    account: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Credentials> {
    let invalid = |why: &str| -> StoreError { place.invalid(why) };
    let key = place.password.as_deref().or_else(|| place.text("account_key"));
    let named: [Option<std::result::Result<Credentials, &str>>; 4] = [
        key.map(|key| Credentials::key(account, key)),
        place.text("sas_token").map(Credentials::sas),
        place.text("token").map(|text| Token::of(text).map(Credentials::Token)),
        place.text("token_file").map(|path| Ok(Credentials::Token(Token::of_file(path)))),
    ];
    let mut named = named.into_iter().flatten();
    match (named.next(), named.next()) {
        (Some(_), Some(_)) => {
            Err(invalid("more than one of account key, sas_token, token and token_file"))
        }
        (Some(one), None) => one.map_err(invalid),
        (None, _) => {
            let of = |variable| environment(variable).filter(|text| !text.is_empty());
            match (of(KEY_VARIABLE), of(SAS_VARIABLE)) {
                (Some(key), _) => Credentials::key(account, &key).map_err(invalid),
                (None, Some(sas)) => Credentials::sas(&sas).map_err(invalid),
                (None, None) => Ok(Credentials::Nobody),
            }
        }
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
        for (url, base, what) in [
            (
                "azure-table://acct:a2V5@acct.table.core.windows.net",
                "https acct.table.core.windows.net",
                "account key",
            ),
            (
                "azure-table://acct?account_key=a2V5",
                "https acct.table.core.windows.net",
                "account key",
            ),
            (
                "azure-table://acct.table.core.chinacloudapi.cn?token=t",
                "https acct.table.core.chinacloudapi.cn",
                "token",
            ),
            (
                "azure-table://acct?sas_token=sv%3D1%26sig%3Da",
                "https acct.table.core.windows.net",
                "shared access signature",
            ),
            (
                "azure-table://dev:a/b+c2Q=@127.0.0.1:10002/dev?tls=false",
                "http 127.0.0.1:10002/dev",
                "account key",
            ),
            ("azure-table://acct", "https acct.table.core.windows.net", "nobody"),
        ] {
            let address = parse(url).unwrap();
            let found = address.base().replace("://", " ");
            assert_eq!((found.as_str(), address.credentials.what()), (base, what), "{url}");
        }
        let address = parse("azure-table://acct?page_rows=2&timeout_ms=1000").unwrap();
        assert_eq!((address.page_rows, address.place.timeout.as_millis()), (2, 1_000));
        let from = |wanted: &'static str, value: &'static str| {
            Address::parse("azure-table://acct", move |name| {
                (name == wanted).then(|| value.to_owned())
            })
        };
        assert_eq!(from("AZURE_STORAGE_KEY", "a2V5").unwrap().credentials.what(), "account key");
        let sas = from("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=s").unwrap();
        assert_eq!(sas.credentials.what(), "shared access signature");
    }

    #[test]
    fn mistakes_are_named_without_secrets() {
        for (url, word) in [
            ("azure-table://acct:s3cret!@acct", "base64"),
            ("azure-table://acct:s3cr@a,b", "one host"),
            ("azure-table://acct?sas_token=s3cret", "shared access signature"),
            ("azure-table://acct:s3cr@acct?token=s3cret", "more than one"),
            ("azure-table://acct?token=s3cret%0a", "characters"),
            ("azure-table://acct?account_key=s3cr&prefix=a-b", "prefix"),
            ("azure-table://acct?account_key=s3cr&prefix=em", "prefix"),
            ("azure-table://acct?account_key=s3cr&page_rows=1001", "page_rows"),
            ("azure-table://acct?account_key=s3cr&tls=perhaps", "tls"),
            ("azure-table://acct?account_key=s3cr&colour=red", "colour"),
            ("azure-table://a_b:s3cr@h", "letters"),
        ] {
            let error = parse(url).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(word) && !text.contains("s3cr"), "{url}: {text}");
            assert_eq!(error.kind, StoreErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("s3cr"));
        }
    }
}
