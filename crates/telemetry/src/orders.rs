//! Orders over HTTP to the silo: to cordon it, to drain it, to stop it. Only with a token.

use std::net::SocketAddr;

use emmer_runtime::{Duty, DutyError, SiloWatch};
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Method, StatusCode};
use subtle::ConstantTimeEq;

/// The shortest token, in bytes: as many random letters and digits are not guessed.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

/// The token that an order shows. It is in no log.
pub(crate) struct Token(Box<[u8]>);

impl Token {
    /// None if it is too short.
    pub(crate) fn new(text: String) -> Option<Self> {
        (text.len() >= TOKEN_BYTES_MIN).then(|| Self(text.into_bytes().into()))
    }

    /// Returns true if the request shows it. Takes as long for a token that is nearly right.
    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let shown = shown.and_then(|value| value.strip_prefix(b"Bearer "));
        shown.is_some_and(|shown| shown.ct_eq(&self.0).into())
    }
}

/// A path that is about the duty of the silo.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Only a question.
    Ask,
    Give(Duty),
}

impl Order {
    pub(crate) fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/duty" => Self::Ask,
            "/cordon" => Self::Give(Duty::Cordoned),
            "/uncordon" => Self::Give(Duty::Full),
            "/drain" => Self::Give(Duty::Draining),
            "/stop" => Self::Give(Duty::Leaving),
            _ => return None,
        })
    }

    /// The one method of the path.
    pub(crate) const fn method(self) -> Method {
        match self {
            Self::Ask => Method::GET,
            Self::Give(_) => Method::POST,
        }
    }

    /// Does it. Returns status and text of the answer.
    pub(crate) async fn obey(
        self,
        silo: &SiloWatch,
        token: Option<&Token>,
        headers: &HeaderMap,
        from: Option<SocketAddr>,
    ) -> (StatusCode, String) {
        let Some(token) = token else {
            let text = "this silo takes no orders over HTTP: it has no telemetry_token\n";
            return (StatusCode::FORBIDDEN, text.to_owned());
        };
        if !token.is_shown(headers) {
            let text = "expected the header `authorization: Bearer TOKEN`\n";
            return (StatusCode::UNAUTHORIZED, text.to_owned());
        }
        let Self::Give(duty) = self else { return (StatusCode::OK, format!("{}\n", silo.duty())) };
        let from = from.map_or_else(String::new, |from| format!(" from {from}"));
        match silo.give_duty(duty, &format!("an order over HTTP{from}")).await {
            Ok(written) => {
                let version = written.version.number;
                (StatusCode::OK, format!("{duty} in version {version}\n"))
            }
            Err(error @ (DutyError::Store(_) | DutyError::Busy(_))) => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
            }
            Err(error) => (StatusCode::CONFLICT, format!("{error}\n")),
        }
    }
}
