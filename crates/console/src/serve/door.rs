//! The visitors that are let in.
//!
//! A browser shows the token once and gets a session in a cookie that no other site can send. A
//! request names the console by one of its own names, so that no page of another site reaches it
//! under a name of its own. An order has a header that forms of other sites cannot make.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName, HeaderValue,
    ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use emmer_runtime::Right;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::Shared;

/// The shortest token, in bytes: as many random letters and digits are not guessed.
pub(super) const TOKEN_BYTES_MIN: usize = 16;

/// Number of sessions.
const SESSIONS_MAX: usize = 1_000;

/// The longest session.
const SESSION_MAX: Duration = Duration::from_secs(12 * 3_600);

/// The header of a request that does something.
const MARK: HeaderName = HeaderName::from_static("x-emmer-console");

/// The pages use nothing from elsewhere, and no page of another site frames them.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";

/// The rules about visitors.
pub(super) struct Door {
    tokens: Vec<(Box<[u8]>, Right)>,
    /// Right of a visitor without a token.
    without: Option<Right>,
    /// Right of a visitor with the certificate of a client.
    certified: Right,
    /// Names of the console in requests, with the port and without it.
    names: Vec<String>,
    cookie: String,
    is_secure: bool,
    sessions: Mutex<HashMap<Uuid, (Right, Instant)>>,
}

impl Door {
    /// None if a token is too short.
    pub(super) fn new(
        address: SocketAddr,
        is_secure: bool,
        (look, act): (Option<String>, Option<String>),
        acts: bool,
        others: Vec<String>,
    ) -> Option<Self> {
        let tokens = [(act, Right::Act), (look.clone(), Right::Look)];
        let tokens: Vec<(Box<[u8]>, Right)> = tokens
            .into_iter()
            .filter_map(|(token, right)| Some((token?.into_bytes().into(), right)))
            .collect();
        if tokens.iter().any(|(token, _)| token.len() < TOKEN_BYTES_MIN) {
            return None;
        }
        // With a token for acts alone, programs on this host look without one.
        let is_local = address.ip().is_loopback() && others.is_empty() && !is_secure;
        let right = if acts { Right::Act } else { Right::Look };
        let without = (is_local && look.is_none()).then_some(right);
        let (ip, port) = (address.ip().to_string(), address.port());
        let ip = if address.is_ipv6() { format!("[{ip}]") } else { ip };
        let own = ["localhost", "127.0.0.1", "[::1]", &ip].map(str::to_owned);
        let own = own.into_iter().map(|name| format!("{name}:{port}"));
        // Behind a proxy the port is another one.
        let names = own.chain(others.into_iter().map(|name| name.to_ascii_lowercase())).collect();
        let cookie = format!("emmer_console_{port}");
        Some(Self {
            tokens,
            without,
            certified: right,
            names,
            cookie,
            is_secure,
            sessions: Mutex::default(),
        })
    }

    /// Returns true if the request names the console by a name of its own.
    fn is_named(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let host = name.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let host = host.map_or(name.as_str(), |(host, _)| host);
        self.names.iter().any(|own| *own == name || own == host)
    }

    /// The right of a visitor; none for a stranger.
    fn right(&self, headers: &HeaderMap) -> Option<Right> {
        let bearer = text(headers, &AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
        let shown = bearer.and_then(|token| self.right_of(token));
        shown.or_else(|| self.session(headers)).or(self.without)
    }

    /// Takes as long for a token that is nearly right.
    fn right_of(&self, shown: &str) -> Option<Right> {
        let is_shown = |token: &[u8]| bool::from(token.ct_eq(shown.as_bytes()));
        self.tokens.iter().find(|(token, _)| is_shown(token)).map(|(_, right)| *right)
    }

    fn session(&self, headers: &HeaderMap) -> Option<Right> {
        let cookies = text(headers, &COOKIE)?.split(';');
        let own = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let id =
            own.filter(|(name, _)| *name == self.cookie).find_map(|(_, id)| id.parse().ok())?;
        let sessions = self.sessions.lock();
        let (right, since) = sessions.get::<Uuid>(&id)?;
        (since.elapsed() < SESSION_MAX).then_some(*right)
    }

    /// Begins a session. Returns its cookie.
    fn begin(&self, right: Right) -> String {
        let id = Uuid::new_v4();
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, (_, since)| since.elapsed() < SESSION_MAX);
        if sessions.len() >= SESSIONS_MAX
            && let Some(oldest) = sessions.iter().min_by_key(|(_, (_, since))| *since)
        {
            let oldest = *oldest.0;
            sessions.remove(&oldest);
        }
        sessions.insert(id, (right, Instant::now()));
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{}={id}; HttpOnly; SameSite=Strict; Path=/{secure}", self.cookie)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// An error as the pages show it.
pub(super) fn refusal(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

/// Lets a request in, or refuses it.
pub(super) async fn guard(
    State(shared): State<Shared>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match admit(&shared.door, &mut request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let same = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", same.clone());
    headers.insert("cross-origin-opener-policy", same);
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[expect(clippy::result_large_err, reason = "a response is what the caller returns")]
fn admit(door: &Door, request: &mut Request) -> Result<(), Response> {
    let headers = request.headers();
    let host = text(headers, &HOST).filter(|host| door.is_named(host));
    let Some(host) = host else {
        let why = "the console does not have this name: give it the name, or use localhost";
        return Err(refusal(StatusCode::MISDIRECTED_REQUEST, why));
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let is_ours = match text(headers, &ORIGIN) {
            Some(origin) => origin.split_once("://").is_some_and(|(_, own)| own == host),
            None => true,
        };
        if !is_ours || !headers.contains_key(&MARK) {
            return Err(refusal(StatusCode::FORBIDDEN, "the request comes from another page"));
        }
    }
    let is_certified = request.extensions().get::<Certified>().is_some();
    let right = door.right(headers);
    // A token may give more than the certificate.
    let right = match right {
        Some(Right::Act) => right,
        _ if is_certified => Some(door.certified),
        _ => right,
    };
    let path = request.uri().path();
    if (path.starts_with("/api/") || path == "/events") && right.is_none() {
        return Err(refusal(StatusCode::UNAUTHORIZED, "show a token first"));
    }
    request.extensions_mut().insert(Visitor(right));
    Ok(())
}

/// The visitor has shown the certificate of a client.
#[derive(Clone, Copy)]
pub(super) struct Certified;

/// The right of the visitor.
#[derive(Clone, Copy)]
pub(super) struct Visitor(pub(super) Option<Right>);

impl Visitor {
    pub(super) fn may_act(self) -> bool {
        self.0 == Some(Right::Act)
    }
}

/// The visitor's rights.
pub(super) async fn me(
    State(shared): State<Shared>,
    axum::Extension(visitor): axum::Extension<Visitor>,
) -> Response {
    let has_tokens = !shared.door.tokens.is_empty();
    Json(json!({ "acts": visitor.may_act(), "tokens": has_tokens })).into_response()
}

#[derive(Deserialize)]
pub(super) struct Shown {
    token: String,
}

/// Begins a session for a visitor that shows a token.
pub(super) async fn log_in(State(shared): State<Shared>, Json(shown): Json<Shown>) -> Response {
    match shared.door.right_of(&shown.token) {
        Some(right) => {
            let cookie = shared.door.begin(right);
            ([(SET_COOKIE, cookie)], Json(json!({}))).into_response()
        }
        None => refusal(StatusCode::UNAUTHORIZED, "this is not a token of the console"),
    }
}
