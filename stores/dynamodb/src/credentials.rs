//! The credentials for the service: an access key and its secret, or a file that is kept fresh.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future;
use aws_sdk_dynamodb::config::{Credentials as Key, ProvideCredentials};
use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::Fault;
use serde_json::Value as Json;
use tokio::time::Instant;

/// Time for which the key of a file is used before the file is read again.
const FILE_AGE: Duration = Duration::from_secs(60);
/// The largest such file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Credentials. `Debug` shows no secrets.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// A key.
    Key(Key),
    /// A file with a key, read again every minute: another program keeps it fresh.
    File { path: PathBuf, last: Arc<Mutex<Option<(Instant, Key)>>> },
    /// None.
    Nobody,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "access key",
            Self::File { .. } => "credentials file",
            Self::Nobody => "nobody",
        })
    }
}

impl Credentials {
    /// A key, with the token of a session if it is a temporary one.
    ///
    /// # Errors
    /// In words, without the secret: there are characters that none has.
    pub(crate) fn key(id: &str, secret: &str, token: Option<&str>) -> Result<Self, &'static str> {
        let legal = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        if !legal(id) || !legal(secret) || !token.is_none_or(legal) {
            return Err("access key, secret or session token has characters that none has");
        }
        Ok(Self::Key(Key::new(id, secret, token.map(str::to_owned), None, "emmer")))
    }

    /// The key of a file.
    pub(crate) fn file(path: &str) -> Self {
        Self::File { path: path.into(), last: Arc::default() }
    }

    /// The key to use now.
    ///
    /// # Errors
    /// `Refused`: there are no credentials, or their file cannot be read.
    pub(crate) fn now(&self) -> Result<Key, Fault> {
        match self {
            Self::Key(key) => Ok(key.clone()),
            Self::File { path, last } => of_file(path, last),
            Self::Nobody => Err(Fault::new(
                StoreErrorKind::Refused,
                "no access key: name one in the URL, in credentials_file, or in AWS_ACCESS_KEY_ID \
                 and AWS_SECRET_ACCESS_KEY",
            )),
        }
    }
}

impl ProvideCredentials for Credentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let key = self.now().map_err(|fault| CredentialsError::provider_error(fault.detail));
        future::ProvideCredentials::ready(key)
    }
}

/// The key of a file, as it was at most a minute ago.
fn of_file(path: &Path, last: &Mutex<Option<(Instant, Key)>>) -> Result<Key, Fault> {
    // A panic in between leaves an older key.
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((read, key)) = last.as_ref()
        && read.elapsed() < FILE_AGE
    {
        return Ok(key.clone());
    }
    let refused = |why: String| {
        Fault::new(StoreErrorKind::Refused, format!("credentials_file {}: {why}", path.display()))
    };
    let bytes = std::fs::metadata(path).map_err(|e| refused(e.to_string()))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(refused(format!("{bytes} bytes are no credentials")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| refused(e.to_string()))?;
    let key = understood(&text).map_err(|why| refused(why.to_owned()))?;
    *last = Some((Instant::now(), key.clone()));
    Ok(key)
}

/// The key in a JSON document as `aws configure export-credentials` prints it.
fn understood(text: &str) -> Result<Key, &'static str> {
    let json: Json = serde_json::from_str(text).map_err(|_| "this is not JSON")?;
    let field = |name: &str| json.get(name).and_then(Json::as_str);
    let both = field("AccessKeyId").zip(field("SecretAccessKey"));
    let (id, secret) = both.ok_or("there are no AccessKeyId and SecretAccessKey")?;
    match Credentials::key(id, secret, field("SessionToken"))? {
        Credentials::Key(key) => Ok(key),
        _ => Err("there is no key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked_and_not_shown() {
        let who = Credentials::key("AKIA", "s3cr/t+", Some("t0ken")).unwrap();
        assert!(!format!("{who:?}").contains("s3cr"));
        let key = who.now().unwrap();
        assert_eq!((key.access_key_id(), key.session_token()), ("AKIA", Some("t0ken")));
        for (id, secret, token) in
            [("", "s", None), ("a", "", None), ("a", "s\n", None), ("a", "s", Some(""))]
        {
            assert!(Credentials::key(id, secret, token).is_err());
        }
        let error = Credentials::Nobody.now().unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Refused && error.detail.contains("AWS_ACCESS_KEY_ID")
        );
    }

    #[test]
    fn a_file_is_read_for_its_key() {
        let file = std::env::temp_dir().join(format!("emmer-dynamodb-key-{}", std::process::id()));
        let who = Credentials::file(file.to_str().unwrap());
        assert_eq!(who.now().unwrap_err().kind, StoreErrorKind::Refused);
        for (text, word) in [("key", "JSON"), (r#"{"AccessKeyId":"a"}"#, "SecretAccessKey")] {
            std::fs::write(&file, text).unwrap();
            assert!(who.now().unwrap_err().detail.contains(word));
        }
        let text = r#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"s","SessionToken":"t","Expiration":"2026"}"#;
        std::fs::write(&file, text).unwrap();
        assert_eq!(who.now().unwrap().session_token(), Some("t"));
        std::fs::remove_file(&file).unwrap();
        // Known for a minute.
        assert_eq!(who.now().unwrap().access_key_id(), "a");
    }
}
