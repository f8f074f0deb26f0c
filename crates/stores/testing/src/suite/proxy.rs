//! A proxy between a client and its server that cuts connections on demand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::process::free_port;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What the client sends is swallowed: the server never has it.
    Request,
    /// What the server says is swallowed: the client never hears it.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pass,
    /// After this many more messages of clients.
    Armed(Cut, usize),
    /// The next answer is the one.
    AnswerNext,
}

/// The proxy. Dropped, it ends with its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: Arc<Mutex<State>>,
    is_open: watch::Sender<bool>,
}

impl Proxy {
    /// Listens in front of a server at `server_port` of 127.0.0.1.
    ///
    /// # Panics
    /// It cannot listen.
    pub async fn start(server_port: u16) -> Self {
        // None of those that the kernel gives to others: while this one is shut, another proxy
        // would get it.
        let port = free_port().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let state = Arc::new(Mutex::new(State::Pass));
        let (is_open, changes) = watch::channel(true);
        let made = Self { port, state: state.clone(), is_open };
        tokio::spawn(listen(listener, server_port, state, changes));
        made
    }

    /// Ends all connections and listens no more: whoever connects is refused, as by a host without
    /// a server.
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
        *lock(&self.state) = State::Armed(cut, skip);
    }

    /// Cuts nothing more. Whether it did since it was armed.
    pub fn disarm(&self) -> bool {
        std::mem::replace(&mut *lock(&self.state), State::Pass) == State::Pass
    }
}

/// Waits until the door is as wanted; false when there is no door any more.
async fn turned(is_open: &mut watch::Receiver<bool>, wanted: bool) -> bool {
    is_open.wait_for(|open| *open == wanted).await.is_ok()
}

/// Lets clients through while the proxy is open; ends with it.
async fn listen(
    mut listener: TcpListener,
    server_port: u16,
    state: Arc<Mutex<State>>,
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
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { continue };
                    connections.spawn(both_ways(client, server, state.clone()));
                }
            }
        };
        drop(listener);
        connections.shutdown().await;
        if !shut || !turned(&mut is_open, true).await {
            return;
        }
        listener = TcpListener::bind(own).await.unwrap();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn both_ways(client: TcpStream, server: TcpStream, state: Arc<Mutex<State>>) {
    // Each message goes out at once, as it came in.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    // The first that ends takes the other along, and with it the connection.
    tokio::select! {
        () = pump(client_reads, server_writes, || request_is_cut(&state)) => {}
        () = pump(server_reads, client_writes, || answer_is_cut(&state)) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    is_cut: impl Fn() -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if is_cut() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn request_is_cut(state: &Mutex<State>) -> bool {
    let mut state = lock(state);
    let (next, cut) = match *state {
        State::Armed(Cut::Request, 0) => (State::Pass, true),
        State::Armed(Cut::Answer, 0) => (State::AnswerNext, false),
        State::Armed(cut, more) => (State::Armed(cut, more - 1), false),
        other => (other, false),
    };
    *state = next;
    cut
}

fn answer_is_cut(state: &Mutex<State>) -> bool {
    let mut state = lock(state);
    let cut = *state == State::AnswerNext;
    if cut {
        *state = State::Pass;
    }
    cut
}
