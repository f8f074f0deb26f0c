//! Peers with which the store speaks TLS: the root it was given, and no other. There is no Oracle
//! behind it: only refused and accepted handshakes are tested here.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use emmer_store::{StoreError, StoreErrorKind};
use emmer_store_oracle::OracleStore;
use emmer_test_servers::Trouble;
use emmer_test_servers::tls::Certificates;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A listener that takes one client; whether the handshake with it was done. It says nothing
/// afterwards, and hangs up when the receiver is dropped.
fn listener(config: Option<Arc<ServerConfig>>) -> (u16, Receiver<bool>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (done, seen) = sync_channel(1);
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let Some(config) = config else {
            stream.write_all(b"this is no TLS, and longer than the head of a record\n").unwrap();
            return;
        };
        let mut stream: StreamOwned<_, TcpStream> =
            StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
        let is_done =
            stream.conn.complete_io(&mut stream.sock).is_ok() && !stream.conn.is_handshaking();
        let _ = done.send(is_done);
        // The client's side waits for an answer until its patience ends.
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    (port, seen)
}

fn server(folder: &Path) -> Arc<ServerConfig> {
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(folder.join("server.crt"))
            .unwrap()
            .map(Result::unwrap)
            .collect();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(certificates, key).unwrap())
}

async fn refused(port: u16, parameters: &str) -> StoreError {
    let url = format!(
        "oracle://bob:s3cret@127.0.0.1:{port}/emmer?timeout_ms=1000&sslmode=verify-full{parameters}"
    );
    let error = OracleStore::open(&url).await.map(drop).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    error
}

#[tokio::test]
async fn tls_is_spoken_with_whom_the_operator_trusts() {
    let (ours, others) = match (Certificates::make(), Certificates::make()) {
        (Ok(ours), Ok(others)) => (ours, others),
        (Err(trouble @ Trouble::Missing { .. }), _) => return println!("NOT RUN: {trouble}"),
        (ours, others) => panic!("{ours:?} {others:?}"),
    };
    let folder = tempfile::tempdir().unwrap();
    ours.install(folder.path(), "root").unwrap();
    let config = server(folder.path());
    let wallet = |certificates: &Certificates| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(certificates.root(), folder.path().join("ewallet.pem")).unwrap();
        folder
    };
    let (ours, others) = (wallet(&ours), wallet(&others));
    let named = |folder: &Path| format!("&wallet={}", folder.display()).replace('/', "%2F");

    // An unknown root, and another root.
    for parameters in [String::new(), named(others.path())] {
        let (port, seen) = listener(Some(config.clone()));
        let error = refused(port, &parameters).await;
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        assert!(error.detail.contains("certificate"), "{error}");
        assert!(!seen.recv().unwrap());
    }
    // The right root: now only the server's answer is missing.
    let (port, seen) = listener(Some(config));
    let error = refused(port, &named(ours.path())).await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(seen.recv().unwrap());
    // No TLS at all, and no wallet where one was promised.
    let (port, _) = listener(None);
    assert_eq!(refused(port, "").await.kind, StoreErrorKind::Refused);
    let (port, _) = listener(None);
    let error = refused(port, "&wallet=%2Fno%2Fsuch%2Ffolder").await;
    assert!(
        error.kind == StoreErrorKind::Refused && error.detail.contains("ewallet.pem"),
        "{error}"
    );
}
