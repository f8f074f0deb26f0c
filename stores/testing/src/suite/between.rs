//! A server between a store and its HTTP server that answers some requests itself, or loses
//! answers: what a service in the cloud does and its emulator does not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmer_store::{Mutation, StoreErrorKind, SystemStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::suite::rows::{NUMBERS, must_commit, number_of, row};
use crate::suite::{Store, TestServer};

/// Number of times a store may send a request that is throttled: until its patience ends, and again
/// while it waits for a server that is away.
const ATTEMPTS_MAX: usize = 40;

/// Protocol of a server.
#[derive(Clone, Copy, Debug)]
pub struct Speech {
    /// True if a request, as it came, only reads.
    pub reads: fn(request: &[u8]) -> bool,
    /// The body of an error with this code.
    pub error: fn(code: &str) -> String,
}

/// Fate of a request.
#[derive(Clone, Debug)]
pub enum Do {
    /// It is passed on, and its answer back.
    Pass,
    /// It is answered with this status, code (none for an empty body) and headers, and not passed
    /// on.
    Answer(u16, &'static str, &'static str),
    /// It is passed on, and answered with this status and code instead.
    PassAndAnswer(u16, &'static str),
    /// It is passed on, and the connection ends when the server has answered.
    PassAndCut,
}

/// The server. What is not asked of it is passed on.
#[derive(Debug)]
pub struct Between {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    speech: Speech,
    /// Fates of the next requests that write.
    writes: VecDeque<Do>,
    /// Fates of the next requests that read.
    reads: VecDeque<Do>,
    /// Fate of all others.
    always: Option<Do>,
    /// The requests since the last question.
    seen: Vec<Vec<u8>>,
}

impl State {
    fn next(&mut self, request: &[u8]) -> Do {
        self.seen.push(request.to_vec());
        let queue = if (self.speech.reads)(request) { &mut self.reads } else { &mut self.writes };
        queue.pop_front().or_else(|| self.always.clone()).unwrap_or(Do::Pass)
    }
}

impl Between {
    /// Starts one in front of a port of this host.
    ///
    /// # Panics
    /// It cannot listen.
    pub async fn start(server: u16, speech: Speech) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            speech,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            always: None,
            seen: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(one(client, server, shared.clone()));
            }
        });
        Self { port, state }
    }

    /// One before `server`, and a store that waits long behind it, with the row `r` of number 1.
    ///
    /// # Panics
    /// It cannot listen, or the store cannot be opened.
    pub async fn before(
        server: &impl TestServer,
        speech: Speech,
        store: Store,
    ) -> (Self, Arc<dyn SystemStore>) {
        let between = Self::start(server.port(), speech).await;
        let behind = store.patient(&server.url_at(between.port())).await;
        let direct = store.patient(&server.url()).await;
        direct.ensure_tables(&[&NUMBERS]).await.unwrap();
        must_commit(&direct, "p", vec![Mutation::Upsert { row: row("r", 1) }]).await;
        (between, behind)
    }

    /// Lets the server answer all requests with `busy`: a commit and a read hear so after a bounded
    /// number of attempts, and nothing happened.
    ///
    /// # Panics
    /// They hear something else, or asked too often, or something happened.
    pub async fn throttles_for_ever(
        &self,
        busy: Do,
        store: &Arc<dyn SystemStore>,
        commit: &[Mutation],
    ) {
        let before = number_of(store, "r").await;
        self.always(Some(busy));
        self.seen();
        let committed = store.commit(&NUMBERS, "p", commit.to_vec()).await.unwrap_err();
        let mut sent = vec![self.seen()];
        let read = store.read_partition(&NUMBERS, "p").await.unwrap_err();
        sent.push(self.seen());
        for error in [committed, read] {
            assert!(
                error.kind == StoreErrorKind::Unavailable && error.detail.contains("throttles"),
                "{error}"
            );
        }
        assert!(
            sent.iter().all(|sent| *sent <= ATTEMPTS_MAX),
            "a throttled request was sent {sent:?} times"
        );
        self.always(None);
        assert_eq!(number_of(store, "r").await, before);
    }

    /// The port it listens on, at 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Fates of the next requests that write.
    pub fn writes(&self, what: impl IntoIterator<Item = Do>) {
        lock(&self.state).writes.extend(what);
    }

    /// Fates of the next requests that read.
    pub fn reads(&self, what: impl IntoIterator<Item = Do>) {
        lock(&self.state).reads.extend(what);
    }

    /// Fate of every other request.
    pub fn always(&self, what: Option<Do>) {
        lock(&self.state).always = what;
    }

    /// Number of requests that came since this was last asked.
    pub fn seen(&self) -> usize {
        self.requests().len()
    }

    /// The requests that came since this was last asked, as they came.
    pub fn requests(&self) -> Vec<String> {
        let seen = std::mem::take(&mut lock(&self.state).seen);
        seen.iter().map(|request| String::from_utf8_lossy(request).into_owned()).collect()
    }
}

/// The row `r` with the number `n`, which replaces the existing row.
///
/// # Panics
/// None is there.
pub async fn replace(store: &Arc<dyn SystemStore>, n: i64) -> Vec<Mutation> {
    let etag = store.read_row(&NUMBERS, "p", "r").await.unwrap().unwrap().etag;
    vec![Mutation::Replace { row: row("r", n), etag }]
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request of one connection, which then ends.
async fn one(mut client: TcpStream, server: u16, state: Arc<Mutex<State>>) {
    let Some(request) = read(&mut client).await else { return };
    let what = lock(&state).next(&request);
    let mut answer = match &what {
        Do::Answer(..) => Vec::new(),
        Do::Pass | Do::PassAndAnswer(..) | Do::PassAndCut => pass(server, &request).await,
    };
    let (status, code, headers) = match what {
        Do::Answer(status, code, headers) => (status, code, headers),
        Do::PassAndAnswer(status, code) => (status, code, ""),
        Do::PassAndCut => return,
        Do::Pass => (0, "", ""),
    };
    if status != 0 {
        let body = match code {
            "" => String::new(),
            code => (lock(&state).speech.error)(code),
        };
        let length = body.len();
        answer = format!(
            "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n{headers}Connection: \
             close\r\n\r\n{body}"
        )
        .into();
    }
    let _ = client.write_all(&answer).await;
    let _ = client.shutdown().await;
}

/// Answer of the server.
async fn pass(server: u16, request: &[u8]) -> Vec<u8> {
    let mut upstream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    let end_of_line = request.windows(2).position(|two| two == b"\r\n").unwrap();
    upstream.write_all(&request[..end_of_line]).await.unwrap();
    upstream.write_all(b"\r\nConnection: close").await.unwrap();
    upstream.write_all(&request[end_of_line..]).await.unwrap();
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).await.unwrap();
    answer
}

/// A request as it came.
async fn read(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if request.len() >= end + 4 + length.unwrap_or(0) {
                return Some(request);
            }
        }
        let mut part = vec![0; 16 << 10];
        match client.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => request.extend_from_slice(&part[..n]),
        }
    }
}
