//! A connection over which everything is encrypted: a socket, and the session that both halves
//! share.
//!
//! The session holds bytes. Encrypted bytes may wait in it until the socket has room
//! ([`is_unsent`](Secured::is_unsent)); decrypted bytes are in it until they are read.

use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use emmer_wire::SEAL_EXPORTER;
use parking_lot::Mutex;
use rustls::Connection as Session;
use socket2::SockRef;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

/// The most bytes that one write encrypts. So few wait in the session when the socket is full.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// A socket and its session, after the handshake.
#[derive(Debug)]
pub(crate) struct Secured {
    socket: TcpStream,
    session: Mutex<Session>,
    /// Broken off: no orderly end is sent.
    is_reset: AtomicBool,
}

impl Secured {
    pub(crate) fn new(socket: TcpStream, session: impl Into<Session>) -> Arc<Self> {
        let session = Mutex::new(session.into());
        Arc::new(Self { socket, session, is_reset: AtomicBool::new(false) })
    }

    /// The bytes that only both ends of this connection know: for their seals.
    pub(crate) fn exported(&self) -> Result<[u8; 32], rustls::Error> {
        self.session.lock().export_keying_material([0; 32], SEAL_EXPORTER, None)
    }

    /// Its socket and its session, if nothing else holds it.
    pub(super) fn into_parts(this: Arc<Self>) -> io::Result<(TcpStream, Session)> {
        let this = Arc::try_unwrap(this);
        let this = this.map_err(|_| io::Error::other("the connection is in use"))?;
        Ok((this.socket, this.session.into_inner()))
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Encrypts and sends as many bytes as there is room for. They are on their way, or wait in the
    /// session.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session.lock();
        if !self.send(&mut session)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = session.writer().write(&bytes[..bytes.len().min(WRITE_BYTES_MAX)])?;
        self.send(&mut session)?;
        Ok(taken)
    }

    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(cx))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    /// Returns true if encrypted bytes wait for room in the socket.
    pub(super) fn is_unsent(&self) -> bool {
        self.session.lock().wants_write()
    }

    /// Sends the session's waiting bytes.
    pub(super) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.send(&mut self.session.lock())? {
            ready!(self.socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(cx)
    }

    /// Ready if a read finds something; the task is woken when one does.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session.lock().reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_read_ready(cx)
    }

    /// Reads what has arrived. An end of the stream without the session's last word is not
    /// reported: a frame that is cut off shows by its length.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            {
                let mut session = self.session.lock();
                if take(&mut session, into)? {
                    return Poll::Ready(Ok(()));
                }
                if self.receive(&mut session)? {
                    continue;
                }
            }
            ready!(self.socket.poll_read_ready(cx))?;
        }
    }

    /// Decrypts what has come; false if nothing has.
    fn receive(&self, session: &mut Session) -> io::Result<bool> {
        match session.read_tls(&mut Socket(&self.socket)) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        }
        let processed = session.process_new_packets();
        // An answer of the session, or the alert that tells the peer the fault. What the socket
        // does not take now follows with the next write.
        let _ = self.send(session);
        processed.map(|_| true).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    /// Sends what is encrypted; false if the socket has no room for all of it.
    fn send(&self, session: &mut Session) -> io::Result<bool> {
        while session.wants_write() {
            match session.write_tls(&mut Socket(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Ends the stream in good order, unless it was broken off. Best effort.
    pub(super) fn end(&self) {
        if self.is_reset.load(Ordering::Relaxed) {
            return;
        }
        let mut session = self.session.lock();
        session.send_close_notify();
        let _ = self.send(&mut session);
        let _ = SockRef::from(&self.socket).shutdown(std::net::Shutdown::Write);
    }

    /// Lets the stream end with a reset when both halves are gone, as far as the system lets it.
    pub(super) fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
        // Best effort: a socket that cannot be told is broken already.
        let _ = self.socket.set_zero_linger();
    }
}

/// Copies what is decrypted. True if there was something, or the peer has ended the stream.
fn take(session: &mut Session, into: &mut ReadBuf<'_>) -> io::Result<bool> {
    let mut taken = false;
    while into.remaining() > 0 {
        let mut reader = session.reader();
        match reader.fill_buf() {
            Ok([]) => return Ok(true),
            Ok(bytes) => {
                let n = bytes.len().min(into.remaining());
                into.put_slice(&bytes[..n]);
                reader.consume(n);
                taken = true;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(taken),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// The socket, as the session wants it: it never blocks.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
