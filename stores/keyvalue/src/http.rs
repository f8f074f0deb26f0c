//! Requests to one of several servers that speak HTTP, with a deadline.

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use emmer_core::Timestamp;
use emmer_store::{Address, ClockDifference, Failure, Fault, StoreError, StoreErrorKind};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Certificate, Client, Method, RequestBuilder};
use tokio::time::{Instant, timeout_at};

use crate::tls;

/// Number of times a request that may be repeated is sent after its connection broke.
const REPEATS_MAX: usize = 2;
/// The most idle connections kept to one server.
const IDLE_CONNECTIONS_MAX: usize = 32;
/// Longest idle time of a connection that is used again. Servers and balancers close idle
/// connections too, and a commit that crosses the closing has no known outcome. The shortest usual
/// limit is the five seconds of Node.js.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// The body; JSON, unless a header says otherwise.
    pub body: Bytes,
    /// A header that names who asks, and its secret value.
    pub token: Option<(&'static str, String)>,
    /// More headers.
    pub headers: Vec<(Cow<'static, str>, String)>,
}

impl Request {
    /// A request with a JSON body and no token.
    pub fn new(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method, path: path.into(), body: body.into(), token: None, headers: Vec::new() }
    }
}

/// An answer, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// An answer without headers.
    pub fn of(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: HeaderMap::new(), body: body.into() }
    }

    /// A header's value, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The beginning of the body as text, for messages.
    pub fn words(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.body).trim().chars().take(300).collect();
        format!("HTTP {}: {text}", self.status)
    }
}

/// Clients of one or more servers that are one store. Connections are made when they are needed and
/// kept.
#[derive(Debug)]
pub struct Http {
    client: Client,
    bases: Vec<String>,
    /// The server that answered last.
    preferred: AtomicUsize,
}

impl Http {
    /// A client of the hosts of an address. With `tls` it encrypts, trusting `ca_file` if it is
    /// set, otherwise what the system trusts. It ignores proxies of the environment.
    ///
    /// # Errors
    /// `Invalid`: the certificates cannot be read.
    pub fn new(address: &Address, tls: bool) -> Result<Self, StoreError> {
        Self::build(address, tls).map_err(|fault| fault.at(&address.name, "open"))
    }

    fn build(address: &Address, tls: bool) -> Result<Self, Fault> {
        tls::install_provider();
        let mut builder = Client::builder()
            .no_proxy()
            .http1_only()
            .tcp_nodelay(true)
            // Redirects would repeat a commit that may have happened.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(address.timeout * 5 / 6)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_idle_timeout(IDLE_MAX);
        if let Some(file) = address.text("ca_file") {
            let invalid = |e: reqwest::Error| {
                Fault::new(StoreErrorKind::Invalid, format!("ca_file {file}: {}", words(&e)))
            };
            let pem = tls::read_certificates(file)?;
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(&pem).map_err(invalid)?);
        }
        let client = builder
            .build()
            .map_err(|e| Fault::new(StoreErrorKind::Invalid, format!("TLS: {}", words(&e))))?;
        Ok(Self { client, bases: address.bases(tls), preferred: AtomicUsize::new(0) })
    }

    /// Sends a request to the server that answered last, and to the others in turn while none is
    /// reached. A `repeatable` one is sent again when its connection broke, and to the next server
    /// when half of the time is over without an answer. A server that let a request wait for its
    /// whole time is not the first that the next one goes to.
    ///
    /// # Errors
    /// `Unavailable`; `Broken` when a server may have got the request.
    pub async fn send(
        &self,
        request: &Request,
        deadline: Instant,
        repeatable: bool,
    ) -> Result<Answer, Failure> {
        let first = self.preferred.load(Ordering::Relaxed);
        let (mut unreached, mut repeats) = (0, 0);
        let mut at = first;
        loop {
            let Some(base) = self.bases.get(at % self.bases.len().max(1)) else {
                return Err(Failure::Nothing(Fault::unavailable("no server is named")));
            };
            let others = repeatable && repeats < REPEATS_MAX && self.bases.len() > 1;
            let now = Instant::now();
            let half = now + deadline.saturating_duration_since(now) / 2;
            let limit = if others { half } else { deadline };
            let failure = match timeout_at(limit, self.send_to(base, request)).await {
                Ok(Ok(answer)) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(failure)) => failure,
                Err(_) => {
                    // It may stand still, and the others serve.
                    self.preferred.store(at.wrapping_add(1), Ordering::Relaxed);
                    Failure::Broken(Fault::unavailable("the server does not answer in time"))
                }
            };
            match &failure {
                Failure::Nothing(fault) if fault.kind == StoreErrorKind::Unavailable => {
                    unreached += 1;
                    if unreached >= self.bases.len() {
                        return Err(failure);
                    }
                }
                Failure::Broken(_)
                    if repeatable && repeats < REPEATS_MAX && Instant::now() < deadline =>
                {
                    repeats += 1;
                }
                _ => return Err(failure),
            }
            at = at.wrapping_add(1);
        }
    }

    /// Distance of the server's clock from this host's, by the answer to a request (to the second);
    /// None where the answer has no time.
    pub async fn clock(&self, request: &Request, deadline: Instant) -> Option<ClockDifference> {
        let base =
            self.bases.get(self.preferred.load(Ordering::Relaxed) % self.bases.len().max(1))?;
        let asked = SystemTime::now();
        let answer = timeout_at(deadline, self.builder(base, request).send()).await.ok()?.ok()?;
        let answered = SystemTime::now();
        let server = timestamp(answer.headers().get("date")?.to_str().ok()?)?;
        Some(ClockDifference::measured(asked, server, answered, Duration::from_secs(1)))
    }

    fn builder(&self, base: &str, request: &Request) -> RequestBuilder {
        let mut builder = self
            .client
            .request(request.method.clone(), format!("{base}{}", request.path))
            .body(request.body.clone());
        if !request.headers.iter().any(|(name, _)| CONTENT_TYPE == name.as_ref()) {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in &request.headers {
            builder = builder.header(name.as_ref(), value);
        }
        if let Some((name, value)) = &request.token {
            builder = builder.header(*name, value);
        }
        builder
    }

    async fn send_to(&self, base: &str, request: &Request) -> Result<Answer, Failure> {
        let mut response = self.builder(base, request).send().await.map_err(|e| failure(&e))?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| failure(&e))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                let detail = format!("the answer is larger than {ANSWER_BYTES_MAX} bytes");
                return Err(Failure::Broken(Fault::new(StoreErrorKind::Refused, detail)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body: body.freeze() })
    }
}

