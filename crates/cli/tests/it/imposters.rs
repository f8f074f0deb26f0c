//! Processes that speak TLS and Emmer's protocol, and lie about who they are. A silo process tells
//! them so, tells its operator, and continues.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use emmer::certs::Wanted;
use emmer::options::Limits;
use emmer::tables::ClusterId;
use emmer_wire::{
    ConnectionLimits, FrameKind, HANDSHAKE_BYTES_MAX, Hello, PeerKind, Refuse, decode_frame,
    encode_hello,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore};

use crate::harness::{members, wait_status};
use crate::tls::{Folder, end, start};

/// The words of a silo to one that dialled it.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Welcome,
    /// An alert of TLS.
    Alert(AlertDescription),
    /// A frame that says why.
    Refused(String),
    Nothing,
}

fn refused(why: &str) -> Told {
    Told::Refused(why.to_owned())
}

/// A socket that records its bytes.
struct Recorder {
    socket: TcpStream,
    sent: Vec<u8>,
}

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.socket.write(bytes)?;
        self.sent.extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.socket.flush()
    }
}

impl Read for Recorder {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.socket.read(into)
    }
}

fn hello(cluster: &str, peer: PeerKind) -> BytesMut {
    let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
    let mut out = BytesMut::new();
    encode_hello(&mut out, &Hello::new(ClusterId::new(cluster).unwrap(), peer, None, limits));
    out
}

/// Says a Hello, and hears the first frame.
fn greet(stream: &mut (impl Read + Write), hello: &[u8]) -> Told {
    let sent = stream.write_all(hello).and_then(|()| stream.flush());
    let mut heard = BytesMut::new();
    loop {
        if let Some(frame) = decode_frame(&mut heard, HANDSHAKE_BYTES_MAX).unwrap() {
            return match frame.kind {
                FrameKind::Welcome => Told::Welcome,
                _ => Told::Refused(Refuse::decode(&frame.payload).unwrap().reason),
            };
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return Told::Nothing,
            Ok(n) => heard.extend_from_slice(&bytes[..n]),
            Err(error) => {
                return alert(&error).or_else(|| alert(&sent.err()?)).unwrap_or(Told::Nothing);
            }
        }
    }
}

fn alert(error: &std::io::Error) -> Option<Told> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(Told::Alert(*alert)),
        other => panic!("{other}"),
    }
}

/// Dials a port, believes `ours/authority.pem`, and shows `FILE.pem` if there is one. Returns the
/// sent bytes, too.
fn dial(folder: &Folder, port: &str, file: Option<&str>, hello: &[u8]) -> (Told, Vec<u8>) {
    let mut roots = RootCertStore::empty();
    let authority = folder.file("ours").join("authority.pem");
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match file {
        None => config.with_no_client_auth(),
        Some(file) => {
            let file = |end| folder.file(&format!("{file}.{end}"));
            let chain = CertificateDer::pem_file_iter(file("pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
            config.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"emmer/1".to_vec()];
    let name = ServerName::try_from("silo.test.emmer").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = Recorder { socket: TcpStream::connect(port).unwrap(), sent: Vec::new() };
    let told = greet(&mut rustls::Stream::new(&mut tls, &mut socket), hello);
    (told, socket.sent)
}

#[test]
fn one_that_cannot_prove_what_it_says_is_told_so_and_so_is_the_operator() {
    let folder = Folder::new();
    folder.certs("ours", &[]);
    folder.certs("ours", &["--client", "billing"]);
    folder.certs("theirs", &[]);
    folder.issue("old", &Wanted::silo("test").until(SystemTime::now() - Duration::from_secs(1)));
    folder.issue("web", &Wanted::named("web.test.example"));
    folder.issue("bank", &Wanted::silo("bank"));
    let flags = ["--log".to_owned(), "debug".to_owned()];
    let silo = start(&folder, &[&folder.shows("ours", "silo")[..], &flags].concat());
    let (port, gateway) = (silo.endpoint().to_owned(), silo.gateway.to_string());

    let says_silo = hello("test", PeerKind::Silo("127.0.0.1:9:9".parse().unwrap()));
    let says_client = hello("test", PeerKind::Client(7));
    let no_silo = "no certificate or key of a silo was shown for 127.0.0.1:9:9";
    let no_name = "the certificate names no silo or client of this cluster";
    let no_gateway = "this is a silo's port; clients connect to its gateway";
    let silos_only = [
        ("ours/old", Told::Alert(AlertDescription::CertificateExpired), "certificate has expired"),
        ("theirs/silo", Told::Alert(AlertDescription::UnknownCA), "authority that is not believed"),
        ("ours/web", refused(no_name), no_name),
        ("ours/bank", refused(no_name), no_name),
        ("ours/billing", refused(no_silo), no_silo),
    ];
    let mut logged = Vec::new();
    for (file, told, words) in silos_only {
        for port in [&port, &gateway] {
            assert_eq!(dial(&folder, port, Some(file), &says_silo).0, told, "{file}");
        }
        logged.push(words);
    }
    // The very files of the silo: its process is another one.
    let no_seal = "it does not prove that it is 127.0.0.1:9:9: no seal";
    assert_eq!(dial(&folder, &port, Some("ours/silo"), &says_silo).0, refused(no_seal));
    logged.push(no_seal);
    let nothing = Told::Alert(AlertDescription::CertificateRequired);
    assert_eq!(dial(&folder, &port, None, &says_silo).0, nothing);
    logged.push("the peer shows no certificate");
    assert_eq!(dial(&folder, &port, Some("ours/billing"), &says_client).0, refused(no_gateway));
    logged.push(no_gateway);
    let bank = hello("bank", PeerKind::Client(7));
    let other_cluster = refused("this is cluster \"test\", not \"bank\"");
    assert_eq!(dial(&folder, &gateway, Some("ours/billing"), &bank).0, other_cluster);
    logged.push("this is cluster");
    let plain = "this port accepts encrypted connections only (TLS)";
    assert_eq!(greet(&mut TcpStream::connect(&port).unwrap(), &says_silo), refused(plain));
    logged.push(plain);

    // An honest client; its bytes said again, and the half of them.
    let (told, sent) = dial(&folder, &gateway, Some("ours/billing"), &says_client);
    assert_eq!(told, Told::Welcome);
    for bytes in [&sent[..], &sent[..sent.len() / 2], &sent[..100]] {
        let mut again = TcpStream::connect(&gateway).unwrap();
        again.write_all(bytes).unwrap();
        again.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        let _ = again.read_to_end(&mut heard);
        // The silo's own part of the handshake at most: a Welcome comes behind it.
        assert!(heard.len() < 4096, "{}", heard.len());
    }
    assert_eq!(dial(&folder, &gateway, Some("ours/billing"), &says_client).0, Told::Welcome);

    logged.push("belongs to another connection");
    logged.push("the peer closed the connection during the TLS handshake");

    wait_status(&folder.store(), &silo.address, "Active");
    assert_eq!(members(&folder.store(), "test")["silos"].as_array().unwrap().len(), 1);
    let said = end(silo);
    for words in logged {
        let told = |line: &str| line.contains("refused a connection") && line.contains(words);
        assert!(said.lines().any(told), "{words}: {said}");
    }
}
