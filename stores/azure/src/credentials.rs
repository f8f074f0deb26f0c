//! Who we are to the service: an account key, a shared access signature, or a bearer token.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_core::Timestamp;
use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::Fault;
use ring::hmac;
use tokio::time::Instant;

/// How long a token from a file is used before the file is read again.
const TOKEN_FILE_AGE: Duration = Duration::from_secs(60);
/// The largest token file, in bytes.
const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;

/// Who we are. `Debug` shows no secrets.
pub(crate) enum Credentials {
    /// Signs every request (SharedKeyLite).
    Key { account: String, key: hmac::Key },
    /// The parameters of a shared access signature, as they follow a `?`.
    Sas(String),
    /// A bearer token.
    Token(String),
    /// A file that somebody keeps a fresh token in.
    TokenFile { path: PathBuf, last: Mutex<Option<(Instant, String)>> },
    /// Nobody.
    Nobody,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what())
    }
}

impl Credentials {
    /// What they are, in a word.
    pub(crate) const fn what(&self) -> &'static str {
        match self {
            Self::Key { .. } => "account key",
            Self::Sas(_) => "shared access signature",
            Self::Token(_) | Self::TokenFile { .. } => "token",
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
            key: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
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
            return Err("sas_token is no shared access signature (sv=...&sig=...)");
        }
        Ok(Self::Sas(text.to_owned()))
    }

    /// A bearer token.
    ///
    /// # Errors
    /// In words, without the token: it has characters that none has.
    pub(crate) fn token(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err("the token has characters that no token has");
        }
        Ok(Self::Token(text.to_owned()))
    }

    /// What a request adds to its query, beginning with `&`.
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
            Self::Token(token) => Some(format!("Bearer {token}")),
            Self::TokenFile { path, last } => Some(format!("Bearer {}", of_file(path, last)?)),
            Self::Sas(_) | Self::Nobody => None,
        };
        let mut headers = vec![("x-ms-date", date)];
        headers.extend(authorization.map(|value| ("authorization", value)));
        Ok(headers)
    }
}

/// The token of a file, as it was at most a minute ago.
fn of_file(path: &PathBuf, last: &Mutex<Option<(Instant, String)>>) -> Result<String, Fault> {
    // A panic in between leaves an older token.
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((read, token)) = last.as_ref()
        && read.elapsed() < TOKEN_FILE_AGE
    {
        return Ok(token.clone());
    }
    let refused = |why: String| {
        Fault::new(StoreErrorKind::Refused, format!("token_file {}: {why}", path.display()))
    };
    let bytes = std::fs::metadata(path).map_err(|e| refused(e.to_string()))?.len();
    if bytes > TOKEN_FILE_BYTES_MAX {
        return Err(refused(format!("{bytes} bytes are no token")));
    }
    let token = std::fs::read_to_string(path).map_err(|e| refused(e.to_string()))?;
    let token = token.trim().to_owned();
    if let Err(why) = Credentials::token(&token) {
        return Err(refused(why.to_owned()));
    }
    *last = Some((Instant::now(), token.clone()));
    Ok(token)
}

/// A time as HTTP writes it: `Sat, 21 Nov 2026 12:44:45 GMT`.
fn http_date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // `2026-11-21T12:44:45.000Z`; the weekday is told by the days since 1970-01-01, a Thursday.
    let text = at.to_string();
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let days = usize::try_from(at.as_millis().div_euclid(86_400_000).rem_euclid(7)).unwrap_or(0);
    let month = part(5..7).parse::<usize>().unwrap_or(1).saturating_sub(1);
    let (day, month) = (DAYS.get(days).unwrap_or(&"Thu"), MONTHS.get(month).unwrap_or(&"Jan"));
    format!("{day}, {} {month} {} {} GMT", part(8..10), part(0..4), part(11..19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_as_http_writes_them() {
        let date = |text: &str| http_date(text.parse().unwrap());
        assert_eq!(date("2026-11-21T12:44:45.999Z"), "Sat, 21 Nov 2026 12:44:45 GMT");
        assert_eq!(date("1970-01-01T00:00:00.000Z"), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

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
        let token = Credentials::token("abc.def").unwrap();
        assert_eq!(token.headers("/t", Timestamp::from_millis(0)).unwrap()[1].1, "Bearer abc.def");
        let sas = Credentials::sas("?sv=2020-12-06&sig=a%2Fb%3D").unwrap();
        assert_eq!(sas.query(), "&sv=2020-12-06&sig=a%2Fb%3D");
        assert_eq!(sas.headers("/t", Timestamp::from_millis(0)).unwrap().len(), 1);
        for other in ["", "sv=1", "sig=a b", "sig=ä"] {
            assert!(Credentials::sas(other).is_err(), "{other}");
        }
        assert!(Credentials::token("a\nb").is_err() && Credentials::key("a", "%").is_err());
    }

    #[test]
    fn a_file_is_read_for_its_token() {
        let file = std::env::temp_dir().join(format!("emmer-azure-token-{}", std::process::id()));
        let who = Credentials::TokenFile { path: file.clone(), last: Mutex::new(None) };
        let ask =
            || who.headers("/t", Timestamp::from_millis(0)).map(|headers| headers[1].1.clone());
        assert_eq!(ask().unwrap_err().kind, StoreErrorKind::Refused);
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(ask().unwrap(), "Bearer abc");
        std::fs::remove_file(&file).unwrap();
        // Known for a minute.
        assert_eq!(ask().unwrap(), "Bearer abc");
    }
}
