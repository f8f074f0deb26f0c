//! Sockets: the kernel's, encrypted or not, or a virtual world's.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

#[cfg(feature = "tls")]
use super::secured::Secured;
use super::{Spawner, elsewhere};

/// The kernels say so after this time without other bytes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A connection.
#[derive(Debug)]
pub(crate) enum TcpStream {
    Kernel(tokio::net::TcpStream),
    #[cfg(feature = "tls")]
    Secured(std::sync::Arc<Secured>),
    Virtual(elsewhere::Stream),
}

impl TcpStream {
    /// Connects to `to`.
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub(crate) async fn connect(to: SocketAddr) -> io::Result<Self> {
        if let Some(host) = elsewhere::host() {
            return host.net().connect(&host, to).await.map(Self::Virtual);
        }
        tokio::net::TcpStream::connect(to).await.map(Self::Kernel)
    }

    /// Returns true if it cannot be read on the way.
    pub(crate) const fn is_private(&self) -> bool {
        !matches!(self, Self::Kernel(_))
    }

    /// The address of this end; none where it is not known.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.local_addr().ok(),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.socket().local_addr().ok(),
            Self::Virtual(_) => elsewhere::host().map(|h| SocketAddr::new(h.ip(), 0)),
        }
    }

    /// Sends small frames at once.
    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_nodelay(true),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.socket().set_nodelay(true),
            Self::Virtual(_) => Ok(()),
        }
    }

    /// Turns TCP keepalive on, so that no translator of addresses forgets the connection, and a
    /// dead one breaks.
    pub(crate) fn keep_alive(&self) {
        let socket = match self {
            Self::Kernel(stream) => SockRef::from(stream),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => SockRef::from(stream.socket()),
            Self::Virtual(_) => return,
        };
        let often = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        // Best effort: without it a silent connection is forgotten sooner.
        let _ = socket.set_tcp_keepalive(&often);
    }

    /// Moves the stream to the runtime of `spawner`.
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub(crate) fn move_to(self, spawner: &Spawner) -> io::Result<Self> {
        match self {
            Self::Kernel(stream) => {
                let stream = stream.into_std()?;
                spawner.within(|| tokio::net::TcpStream::from_std(stream)).map(Self::Kernel)
            }
            #[cfg(feature = "tls")]
            Self::Secured(stream) => {
                let (socket, session) = Secured::into_parts(stream)?;
                let socket = socket.into_std()?;
                let socket = spawner.within(|| tokio::net::TcpStream::from_std(socket))?;
                Ok(Self::Secured(Secured::new(socket, session)))
            }
            Self::Virtual(stream) => Ok(Self::Virtual(stream)),
        }
    }

    /// The two halves.
    #[allow(unreachable_code, reason = "without virtual worlds there is no virtual stream")]
    pub(crate) fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Kernel(stream) => {
                let (reading, writing) = stream.into_split();
                (ReadHalf::Kernel(reading), WriteHalf::Kernel(writing))
            }
            #[cfg(feature = "tls")]
            Self::Secured(stream) => {
                (ReadHalf::Secured(stream.clone()), WriteHalf::Secured(SecuredHalf(stream)))
            }
            Self::Virtual(stream) => {
                let (reading, writing) = stream.into_split();
                (ReadHalf::Virtual(reading), WriteHalf::Virtual(writing))
            }
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_read(cx, into),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.poll_read(cx, into),
            Self::Virtual(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.poll_write(cx, bytes),
            Self::Virtual(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.poll_sent(cx),
            Self::Virtual(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.poll_sent(cx).map_ok(|()| stream.end()),
            Self::Virtual(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The half that reads. It can write as well: the driver of a connection does both.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    Kernel(OwnedReadHalf),
    #[cfg(feature = "tls")]
    Secured(std::sync::Arc<Secured>),
    Virtual(elsewhere::ReadHalf),
}

impl ReadHalf {
    /// Returns true if a read finds something; the task is woken when it does.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Kernel(half) => half.as_ref().poll_read_ready(cx),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.poll_read_ready(cx),
            Self::Virtual(half) => half.poll_read_ready(cx),
        }
    }

    /// Writes what there is room for.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(half) => half.as_ref().try_write(bytes),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.try_write(bytes),
            Self::Virtual(half) => half.try_write(bytes),
        }
    }

    /// Returns true if there is room to write; the task is woken when there is.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Kernel(half) => half.as_ref().poll_write_ready(cx),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.poll_write_ready(cx),
            Self::Virtual(half) => half.poll_write_ready(cx),
        }
    }

    /// Waits until all written bytes have left this process. Only encrypted bytes wait in it.
    #[cfg_attr(not(feature = "tls"), expect(clippy::unused_self, reason = "nothing waits"))]
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        #[cfg(feature = "tls")]
        if let Self::Secured(stream) = self {
            return stream.poll_sent(cx);
        }
        let _ = cx;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(half) => Pin::new(half).poll_read(cx, into),
            #[cfg(feature = "tls")]
            Self::Secured(stream) => stream.poll_read(cx, into),
            Self::Virtual(half) => Pin::new(half).poll_read(cx, into),
        }
    }
}

