//! The console over HTTPS, and visitors that show a certificate.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use emmer::certs::{Authority, Issued, Wanted};
use emmer::console::{Console, ConsoleOptions};
use emmer::prelude::*;
use emmer::tls::Tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The answer to a visitor that believes `authority` and shows `own`.
async fn visit(
    address: SocketAddr,
    authority: &Authority,
    own: Option<&Issued>,
) -> std::io::Result<String> {
    let read = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(read(&authority.certificate())).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![read(&own.certificate)], key).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("silo.dev.emmer").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let request = format!("GET /api/me HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_cluster_are_let_in_by_their_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new("ours").unwrap(), Authority::new("theirs").unwrap());
    let silo = ours.issue(&Wanted::silo("dev")).unwrap();
    let files = [
        ("authority.pem", ours.certificate()),
        ("silo.pem", silo.certificate.clone()),
        ("silo.key", silo.key.clone()),
    ];
    let paths = files.map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    });
    let [authority, certificate, key] = paths;
    let mut options = ConsoleOptions::default();
    // As one that other hosts reach: no token is needed with certificates.
    options.address = SocketAddr::from(([127, 0, 0, 1], 0));
    options.acts = true;
    let cluster = ClusterId::new("dev").unwrap();
    options.tls = Some((Tls::new(authority, certificate, key), cluster));
    let console = Console::bind(options).await.unwrap();
    let address = console.address();
    let running = Silo::builder().store("memory://console-encrypted").start().await.unwrap();
    let _serving = console.serve(running.admin());

    let client = ours.issue(&Wanted::client("dev")).unwrap();
    let answer = visit(address, &ours, Some(&client)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"acts\":true"), "{answer}");
    // Without one, with that of another cluster, and with a silo's.
    let other = ours.issue(&Wanted::client("prod")).unwrap();
    for own in [None, Some(&other), Some(&silo)] {
        let answer = visit(address, &ours, own).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    let stranger = theirs.issue(&Wanted::client("dev")).unwrap();
    let refused = visit(address, &ours, Some(&stranger)).await;
    assert!(refused.is_err() || !refused.unwrap().contains("200 OK"));
}
