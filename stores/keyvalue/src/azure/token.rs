//! Bearer tokens of Microsoft Entra, which another program gets and keeps fresh.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use emmer_store::StoreErrorKind;
use tokio::time::Instant;

use crate::Fault;

/// The longest time that a token from a file is used before the file is read again.
pub const TOKEN_FILE_AGE: Duration = Duration::from_secs(60);
/// The largest token file, in bytes.
const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;

/// A bearer token. `Debug` does not show it.
pub struct Token(Source);

enum Source {
    Text(String),
    /// A file in which another program keeps a fresh token, with the content of the last read.
    File(PathBuf, Mutex<Option<(Instant, String)>>),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

fn check(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
        return Err("the token has characters that no token has");
    }
    Ok(text.to_owned())
}

impl Token {
    /// A token that stays as it is.
    ///
    /// # Errors
    /// In words, without the token: it has characters that none has.
    pub fn of(text: &str) -> Result<Self, &'static str> {
        Ok(Self(Source::Text(check(text)?)))
    }

    /// The token that the file at `path` holds. The file is read when the token is needed, and
    /// again after a minute.
    pub fn of_file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into(), Mutex::default()))
    }

    /// The token as it is now.
    ///
    /// # Errors
    /// `Refused`: the file cannot be read, or holds no token.
    pub fn now(&self) -> Result<String, Fault> {
        let (path, last) = match &self.0 {
            Source::Text(text) => return Ok(text.clone()),
            Source::File(path, last) => (path, last),
        };
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
        let token = check(token.trim()).map_err(|why| refused(why.to_owned()))?;
        *last = Some((Instant::now(), token.clone()));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_for_its_token() {
        let file = std::env::temp_dir().join(format!("emmer-azure-token-{}", std::process::id()));
        let token = Token::of_file(file.clone());
        assert_eq!(token.now().unwrap_err().kind, StoreErrorKind::Refused);
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(token.now().unwrap(), "abc");
        std::fs::remove_file(&file).unwrap();
        // Known for a minute.
        assert_eq!(token.now().unwrap(), "abc");
    }

    #[test]
    fn a_token_is_checked_and_not_shown() {
        assert!(Token::of("a\nb").is_err() && Token::of("").is_err());
        let token = Token::of("s3cret").unwrap();
        assert_eq!(token.now().unwrap(), "s3cret");
        assert!(!format!("{token:?}").contains("s3cr"));
    }
}
