//! The endpoint over HTTPS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use emmer::certs::{self, Authority, Wanted};
use emmer::prelude::*;
use emmer::tls::{Tls, TlsError};
use emmer_telemetry::Endpoint;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

fn file(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

fn make(folder: &Path, authority: &Authority) {
    let silo = authority.issue(&Wanted::silo("dev")).unwrap();
    file(folder, "authority.pem", &authority.certificate());
    file(folder, "silo.pem", &silo.certificate);
    file(folder, "silo.key", &silo.key);
}

fn tls(folder: &Path) -> Tls {
    let [authority, certificate, key] =
        ["authority.pem", "silo.pem", "silo.key"].map(|name| folder.join(name));
    Tls::new(authority, certificate, key)
}

/// Returns the answer to a scraper that believes this authority and expects the silo's name.
async fn scrape(address: SocketAddr, authority: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("silo.dev.emmer").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_endpoint_shows_the_silos_certificate_and_serves_no_plain_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("ours").unwrap(), Authority::new("theirs").unwrap());
    make(folder.path(), &authority);
    let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let endpoint = endpoint.tls(tls(folder.path())).unwrap();
    let address = endpoint.address();
    let silo = Silo::builder().store("memory://encrypted").observer(endpoint).on_terminate(|_| {});
    let silo = silo.start().await.unwrap();
    let answer = scrape(address, &authority.certificate()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ready\n"), "{answer}");
    scrape(address, &other.certificate()).await.unwrap_err();
    // A plain reader gets nothing, and delays no other reader.
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard).await;
    assert!(!String::from_utf8_lossy(&heard).contains("HTTP"), "{heard:?}");
    assert!(scrape(address, &authority.certificate()).await.unwrap().contains("200"));
    silo.stop().await.unwrap();
}

#[tokio::test]
async fn a_secret_is_none_of_a_scraper() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "secret", &certs::secret().unwrap());
    let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let told = endpoint.tls(Tls::secret(folder.path().join("secret"))).unwrap_err();
    assert_eq!(told, TlsError::NoWebCertificate);
}