/// The time of a `Date` header: `Sat, 21 Nov 2026 12:44:45 GMT`.
fn timestamp(date: &str) -> Option<Timestamp> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut words = date.split(' ').skip(1);
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.find(month).filter(|at| month.len() == 3 && at % 3 == 0)? / 3 + 1;
    format!("{year}-{month:02}-{day}T{time}.000Z").parse().ok()
}

fn failure(error: &reqwest::Error) -> Failure {
    let words = words(error);
    if error.is_builder() {
        return Failure::Nothing(Fault::new(StoreErrorKind::Invalid, words));
    }
    if !error.is_connect() {
        return Failure::Broken(Fault::unavailable(words));
    }
    // The connection was never made: nothing was sent.
    let lower = words.to_ascii_lowercase();
    let tls = ["certificate", "tls", "handshake", "corrupt message"]
        .iter()
        .any(|word| lower.contains(word));
    if !tls {
        return Failure::Nothing(Fault::unavailable(words));
    }
    // Errors about certificates describe their fault themselves.
    let hint = if lower.contains("certificate") {
        ""
    } else {
        ": the server may not speak TLS at this port"
    };
    Failure::Nothing(Fault::new(StoreErrorKind::Refused, format!("{words}{hint}")))
}

/// The causes of an error, outermost first, each once; without the URL.
fn words(error: &reqwest::Error) -> String {
    let mut words = String::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        // The library's own layers say nothing.
        if !words.ends_with(&text) && !text.starts_with("client error (") {
            words = if words.is_empty() { text } else { format!("{words}: {text}") };
        }
        cause = inner.source();
    }
    if words.is_empty() { "the request failed".to_owned() } else { words }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use emmer_store::{Rules, User};

    use super::*;

    /// A server that answers, or takes connections and says nothing; its port.
    fn server(answers: bool) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                if answers {
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                } else {
                    silent.push(stream);
                }
            }
        });
        port
    }

    #[tokio::test]
    async fn a_server_that_stands_still_is_not_asked_for_ever() {
        let url = format!("etcd://127.0.0.1:{},127.0.0.1:{}", server(false), server(true));
        let rules = Rules {
            schemes: &["etcd"],
            shape: "",
            user: User::Free,
            hosts_max: 2,
            port: 2_379,
            path: None,
            parameters: &[],
        };
        let address = Address::parse(&url, &rules, None).unwrap();
        let request = Request::new(Method::GET, "/", "");
        let soon = || Instant::now() + Duration::from_secs(1);
        // A read is answered by the other within its time.
        let http = Http::new(&address, false).unwrap();
        assert_eq!(http.send(&request, soon(), true).await.unwrap().status, 200);
        // A write may have happened; the next one goes to the other.
        let http = Http::new(&address, false).unwrap();
        let failure = http.send(&request, soon(), false).await.unwrap_err();
        assert!(matches!(failure, Failure::Broken(_)), "{failure:?}");
        let far = Instant::now() + Duration::from_secs(3_600);
        assert_eq!(http.send(&request, far, false).await.unwrap().status, 200);
    }

    #[test]
    fn dates_of_headers_are_times() {
        let time = |date| timestamp(date).map(|time| time.to_string());
        assert_eq!(
            time("Sat, 21 Nov 2026 12:44:45 GMT").as_deref(),
            Some("2026-11-21T12:44:45.000Z")
        );
        for other in [
            "",
            "now",
            "Sat, 21 nov 2026 12:44:45 GMT",
            "Sat, 21 anF 2026 12:44:45 GMT",
            "Sat, x Nov 2026 y GMT",
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }
}
