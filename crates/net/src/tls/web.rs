//! TLS for an HTTP server of the silo's process, by the silo's certificate.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::ClusterId;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::files::{Files, Own};
use super::names::{Names, Role};
use super::sessions::serving;
use super::{Means, Tls, TlsError};

/// Minimum age of the last check before a connection checks the files again.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The encryption of `emmer-telemetry`'s endpoint. Not for people; may change in any version.
#[doc(hidden)]
pub struct WebTls {
    tls: Tls,
    /// Cluster of the clients that may show a certificate; none where the server asks for none.
    clients: Option<(ClusterId, Names)>,
    now: Mutex<(Files, Arc<ServerConfig>, Instant)>,
}

impl WebTls {
    /// Reads the files. The server shows the silo's certificate, and wants none of its readers.
    ///
    /// # Errors
    /// They cannot be used, or are a secret's: nothing but silos and clients understands that.
    pub fn new(tls: Tls) -> Result<Self, TlsError> {
        Self::begin(tls, None)
    }

    /// As [`new`](Self::new), of a server whose readers may show the certificate of a client of
    /// this cluster.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn asking(tls: Tls, cluster: &ClusterId) -> Result<Self, TlsError> {
        let names = Names::new(cluster)?;
        Self::begin(tls, Some((cluster.clone(), names)))
    }

    fn begin(tls: Tls, clients: Option<(ClusterId, Names)>) -> Result<Self, TlsError> {
        let Means::Certificates { own: Some(_), .. } = &tls.means else {
            return Err(TlsError::NoWebCertificate);
        };
        let files = Files::read(&tls)?;
        let config = config(&tls, &files, clients.as_ref())?;
        let now = Mutex::new((files, config, Instant::now()));
        Ok(Self { tls, clients, now })
    }

    /// Encrypts an accepted connection. Files that have changed count from now on; if they cannot
    /// be used those of before do.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = {
            let mut now = self.now.lock();
            let (files, config, looked) = &mut *now;
            if looked.elapsed() >= LOOK_EVERY {
                *looked = Instant::now();
                if let Ok(fresh) = Files::read(&self.tls)
                    && fresh != *files
                    && let Ok(made) = self::config(&self.tls, &fresh, self.clients.as_ref())
                {
                    (*files, *config) = (fresh, made);
                }
            }
            config.clone()
        };
        TlsAcceptor::from(config).accept(stream).await
    }

    /// Returns true if the reader has shown the certificate of a client of the cluster.
    pub fn is_client(&self, stream: &TlsStream<TcpStream>) -> bool {
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        self.clients.as_ref().zip(shown).is_some_and(|((_, names), certificate)| {
            names.shown(certificate).is_ok_and(|shown| shown.role == Role::Client)
        })
    }
}

fn config(
    tls: &Tls,
    files: &Files,
    clients: Option<&(ClusterId, Names)>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let Some(Own::Certificate(chain, key)) = files.certificate(tls)? else {
        return Err(TlsError::NoWebCertificate);
    };
    let unfit =
        |e: rustls::Error| TlsError::Unfit { file: super::files::place(tls), why: e.to_string() };
    let asked = clients.map(|(cluster, _)| files.contents(tls, cluster, Role::Silo)).transpose()?;
    serving(chain, key, asked.as_ref().map(|(believed, _)| &believed[..]))
        .map(Arc::new)
        .map_err(unfit)
}

impl fmt::Debug for WebTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTls").field("tls", &self.tls).finish_non_exhaustive()
    }
}
