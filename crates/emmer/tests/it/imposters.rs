//! Processes that say to be a silo of the cluster, or a client, and are not.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use bytes::BytesMut;
use emmer::certs::Wanted;
use emmer::options::Limits;
use emmer::prelude::*;
use emmer::store::SystemStore;
use emmer::tables::{GrainId, SiloAddress};
use emmer::tls::Tls;
use emmer_wire::{
    ConnectionLimits, FrameKind, HANDSHAKE_BYTES_MAX, Hello, PeerKind, Refuse, RefuseCode,
    SEAL_EXPORTER, Seal, channel, decode_frame, encode_hello, encode_system,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::common::{Counter, settle, store};
use crate::strangers::Message;
use crate::tls::{Authority, client, silo};

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection, and what TLS exports for it.
pub(crate) type Connected = (Box<dyn Stream>, Option<[u8; 32]>);

/// Connects to a port, with the files `FILE.pem` and `FILE` of an authority if there are some.
pub(crate) async fn connect(port: SocketAddr, shows: Option<(&Authority, &str)>) -> Connected {
    let stream = TcpStream::connect(port).await.unwrap();
    let Some((authority, file)) = shows else { return (Box::new(stream), None) };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file("authority.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = CertificateDer::pem_file_iter(authority.file(&format!("{file}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.file(file)).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    config.alpn_protocols = vec![b"emmer/1".to_vec()];
    let name = ServerName::try_from("silo.dev.emmer").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let exported = stream.get_ref().1.export_keying_material([0; 32], SEAL_EXPORTER, None);
    (Box::new(stream), Some(exported.unwrap()))
}

/// A seal that is good for the connection, with an unknown key.
fn seal(silo: SiloAddress, exported: &[u8; 32]) -> Seal {
    let pair = Ed25519KeyPair::generate().unwrap();
    let signature = pair.sign(&Seal::text(silo, true, exported));
    Seal {
        key: pair.public_key().as_ref().try_into().unwrap(),
        signature: signature.as_ref().try_into().unwrap(),
    }
}

/// Says that it is `who`, and that the grains of this silo have other activations. Returns how it
/// was refused, if it was told.
async fn evict_all(
    (mut stream, exported): Connected,
    who: PeerKind,
    grains: &[GrainId],
) -> Option<Refuse> {
    let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
    let mut out = BytesMut::new();
    let hello = Hello::new(ClusterId::new("dev").unwrap(), who, None, limits);
    let seal = match who {
        PeerKind::Silo(silo) => exported.map(|exported| seal(silo, &exported)),
        _ => None,
    };
    encode_hello(&mut out, &Hello { seal, ..hello });
    for grain in grains {
        for activation in 0..200 {
            let evict = Message::Evict { grain, activation };
            encode_system(&mut out, channel::DIRECTORY, &evict).unwrap();
        }
    }
    // No frame at all: a silo that has read everything before it ends the connection.
    out.extend_from_slice(&[0; 4]);
    // One that has refused the Hello does not read the rest.
    let _ = stream.write_all(&out).await;
    let _ = stream.flush().await;
    let mut heard = BytesMut::new();
    while stream.read_buf(&mut heard).await.is_ok_and(|n| n > 0) {}
    let first = decode_frame(&mut heard, HANDSHAKE_BYTES_MAX).unwrap()?;
    (first.kind == FrameKind::Refuse).then(|| Refuse::decode(&first.payload).unwrap())
}

/// Ten grains on one silo, and the other silo.
async fn ten_grains(silos: &[Silo]) -> (Vec<GrainId>, SiloAddress) {
    let (host, other) = (silos[0].address(), silos[1].address());
    let mut grains = Vec::new();
    for key in 0_u32.. {
        let counter = silos[0].grains().grain::<dyn Counter>(key.to_string());
        counter.total().await.unwrap();
        if counter.silo().await.unwrap() == host.to_string() {
            grains.push(counter.grain_id().clone());
        }
        if grains.len() == 10 {
            break;
        }
    }
    (grains, other)
}

async fn pair(store: &Arc<dyn SystemStore>, tls: [Option<Tls>; 2]) -> [Silo; 2] {
    let [first, second] = tls;
    let silos = [silo(store, first).await, silo(store, second).await];
    settle(&silos, 2).await;
    silos
}

/// The deactivations of a silo that were not asked for.
fn evicted(silo: &Silo) -> u64 {
    let statistics = silo.statistics();
    statistics.activated - statistics.activations
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_says_it_is_another_silo_evicts_no_grain() {
    let authority = Authority::new("ours");
    let here = Wanted::silo("dev").address([127, 0, 0, 1]);
    let tls = |file: &str| Some(authority.tls_of(file, &here));
    let store = store();
    let silos = pair(&store, [tls("a"), tls("b")]).await;
    let (grains, other) = ten_grains(&silos).await;
    let port = silos[0].address().endpoint();
    drop(authority.tls("client"));
    drop(authority.tls_of("elsewhere", &Wanted::silo("dev").address([127, 0, 0, 9])));
    let says = PeerKind::Silo(other);
    let attacks = [
        (None, says, Some("this port accepts encrypted connections only (TLS)".to_owned())),
        (
            Some("client"),
            says,
            Some(format!("no certificate or key of a silo was shown for {other}")),
        ),
        (
            Some("elsewhere"),
            says,
            Some(format!(
                "its certificate is for a silo at 127.0.0.9, and it says that it is {other}"
            )),
        ),
        // All that the other silo has, but its process.
        (Some("b"), says, Some(format!("another process is {other}"))),
        (Some("client"), PeerKind::Client(7), None),
    ];
    for (file, says, told) in attacks {
        let stream = connect(port, file.map(|file| (&authority, file))).await;
        let refused = evict_all(stream, says, &grains).await.unwrap();
        match told {
            Some(told) => {
                assert_eq!(refused.code, RefuseCode::Insecure);
                assert_eq!(refused.reason, told);
            }
            None => assert_eq!(refused.code, RefuseCode::NotAGateway),
        }
        assert_eq!(evicted(&silos[0]), 0, "{file:?}");
    }
    // A client at the gateway says what only silos say.
    let gateway = connect(silos[0].gateway().unwrap(), Some((&authority, "client"))).await;
    assert_eq!(evict_all(gateway, PeerKind::Client(7), &grains).await, None, "it was let in");
    assert_eq!(evicted(&silos[0]), 0);
    assert!(silos[0].statistics().activations >= 10);
}

/// Shows the attack on a cluster without TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tls_the_same_process_evicts_them() {
    let store = store();
    let silos = pair(&store, [None, None]).await;
    let (grains, other) = ten_grains(&silos).await;
    let stream = connect(silos[0].address().endpoint(), None).await;
    assert_eq!(evict_all(stream, PeerKind::Silo(other), &grains).await, None);
    while evicted(&silos[0]) < 10 {
        tokio::task::yield_now().await;
    }
}

/// The bytes of a client are recorded on the way: they cannot be read, and another process gains
/// nothing by sending them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_is_said_again_opens_nothing() {
    const PRIVATE: &str = "the key of a grain that nobody shall read";
    let authority = Authority::new("ours");
    let store = store();
    let silo = silo(&store, Some(authority.tls("silo"))).await;
    let gateway = silo.gateway().unwrap();
    // A proxy listens to all that an honest client says.
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = proxy.local_addr().unwrap();
    let recorded = tokio::spawn(async move {
        let (mut client, _) = proxy.accept().await.unwrap();
        let mut silo = TcpStream::connect(gateway).await.unwrap();
        let (mut said, mut buffer, mut heard) = (Vec::new(), [0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                n = client.read(&mut buffer) => match n {
                    Ok(n @ 1..) => {
                        said.extend_from_slice(&buffer[..n]);
                        silo.write_all(&buffer[..n]).await.unwrap();
                    }
                    _ => return said,
                },
                n = silo.read(&mut heard) => match n {
                    Ok(n @ 1..) => client.write_all(&heard[..n]).await.unwrap(),
                    _ => return said,
                },
            }
        }
    });
    let honest = Client::builder().gateways([at.to_string()]).tls(authority.tls("client"));
    let honest = honest.connect().await.unwrap();
    assert_eq!(honest.grain::<dyn Counter>(PRIVATE).add(1).await.unwrap(), 1);
    honest.close().await;
    let said = recorded.await.unwrap();
    assert!(said.len() > 500);
    assert!(!said.windows(PRIVATE.len()).any(|part| part == PRIVATE.as_bytes()), "it can be read");
    for port in [gateway, silo.address().endpoint()] {
        let mut again = TcpStream::connect(port).await.unwrap();
        let _ = again.write_all(&said).await;
        let mut heard = Vec::new();
        let _ = again.read_to_end(&mut heard).await;
        // The silo's own part of the handshake, and no Welcome, encrypted or not.
        assert!(heard.len() < 4_096, "{}", heard.len());
    }
    let control = client(&store, Some(authority.tls("client"))).await;
    let counter = control.grain::<dyn Counter>(PRIVATE);
    assert_eq!(counter.add(1).await.unwrap(), 2, "the call ran once");
}

/// A client's certificate and the files of a silo do not open each other's ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_silos_port_is_told_so() {
    let authority = Authority::new("ours");
    let silo = silo(&store(), Some(authority.tls("silo"))).await;
    let port = silo.address().endpoint().to_string();
    let lost = Client::builder().gateways([port]).wait_for_gateway("0s");
    let told = lost.tls(authority.tls("client")).connect().await.err().unwrap().to_string();
    assert!(told.ends_with("this is a silo's port; clients connect to its gateway"), "{told}");
    // The files of a silo are not a client's.
    let told = Client::builder().tls(authority.tls("silo")).gateways(["127.0.0.1:1"]);
    let told = told.connect().await.err().unwrap().to_string();
    assert!(told.ends_with("it is a silo's certificate, and this is a client"), "{told}");
    fs::write(authority.file("silo"), "no key").unwrap();
    let broken = Silo::builder().store(store()).tls(Tls::new(
        authority.file("authority.pem"),
        authority.file("silo.pem"),
        authority.file("silo"),
    ));
    let told = broken.start().await.err().unwrap().to_string();
    assert!(told.contains("expected a private key in PEM"), "{told}");
}
