//! The two ends of a connection.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::net::Net;
use crate::pipe::{Found, Pipe};

/// A connection, as the network knows it: what each end sends.
#[derive(Debug)]
pub(crate) struct Link {
    ends: [SocketAddr; 2],
    pipes: [Mutex<Pipe>; 2],
    closed: [AtomicBool; 2],
}

impl Link {
    pub(crate) fn new(ends: [SocketAddr; 2]) -> Self {
        Self { ends, pipes: Default::default(), closed: Default::default() }
    }

    pub(crate) fn ips(&self) -> [IpAddr; 2] {
        self.ends.map(|end| end.ip())
    }

    pub(crate) const fn ends(&self) -> [SocketAddr; 2] {
        self.ends
    }

    pub(crate) fn joins(&self, a: IpAddr, b: IpAddr) -> bool {
        let ips = self.ips();
        ips == [a, b] || ips == [b, a]
    }

    pub(crate) fn sides_of(&self, ip: IpAddr) -> impl Iterator<Item = usize> {
        let ips = self.ips();
        (0..2).filter(move |side| ips[*side] == ip)
    }

    /// Pipe of `side`.
    pub(crate) fn pipe(&self, side: usize) -> &Mutex<Pipe> {
        &self.pipes[side]
    }

    /// `side` closes: the other end reads the end, or a reset when bytes were left unread.
    pub(crate) fn close(&self, side: usize, due: Instant) {
        self.closed[side].store(true, Ordering::Relaxed);
        let unread = self.pipes[1 - side].lock().deafen();
        let mut mine = self.pipes[side].lock();
        if unread { mine.break_now() } else { mine.end(due) }
    }

    /// Returns true if an end is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.closed.iter().any(|closed| !closed.load(Ordering::Relaxed))
    }

    pub(crate) fn forget(&self) {
        self.pipes.iter().for_each(|pipe| pipe.lock().forget());
    }

    pub(crate) fn break_now(&self) {
        self.pipes.iter().for_each(|pipe| pipe.lock().break_now());
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.ends[0], self.ends[1])
    }
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    link: Arc<Link>,
    side: usize,
    net: Arc<Net>,
    /// The wait for bytes that are on their way here.
    arrival: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl End {
    /// Returns true if a read finds something; the task is woken when it does.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut arrival = self.arrival.lock();
        let found = self.link.pipe(1 - self.side).lock().look(Instant::now(), cx.waker());
        match found {
            Found::Now => Poll::Ready(()),
            Found::Nothing => {
                *arrival = None;
                Poll::Pending
            }
            Found::At(due) => {
                let sleep = arrival.get_or_insert_with(|| Box::pin(sleep_until(due)));
                if sleep.deadline() != due {
                    sleep.as_mut().reset(due);
                }
                sleep.as_mut().poll(cx)
            }
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_readable(cx));
        Poll::Ready(self.link.pipe(1 - self.side).lock().read(Instant::now(), into))
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.link.pipe(self.side).lock().room()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.net.taken(bytes.len().min(room));
        let due = self.net.arrives(&self.link, self.side);
        self.net.event("write", &bytes[..taken]);
        self.link.pipe(self.side).lock().send(&bytes[..taken], due);
        Ok(taken)
    }

    fn poll_writable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.link.pipe(self.side).lock();
        match pipe.room() {
            Ok(0) => {
                pipe.wait_for_room(cx.waker());
                Poll::Pending
            }
            // An error shows up in the next write.
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_writable(cx))?;
        Poll::Ready(self.try_write(bytes))
    }

    fn end(&self) {
        let due = self.net.arrives(&self.link, self.side);
        self.link.pipe(self.side).lock().end(due);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let due = self.net.arrives(&self.link, self.side);
        self.link.close(self.side, due);
    }
}

/// A connection of a host.
#[derive(Debug)]
pub struct Stream(Arc<End>);

impl Stream {
    pub(crate) fn new(link: Arc<Link>, side: usize, net: Arc<Net>) -> Self {
        Self(Arc::new(End { link, side, net, arrival: Mutex::new(None) }))
    }

    /// The two halves, for two tasks.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (ReadHalf(self.0.clone()), WriteHalf(Some(self.0)))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.end();
        Poll::Ready(Ok(()))
    }
}

/// The reading half.
#[derive(Debug)]
pub struct ReadHalf(Arc<End>);

impl ReadHalf {
    /// Returns true if a read finds something; the task is woken when it does.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_readable(cx).map(Ok)
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    /// `WouldBlock` without room; else the connection is lost.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    /// Returns true if there is room to write; the task is woken when there is.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_writable(cx)
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, into)
    }
}

/// The writing half. Dropped, it sends the orderly end.
#[derive(Debug)]
pub struct WriteHalf(Option<Arc<End>>);

impl WriteHalf {
    /// Writes what there is room for.
    ///
    /// # Errors
    /// `WouldBlock` without room; else the connection is lost.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.as_ref().map_or(Ok(0), |end| end.try_write(bytes))
    }

    /// Breaks the connection: the other end reads a reset, not an end.
    pub fn reset(mut self) {
        if let Some(end) = self.0.take() {
            end.link.break_now();
        }
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end.end();
        }
    }
}
