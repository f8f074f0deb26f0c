//! A server between a store and the emulator that answers some requests itself, or loses answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What happens to a request.
#[derive(Clone, Debug)]
pub(crate) enum Do {
    /// It is passed on, and its answer back.
    Pass,
    /// It is answered with this status, code and headers, and not passed on.
    Answer(u16, &'static str, &'static str),
    /// It is passed on, and answered with this status and code instead.
    PassAndAnswer(u16, &'static str),
    /// It is passed on, and the connection ends when the emulator has answered.
    PassAndCut,
}

/// The server. What is not asked of it is passed on.
pub(crate) struct Between {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// What happens to the next requests that write.
    writes: VecDeque<Do>,
    /// What happens to the next requests that read.
    reads: VecDeque<Do>,
    /// What happens to all others.
    always: Option<Do>,
    seen: usize,
}

impl State {
    fn next(&mut self, request: &[u8]) -> Do {
        self.seen += 1;
        let queue = if request.starts_with(b"GET") { &mut self.reads } else { &mut self.writes };
        queue.pop_front().or_else(|| self.always.clone()).unwrap_or(Do::Pass)
    }
}

impl Between {
    /// Starts one in front of a port of this host.
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(one(client, server, shared.clone()));
            }
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What happens to the next requests that write.
    pub(crate) fn writes(&self, what: impl IntoIterator<Item = Do>) {
        self.state.lock().unwrap().writes.extend(what);
    }

    /// What happens to the next requests that read.
    pub(crate) fn reads(&self, what: impl IntoIterator<Item = Do>) {
        self.state.lock().unwrap().reads.extend(what);
    }

    /// What happens to every request that nothing else was said about.
    pub(crate) fn always(&self, what: Option<Do>) {
        self.state.lock().unwrap().always = what;
    }

    /// How many requests came since this was last asked.
    pub(crate) fn seen(&self) -> usize {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }
}

/// One request of one connection, which then ends.
async fn one(mut client: TcpStream, server: u16, state: Arc<Mutex<State>>) {
    let Some(request) = read(&mut client).await else { return };
    let what = state.lock().unwrap().next(&request);
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
            code => format!("{{\"odata.error\":{{\"code\":\"{code}\",\"message\":{{\"value\":\"So.\"}}}}}}"),
        };
        let length = body.len();
        answer = format!(
            "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
        )
        .into();
    }
    let _ = client.write_all(&answer).await;
    let _ = client.shutdown().await;
}

/// What the emulator answers.
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
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
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
