//! Any error, for applications: what `?` makes of the others, in `main` and in a grain's method.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::turn::{CallError, CallTarget};

/// The most causes of an error that travel with it.
const CAUSES_MAX: usize = 16;

/// Any error. `?` makes one of every other error, in `main` and in a method that returns
/// `Result<T, emmer::Error>`.
///
/// As the error of a method it travels: the caller, and the caller's callers, see its words and
/// those of its causes, but not its type. Shown, also by `Debug`, it is a sentence and its causes.
pub struct Error(Box<dyn StdError + Send + Sync>);

impl Error {
    /// An error in words.
    pub fn new(words: impl fmt::Display) -> Self {
        Self(Box::new(Told { words: words.to_string(), cause: None }))
    }

    /// The error that this one was made of, if it is a `T`. None after it has travelled.
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    /// The cause of the error.
    pub fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }

    /// The causes of the error, the nearest first, without those whose words are a part of the
    /// words before.
    fn causes(&self) -> Vec<String> {
        let (mut causes, mut last) = (Vec::new(), self.0.to_string());
        let mut next = self.source();
        while let Some(cause) = next.filter(|_| causes.len() < CAUSES_MAX) {
            let words = cause.to_string();
            if !last.contains(&words) {
                last.clone_from(&words);
                causes.push(words);
            }
            next = cause.source();
        }
        causes
    }
}

/// An error in words, as it has travelled.
#[derive(Debug)]
struct Told {
    words: String,
    cause: Option<Box<Self>>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl StdError for Told {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl From<Error> for Box<dyn StdError + Send + Sync> {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)?;
        self.causes().iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let words = std::iter::once(self.0.to_string()).chain(self.causes());
        words.collect::<Vec<String>>().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut words = Vec::<String>::deserialize(deserializer)?;
        words.truncate(1 + CAUSES_MAX);
        let told = words
            .into_iter()
            .rev()
            .fold(None, |cause, words| Some(Box::new(Told { words, cause })));
        Ok(told.map_or_else(|| Self::new("an error without words"), |told| Self(told)))
    }
}

/// The own error of a method that was called, if it is a `T`; else the failure as it was.
///
/// # Errors
/// The failure.
pub fn own_error<E: 'static, T: 'static>(failure: CallError<E>) -> Result<T, CallError<E>> {
    let CallError::App(own) = failure else { return Err(failure) };
    let mut own = Some(own);
    if let Some(own) = (&mut own as &mut dyn Any).downcast_mut::<Option<T>>().and_then(Option::take)
    {
        return Ok(own);
    }
    match own {
        Some(own) => Err(CallError::App(own)),
        // Taken only where it is returned.
        None => Err(CallError::Internal {
            call: CallTarget::UNKNOWN,
            detail: "an error was lost".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use emmer_wire::codec;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no bread")]
    struct NoBread(#[source] std::num::ParseIntError);

    fn failed() -> Result<(), Error> {
        let cause = "x".parse::<u8>().map(drop);
        cause.map_err(NoBread)?;
        Ok(())
    }

    #[test]
    fn an_error_keeps_its_words_and_causes_on_its_way() {
        let error = failed().unwrap_err();
        assert!(error.downcast_ref::<NoBread>().is_some());
        assert_eq!(error.to_string(), "no bread");
        let shown = "no bread: invalid digit found in string";
        assert_eq!(format!("{error:?}"), shown);
        let mut bytes = bytes::BytesMut::new();
        codec::encode_into(&mut bytes, &error).unwrap();
        let arrived: Error = codec::decode(&bytes).unwrap();
        assert_eq!(
            (arrived.to_string().as_str(), format!("{arrived:?}").as_str()),
            ("no bread", shown)
        );
        assert!(arrived.downcast_ref::<NoBread>().is_none());
        assert_eq!(
            arrived.source().map(ToString::to_string).as_deref(),
            Some("invalid digit found in string")
        );
    }

    #[test]
    fn the_own_error_of_a_call_is_found_by_its_type() {
        assert_eq!(own_error::<u8, u8>(CallError::App(7)), Ok(7));
        assert_eq!(own_error::<u8, u16>(CallError::App(7)), Err(CallError::App(7)));
        let ends = || CallError::ShuttingDown { call: CallTarget::UNKNOWN };
        assert_eq!(own_error::<u8, u8>(ends()), Err(ends()));
    }
}
