//! A proxy between a client and its server that cuts connections on demand, or keeps a request back
//! and delivers it later, as a node does that stood still.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::process::free_port;

/// The largest piece that is passed on at once, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Bytes of the client are swallowed: the server never gets them.
    Request,
    /// Bytes of the server are swallowed: the client never gets them.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pass,
    /// After this many more messages of clients.
    Armed(Cut, usize),
    /// The next answer is cut.
    AnswerNext,
}

/// State that its connections share.
#[derive(Debug)]
struct Shared {
    state: State,
    /// The next request that it says yes to is kept back.
    keep: Option<fn(&[u8]) -> bool>,
    /// That request, and the connection to the server that it is for.
    kept: Option<(TcpStream, Vec<u8>)>,
}

/// The proxy. Dropped, it ends with its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    /// Port of the server that new connections lead to.
    server: Arc<AtomicU16>,
    state: Arc<Mutex<Shared>>,
    is_open: watch::Sender<bool>,
}

impl Proxy {
    /// Listens in front of a server at `server_port` of 127.0.0.1.
    ///
    /// # Panics
    /// It cannot listen.
    pub async fn start(server_port: u16) -> Self {
        // Outside the ports that the kernel gives to others: while this one is shut, another proxy
        // would get it.
        let port = free_port().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let state = Shared { state: State::Pass, keep: None, kept: None };
        let state = Arc::new(Mutex::new(state));
        let (is_open, changes) = watch::channel(true);
        let server = Arc::new(AtomicU16::new(server_port));
        let made = Self { port, server: server.clone(), state: state.clone(), is_open };
        tokio::spawn(listen(listener, server, state, changes));
        made
    }

    /// Leads new connections to another server, like the address of a service after a switchover.
    /// Existing connections stay.
    pub fn lead_to(&self, server_port: u16) {
        self.server.store(server_port, Ordering::Relaxed);
    }

    /// Ends all connections and stops listening: a client that connects is refused, as by a host
    /// without a server.
    pub async fn shut(&self) {
        self.is_open.send_replace(false);
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    /// Listens again.
    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// The port it listens on, at 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Cuts one connection, after `skip` more messages of clients went through. A message is what
    /// one read from the socket gives: for requests that wait for their answers, a request.
    pub fn arm(&self, cut: Cut, skip: usize) {
        lock(&self.state).state = State::Armed(cut, skip);
    }

    /// Stops cutting. Returns true if it has cut since it was armed.
    pub fn disarm(&self) -> bool {
        std::mem::replace(&mut lock(&self.state).state, State::Pass) == State::Pass
    }

    /// Keeps back the next request that `is_it` says yes to, and cuts its client's connection.
    pub fn keep(&self, is_it: fn(request: &[u8]) -> bool) {
        lock(&self.state).keep = Some(is_it);
    }

    /// Delivers the kept request, and waits for the answer.
    ///
    /// # Panics
    /// Nothing was kept, or the server does not answer.
    pub async fn deliver(&self) {
        let kept = lock(&self.state).kept.take();
        let (mut server, request) = kept.unwrap();
        server.write_all(&request).await.unwrap();
        let mut answer = vec![0; MESSAGE_BYTES_MAX];
        assert!(server.read(&mut answer).await.unwrap() > 0, "no answer");
    }
}

/// Waits until the door is as wanted; false when the door is gone.
async fn turned(is_open: &mut watch::Receiver<bool>, wanted: bool) -> bool {
    is_open.wait_for(|open| *open == wanted).await.is_ok()
}

/// Lets clients through while the proxy is open; ends with it.
async fn listen(
    mut listener: TcpListener,
    server: Arc<AtomicU16>,
    state: Arc<Mutex<Shared>>,
    mut is_open: watch::Receiver<bool>,
) {
    let Ok(own) = listener.local_addr() else { return };
    loop {
        let mut connections = JoinSet::new();
        let shut = loop {
            tokio::select! {
                shut = turned(&mut is_open, false) => break shut,
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { return };
                    // No server: the client sees its connection end.
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server.load(Ordering::Relaxed))).await else { continue };
                    connections.spawn(both_ways(client, server, state.clone()));
                }
            }
        };
        // The listener last: once no client can connect, none is served either.
        connections.shutdown().await;
        drop(listener);
        if !shut || !turned(&mut is_open, true).await {
            return;
        }
        listener = TcpListener::bind(own).await.unwrap();
    }
}

fn lock(state: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn both_ways(client: TcpStream, server: TcpStream, state: Arc<Mutex<Shared>>) {
    // Each message goes out at once, as it came in.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut client_reads, mut client_writes) = client.into_split();
    let (mut server_reads, mut server_writes) = server.into_split();
    // The first that ends takes the other along, and with it the connection.
    let kept = tokio::select! {
        kept = pump(&mut client_reads, &mut server_writes, |request| of_request(&state, request)) => kept,
        kept = pump(&mut server_reads, &mut client_writes, |_| of_answer(&state)) => kept,
    };
    if let Some(request) = kept
        && let Ok(server) = server_reads.reunite(server_writes)
    {
        lock(&state).kept = Some((server, request));
    }
}

/// Fate of a message.
enum Fate {
    Passes,
    IsLost,
    IsKept,
}

/// Until the connection ends, or a message does not pass; that message if it is kept.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    fate: impl Fn(&[u8]) -> Fate,
) -> Option<Vec<u8>> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return None };
        let message = buffer.get(..count)?;
        match fate(message) {
            Fate::Passes if to.write_all(message).await.is_ok() => {}
            Fate::Passes | Fate::IsLost => return None,
            Fate::IsKept => return Some(message.to_vec()),
        }
    }
}

fn of_request(shared: &Mutex<Shared>, request: &[u8]) -> Fate {
    let mut shared = lock(shared);
    if shared.keep.is_some_and(|is_it| is_it(request)) {
        shared.keep = None;
        return Fate::IsKept;
    }
    let (next, fate) = match shared.state {
        State::Armed(Cut::Request, 0) => (State::Pass, Fate::IsLost),
        State::Armed(Cut::Answer, 0) => (State::AnswerNext, Fate::Passes),
        State::Armed(cut, more) => (State::Armed(cut, more - 1), Fate::Passes),
        other => (other, Fate::Passes),
    };
    shared.state = next;
    fate
}

fn of_answer(shared: &Mutex<Shared>) -> Fate {
    let mut shared = lock(shared);
    if shared.state == State::AnswerNext {
        shared.state = State::Pass;
        return Fate::IsLost;
    }
    Fate::Passes
}
