//! The credentials for the service: an account key, a shared access signature, or a bearer token.

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_core::Timestamp;
use emmer_store_keyvalue::Fault;
use emmer_store_keyvalue::azure::{Token, http_date};

/// Credentials. `Debug` shows no secrets.
pub(crate) enum Credentials {
    /// Signs every request (SharedKeyLite).
    Key { account: String, key: Box<hmac::Key> },
    /// The parameters of a shared access signature, as they follow a `?`.
    Sas(String),
    /// A bearer token.
    Token(Token),
    /// None.
    Nobody,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what())
    }
}

impl Credentials {
    /// Name of their kind.
    pub(crate) const fn what(&self) -> &'static str {
        match self {
            Self::Key { .. } => "account key",
            Self::Sas(_) => "shared access signature",
            Self::Token(_) => "token",
            Self::Nobody => "nobody",
        }
    }

    /// An account's key, which is base64.
    ///
    /// # Errors
    /// In words, without the key: it is not.
    pub(crate) fn key(account: &str, key: &str) -> Result<Self, &'static str> {
        let bytes = BASE64.decode(key).map_err(|_| "the account key is not base64")?;
        Ok(Self::Key {
            account: account.to_owned(),
            key: Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes)),
        })
    }

    /// A shared access signature, with or without its `?`.
    ///
    /// # Errors
    /// In words, without the signature: it has characters that none has.
    pub(crate) fn sas(text: &str) -> Result<Self, &'static str> {
        let text = text.trim_start_matches('?');
        let legal = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}#".contains(c);
        if text.is_empty() || !text.chars().all(legal) || !text.contains("sig=") {
            return Err("sas_token is not a shared access signature (sv=...&sig=...)");
        }
        Ok(Self::Sas(text.to_owned()))
    }

    /// Part of a request's query that they add, beginning with `&`.
    pub(crate) fn query(&self) -> String {
        match self {
            Self::Sas(parameters) => format!("&{parameters}"),
            _ => String::new(),
        }
    }

    /// The headers of a request for `path`, without its query, sent at `now`: its date, and who
    /// asks.
    ///
    /// # Errors
    /// The file of the token cannot be read.
    pub(crate) fn headers(
        &self,
        path: &str,
        now: Timestamp,
    ) -> Result<Vec<(&'static str, String)>, Fault> {
        let date = http_date(now);
        let authorization = match self {
            Self::Key { account, key } => {
                let signed = hmac::sign(key, format!("{date}\n/{account}{path}").as_bytes());
                Some(format!("SharedKeyLite {account}:{}", BASE64.encode(signed.as_ref())))
            }
            Self::Token(token) => Some(format!("Bearer {}", token.now()?)),
            Self::Sas(_) | Self::Nobody => None,
        };
        let mut headers = vec![("x-ms-date", date)];
        headers.extend(authorization.map(|value| ("authorization", value)));
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_signs_date_and_path() {
        let who = Credentials::key("devstoreaccount1", "a2V5").unwrap();
        let headers = who.headers("/devstoreaccount1/t()", Timestamp::from_millis(0)).unwrap();
        // printf 'Thu, 01 Jan 1970 00:00:00 GMT\n/devstoreaccount1/devstoreaccount1/t()' | openssl
        // dgst -sha256 -hmac key -binary | base64
        assert_eq!(headers[1].0, "authorization");
        assert_eq!(
            headers[1].1,
            "SharedKeyLite devstoreaccount1:OSYaY/u9ei3OY5MD4gd/NO9b312so1VrW5g1397f82c="
        );
        assert!(!format!("{who:?}").contains("a2V5"));
    }

    #[test]
    fn tokens_are_sent_as_they_are_and_signatures_are_in_the_query() {
        let token = Credentials::Token(Token::of("abc.def").unwrap());
        assert_eq!(token.headers("/t", Timestamp::from_millis(0)).unwrap()[1].1, "Bearer abc.def");
        let sas = Credentials::sas("?sv=2020-12-06&sig=a%2Fb%3D").unwrap();
        assert_eq!(sas.query(), "&sv=2020-12-06&sig=a%2Fb%3D");
        assert_eq!(sas.headers("/t", Timestamp::from_millis(0)).unwrap().len(), 1);
        for other in ["", "sv=1", "sig=a b", "sig=ä"] {
            assert!(Credentials::sas(other).is_err(), "{other}");
        }
        assert!(Credentials::key("a", "%").is_err());
    }
}
