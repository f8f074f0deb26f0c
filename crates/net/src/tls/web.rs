//! TLS for an HTTP server of the silo's process, by the silo's certificate.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::files::{Files, Own};
use super::sessions::serving;
use super::{Means, Tls, TlsError};

/// Minimum age of the last check before a connection checks the files again.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The encryption of `emmer-telemetry`'s endpoint. Not for people; may change in any version.
#[doc(hidden)]
pub struct WebTls {
    tls: Tls,
    now: Mutex<(Files, Arc<ServerConfig>, Instant)>,
}

impl WebTls {
    /// Reads the files. The server shows the silo's certificate, and wants none of its readers.
    ///
    /// # Errors
    /// They cannot be used, or are a secret's: nothing but silos and clients understands that.
    pub fn new(tls: Tls) -> Result<Self, TlsError> {
        let Means::Certificates { own: Some(_), .. } = &tls.means else {
            return Err(TlsError::NoWebCertificate);
        };
        let files = Files::read(&tls)?;
        let config = config(&tls, &files)?;
        let now = Mutex::new((files, config, Instant::now()));
        Ok(Self { tls, now })
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
                    && let Ok(made) = self::config(&self.tls, &fresh)
                {
                    (*files, *config) = (fresh, made);
                }
            }
            config.clone()
        };
        TlsAcceptor::from(config).accept(stream).await
    }
}

fn config(tls: &Tls, files: &Files) -> Result<Arc<ServerConfig>, TlsError> {
    let Some(Own::Certificate(chain, key)) = files.certificate(tls)? else {
        return Err(TlsError::NoWebCertificate);
    };
    let unfit =
        |e: rustls::Error| TlsError::Unfit { file: super::files::place(tls), why: e.to_string() };
    serving(chain, key).map(Arc::new).map_err(unfit)
}

impl fmt::Debug for WebTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTls").field("tls", &self.tls).finish_non_exhaustive()
    }
}
