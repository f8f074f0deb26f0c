//! The virtual world in a build without the feature `virtual`: its types have no values.
#![allow(dead_code, reason = "no value of these types is ever made")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The future of a task.
type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Clock, network, chance and tasks of a host at once: there is none.
#[derive(Clone, Debug)]
pub(crate) enum Host {}

/// A connection, a half of it, or a wait for one.
#[derive(Debug)]
pub(crate) enum Stream {}
pub(crate) type ReadHalf = Stream;
pub(crate) type WriteHalf = Stream;
pub(crate) type Listener = Stream;

/// The faults of a call: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFate {
    /// The time before the call sets off.
    pub delay: Duration,
    /// The way in which the call fails.
    pub fault: Option<CallFault>,
}

/// The ways in which a call fails that a test lets fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The grain is not reached.
    Unreachable,
    /// The silo has too much to do.
    Overloaded,
    /// The silo refuses the call.
    Rejected,
    /// The call runs, and its answer is lost.
    LostAnswer,
}

/// The virtual host whose code runs now.
#[inline]
pub(crate) const fn host() -> Option<Host> {
    None
}

impl Host {
    pub(crate) const fn ip(&self) -> IpAddr {
        match *self {}
    }

    pub(crate) const fn clock(&self) -> &Self {
        self
    }

    pub(crate) const fn net(&self) -> &Self {
        self
    }

    pub(crate) const fn calls(&self) -> &Self {
        self
    }

    pub(crate) const fn bits(&self) -> u64 {
        match *self {}
    }

    pub(crate) const fn next_number(&self) -> u64 {
        match *self {}
    }

    pub(crate) const fn mono_nanos(&self) -> u64 {
        match *self {}
    }

    pub(crate) const fn wall_micros(&self) -> u64 {
        match *self {}
    }

    pub(crate) const fn is_true(&self) -> bool {
        match *self {}
    }

    pub(crate) fn meets(&self, _: &str, _: &str) -> CallFate {
        match *self {}
    }

    pub(crate) fn spawn(&self, _: &Handle, _: Boxed) -> JoinHandle<()> {
        match *self {}
    }

    pub(crate) fn listen(&self, _: &Self, _: SocketAddr) -> io::Result<Listener> {
        match *self {}
    }

    pub(crate) async fn connect(&self, _: &Self, _: SocketAddr) -> io::Result<Stream> {
        match *self {}
    }
}

impl Stream {
    pub(crate) fn into_split(self) -> (Self, Self) {
        match self {}
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        match *self {}
    }

    pub(crate) async fn accept(&mut self) -> io::Result<(Self, SocketAddr)> {
        match *self {}
    }

    pub(crate) fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn try_write(&self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn reset(self) {
        match self {}
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}