/// The half that writes. Dropped, it ends the stream in good order.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    Kernel(OwnedWriteHalf),
    #[cfg(feature = "tls")]
    Secured(SecuredHalf),
    Virtual(elsewhere::WriteHalf),
}

impl WriteHalf {
    /// Writes what there is room for.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(half) => half.try_write(bytes),
            #[cfg(feature = "tls")]
            Self::Secured(SecuredHalf(stream)) => stream.try_write(bytes),
            Self::Virtual(half) => half.try_write(bytes),
        }
    }

    /// Returns true if something that was written has not left this process.
    pub(crate) fn is_unsent(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Self::Secured(SecuredHalf(stream)) => stream.is_unsent(),
            _ => false,
        }
    }

    /// Ends the stream with a reset, not in good order, as far as the system lets it.
    pub(crate) fn reset(self) {
        match self {
            #[cfg(feature = "tls")]
            Self::Secured(half) => half.0.reset(),
            Self::Kernel(half) => {
                // Best effort: a socket that cannot be told is broken already.
                let _ = half.as_ref().set_zero_linger();
                // Dropped as usual it would send the orderly end first.
                half.forget();
            }
            Self::Virtual(half) => half.reset(),
        }
    }
}

/// Dropped, it ends the stream in good order.
#[cfg(feature = "tls")]
#[derive(Debug)]
pub(crate) struct SecuredHalf(std::sync::Arc<Secured>);

#[cfg(feature = "tls")]
impl Drop for SecuredHalf {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// An open port.
#[derive(Debug)]
pub struct TcpListener(Listening);

#[derive(Debug)]
enum Listening {
    Kernel(tokio::net::TcpListener),
    Virtual(elsewhere::Listener),
}

impl TcpListener {
    /// Listens at `address`, whose port may be 0 for any.
    ///
    /// # Errors
    /// The port is taken, or the operating system refuses it.
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        if let Some(host) = elsewhere::host() {
            return host.net().listen(&host, address).map(|open| Self(Listening::Virtual(open)));
        }
        let open = tokio::net::TcpListener::bind(address).await;
        open.map(|open| Self(Listening::Kernel(open)))
    }

    /// Address where it listens.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Listening::Kernel(listener) => listener.local_addr(),
            Listening::Virtual(listener) => Ok(listener.local_addr()),
        }
    }

    /// The next connection, and the address that it comes from.
    pub(crate) async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        match &mut self.0 {
            Listening::Kernel(listener) => {
                listener.accept().await.map(|(stream, from)| (TcpStream::Kernel(stream), from))
            }
            Listening::Virtual(listener) => {
                listener.accept().await.map(|(stream, from)| (TcpStream::Virtual(stream), from))
            }
        }
    }
}

#[cfg(test)]
impl From<tokio::net::TcpStream> for TcpStream {
    fn from(stream: tokio::net::TcpStream) -> Self {
        Self::Kernel(stream)
    }
}
