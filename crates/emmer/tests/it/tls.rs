//! Silos and clients over encrypted connections, and those that are not let in.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer::certs::{self, Wanted};
use emmer::errors::StartError;
use emmer::options::ClientBuilder;
use emmer::prelude::*;
use emmer::store::SystemStore;
use emmer::tls::{Tls, TlsRollout};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Counter, CounterGrain, settle, store};

/// An authority, and a folder for its files.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: certs::Authority,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let issuer = certs::Authority::new(name).unwrap();
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("authority.pem"), issuer.certificate()).unwrap();
        Self { folder, issuer }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The TLS of a silo or a client of the cluster `dev`.
    pub(crate) fn tls(&self, role: &str) -> Tls {
        self.tls_of(role, &Wanted::named(format!("{role}.dev.emmer")))
    }

    pub(crate) fn tls_of(&self, file: &str, wanted: &Wanted) -> Tls {
        let (certificate, key) = (self.file(&format!("{file}.pem")), self.file(file));
        let issued = self.issuer.issue(wanted).unwrap();
        fs::write(&certificate, issued.certificate).unwrap();
        fs::write(&key, issued.key).unwrap();
        Tls::new(self.file("authority.pem"), certificate, key)
    }
}

pub(crate) async fn silo(store: &Arc<dyn SystemStore>, tls: Option<Tls>) -> Silo {
    let silo = Silo::builder()
        .store(store.clone())
        .gateway("127.0.0.1:0")
        .host::<dyn Counter, CounterGrain>()
        .on_terminate(|_| {});
    let silo = match tls {
        Some(tls) => silo.tls(tls),
        None => silo,
    };
    silo.start().await.unwrap()
}

fn describe(store: &Arc<dyn SystemStore>, tls: Option<Tls>) -> ClientBuilder {
    let client = Client::builder().store(store.clone());
    match tls {
        Some(tls) => client.tls(tls),
        None => client,
    }
}

pub(crate) async fn client(store: &Arc<dyn SystemStore>, tls: Option<Tls>) -> Client {
    describe(store, tls).connect().await.unwrap()
}

/// Returns the error of a client that is not let in.
async fn refused(store: &Arc<dyn SystemStore>, tls: Option<Tls>) -> String {
    let connected = describe(store, tls).wait_for_gateway(Duration::ZERO).connect().await;
    connected.err().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_cluster_serves_its_own_and_nobody_else() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let store = store();
    let tls = authority.tls("silo");
    let silos = [silo(&store, Some(tls.clone())).await, silo(&store, Some(tls)).await];
    settle(&silos, 2).await;

    let ours = client(&store, Some(authority.tls("client"))).await;
    let mut hosts = std::collections::BTreeSet::new();
    for key in 0..50 {
        let counter = ours.grain::<dyn Counter>(key.to_string());
        assert_eq!(counter.add(key).await.unwrap(), key);
        hosts.insert(counter.silo().await.unwrap());
        // From this grain's silo to another grain, which may be on the other silo.
        let other = counter.read_other((key / 2).to_string()).await.unwrap();
        assert_eq!(other, key / 2);
    }
    assert_eq!(hosts.len(), 2, "both silos, so calls went between them");

    let told = refused(&store, None).await;
    assert!(told.contains("encrypted connections only"), "{told}");
    let told = refused(&store, Some(Tls::anonymous(authority.file("authority.pem")))).await;
    assert!(told.contains("wants to be shown a certificate"), "{told}");
    let told = refused(&store, Some(stranger.tls("client"))).await;
    assert!(told.contains("an authority that is not believed"), "{told}");
    // One that believes the cluster, and shows what another authority has signed.
    let (certificate, key) = (stranger.file("client.pem"), stranger.file("client"));
    let forged = Tls::new(authority.file("authority.pem"), certificate, key);
    let told = refused(&store, Some(forged)).await;
    assert!(told.contains("does not know the authority"), "{told}");
    for silo in silos {
        silo.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_without_tls_are_told_so_and_change_nothing() {
    let authority = Authority::new("ours");
    let store = store();
    let silo = silo(&store, Some(authority.tls("silo"))).await;
    for port in [silo.address().endpoint(), silo.gateway().unwrap()] {
        let mut stream = tokio::net::TcpStream::connect(port).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: silo\r\n\r\n").await.unwrap();
        let mut told = Vec::new();
        stream.read_to_end(&mut told).await.unwrap();
        assert!(String::from_utf8_lossy(&told).contains("encrypted connections only"), "{told:?}");
    }
    silo.stop().await.unwrap();
}

/// The files of a silo that runs are replaced: it lets in who comes with another authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silo_that_runs_reads_its_files_again() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let store = store();
    let silo = silo(&store, Some(authority.tls("silo"))).await;
    let text = |of: &Authority| fs::read_to_string(of.file("authority.pem")).unwrap();
    let both = text(&authority) + &text(&other);
    // A client that trusts the silo, and shows a certificate of the other authority.
    drop(other.tls("client"));
    fs::write(other.file("both.pem"), &both).unwrap();
    let tls = Tls::new(other.file("both.pem"), other.file("client.pem"), other.file("client"));
    let told = refused(&store, Some(tls.clone())).await;
    assert!(told.contains("does not know the authority"), "{told}");
    fs::write(authority.file("authority.pem"), both).unwrap();
    // It tries again and again, for thirty seconds.
    let calls = client(&store, Some(tls)).await;
    assert_eq!(calls.grain::<dyn Counter>("a").add(1).await.unwrap(), 1);
    silo.stop().await.unwrap();
}

/// Tries to start a silo; returns its error.
async fn not_started(store: &Arc<dyn SystemStore>, tls: Option<Tls>) -> String {
    let silo = Silo::builder().store(store.clone()).on_terminate(|_| {});
    let silo = match tls {
        Some(tls) => silo.tls(tls),
        None => silo,
    };
    let started = tokio::time::timeout(Duration::from_secs(5), silo.start());
    let error = started.await.unwrap().err().unwrap();
    assert!(matches!(error, StartError::Disagreement { .. }), "{error}");
    error.to_string()
}

/// A plain silo in an encrypted cluster, and an encrypted silo in a plain cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silo_of_other_security_is_told_so_when_it_starts() {
    let authority = Authority::new("ours");
    let tls = || authority.tls("silo");
    for rollout in [TlsRollout::Require, TlsRollout::Prefer] {
        let store = store();
        let there = silo(&store, Some(tls().rollout(rollout))).await;
        let told = not_started(&store, None).await;
        let why = match rollout {
            TlsRollout::Prefer => "this silo encrypts the connections that it makes",
            _ => "this port accepts encrypted connections only (TLS)",
        };
        assert!(told.contains(why) && told.contains("tls.rollout"), "{told}");
        // No row of theirs is left, and another silo is let in.
        assert_eq!(there.view().len(), 1);
        let another = silo(&store, Some(tls())).await;
        another.stop().await.unwrap();
        there.stop().await.unwrap();
    }
    let store = store();
    let there = silo(&store, None).await;
    for rollout in [TlsRollout::Require, TlsRollout::Prefer] {
        let told = not_started(&store, Some(tls().rollout(rollout))).await;
        assert!(told.contains("the peer does not speak TLS"), "{told}");
    }
    there.stop().await.unwrap();
}

/// Silos are replaced one by one, three times: they accept TLS, then they use it, then they demand
/// it. Clients change before the last step. Calls are made all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_way_from_plain_to_encrypted_no_call_is_lost() {
    let authority = Authority::new("ours");
    let store = store();
    let tls = authority.tls("silo");
    let mut silos = vec![silo(&store, None).await, silo(&store, None).await];
    settle(&silos, 2).await;
    let plain = Caller::begin(client(&store, None).await);
    for step in [TlsRollout::Accept, TlsRollout::Prefer] {
        replace(&mut silos, &store, tls.clone().rollout(step)).await;
    }
    let encrypted = client(&store, Some(authority.tls("client"))).await;
    let encrypted = Caller::begin(encrypted);
    plain.end().await;
    replace(&mut silos, &store, tls).await;
    encrypted.end().await;
    for silo in silos {
        silo.stop().await.unwrap();
    }
}

/// On the way back to plain a silo is killed half way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_way_back_to_plain_a_silo_may_restart() {
    let authority = Authority::new("ours");
    let store = store();
    let tls = authority.tls("silo");
    let mut silos = Vec::new();
    for _ in 0..3 {
        silos.push(silo(&store, Some(tls.clone())).await);
    }
    settle(&silos, 3).await;
    for step in [TlsRollout::Prefer, TlsRollout::Accept] {
        let caller = Caller::begin(client(&store, Some(authority.tls("client"))).await);
        let step = tls.clone().rollout(step);
        for old in &mut silos[..2] {
            let fresh = silo(&store, Some(step.clone())).await;
            std::mem::replace(old, fresh).stop().await.unwrap();
        }
        caller.end().await;
        // One silo is gone without a goodbye, and comes back in its old way before it is replaced.
        silos.pop().unwrap().stop_now().await;
        let again = silo(&store, Some(tls.clone().rollout(TlsRollout::Prefer))).await;
        let caller = Caller::begin(client(&store, Some(authority.tls("client"))).await);
        again.stop().await.unwrap();
        silos.push(silo(&store, Some(step)).await);
        caller.end().await;
    }
    let plain = Caller::begin(client(&store, None).await);
    for old in &mut silos {
        let fresh = silo(&store, None).await;
        std::mem::replace(old, fresh).stop().await.unwrap();
    }
    plain.end().await;
    for silo in silos {
        silo.stop().await.unwrap();
    }
}

/// A connection of a client is recorded on its way, and said again byte by byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_connection_said_again_calls_nothing() {
    let authority = Authority::new("ours");
    let store = store();
    let silo = silo(&store, Some(authority.tls("silo"))).await;
    let gateway = silo.gateway().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let recorded: Arc<std::sync::Mutex<Vec<u8>>> = Arc::default();
    let tape = recorded.clone();
    let between = tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let silo = tokio::net::TcpStream::connect(gateway).await.unwrap();
        let ((mut said, mut hears), (mut answers, mut asked)) =
            (client.into_split(), silo.into_split());
        let back = tokio::spawn(async move { tokio::io::copy(&mut answers, &mut hears).await });
        let mut bytes = [0; 4_096];
        while let Ok(n) = said.read(&mut bytes).await
            && n > 0
        {
            tape.lock().unwrap().extend_from_slice(&bytes[..n]);
            asked.write_all(&bytes[..n]).await.unwrap();
        }
        drop(asked);
        let _ = back.await;
    });
    let through = Client::builder().gateways([proxy.to_string()]).tls(authority.tls("client"));
    let through = through.connect().await.unwrap();
    let counter = |of: &GrainFactory| of.grain::<dyn Counter>("a");
    assert_eq!(counter(&through.grains()).add(1).await.unwrap(), 1);
    through.close().await;
    between.await.unwrap();
    let tape = recorded.lock().unwrap().clone();
    assert!(tape.len() > 500, "{}", tape.len());
    for port in [gateway, silo.address().endpoint()] {
        for end in [tape.len(), tape.len() / 2, 300] {
            let mut again = tokio::net::TcpStream::connect(port).await.unwrap();
            let _ = again.write_all(&tape[..end]).await;
            let _ = again.shutdown().await;
            let mut heard = Vec::new();
            let _ = again.read_to_end(&mut heard).await;
        }
    }
    assert_eq!(counter(&silo.grains()).total().await.unwrap(), 1, "it was called once");
    assert!(!silo.has_ended());
    silo.stop().await.unwrap();
}

/// Replaces each silo by another.
async fn replace(silos: &mut [Silo], store: &Arc<dyn SystemStore>, tls: Tls) {
    for at in 0..silos.len() {
        let fresh = silo(store, Some(tls.clone())).await;
        std::mem::replace(&mut silos[at], fresh).stop().await.unwrap();
        settle(silos, silos.len()).await;
    }
}

/// A client that calls until it is stopped, and whose calls must all succeed.
struct Caller {
    end: Arc<AtomicBool>,
    calling: tokio::task::JoinHandle<u64>,
}

impl Caller {
    fn begin(client: Client) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let calling = tokio::spawn(async move {
            let mut calls = 0;
            while !ended.load(Ordering::Relaxed) {
                calls += 1;
                client.grain::<dyn Counter>((calls % 20).to_string()).add(1).await.unwrap();
            }
            calls
        });
        Self { end, calling }
    }

    async fn end(self) {
        self.end.store(true, Ordering::Relaxed);
        assert!(self.calling.await.unwrap() > 0);
    }
}

/// The authority is replaced while calls are made: both are believed, then certificates of the new
/// one are shown, then the old one is no longer believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_way_from_one_authority_to_the_next_no_call_is_lost() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let store = store();
    let text = |of: &Authority| fs::read_to_string(of.file("authority.pem")).unwrap();
    let both = before.file("both.pem");
    fs::write(&both, text(&before) + &text(&after)).unwrap();
    let shown = |of: &Authority, believed: PathBuf, role: &str| {
        drop(of.tls(role));
        Tls::new(believed, of.file(&format!("{role}.pem")), of.file(role))
    };
    let old = before.file("authority.pem");
    let mut silos = Vec::new();
    for _ in 0..2 {
        silos.push(silo(&store, Some(shown(&before, old.clone(), "silo"))).await);
    }
    settle(&silos, 2).await;
    let first = Caller::begin(client(&store, Some(shown(&before, both.clone(), "client"))).await);
    replace(&mut silos, &store, shown(&before, both.clone(), "silo")).await;
    replace(&mut silos, &store, shown(&after, both.clone(), "silo")).await;
    let second = Caller::begin(client(&store, Some(shown(&after, both, "client"))).await);
    first.end().await;
    replace(&mut silos, &store, after.tls("silo")).await;
    second.end().await;
    // The old one opens nothing now.
    let told = refused(&store, Some(shown(&before, before.file("both.pem"), "client"))).await;
    assert!(told.contains("does not know the authority"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_a_secret_serves_those_that_have_it() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: String| {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name)
    };
    let secret = certs::secret().unwrap();
    let key = file("client", certs::client_key(&secret, "dev").unwrap());
    let other = file("other", certs::client_key(&certs::secret().unwrap(), "dev").unwrap());
    let secret = Tls::secret(file("secret", secret));
    let store = store();
    let silos =
        [silo(&store, Some(secret.clone())).await, silo(&store, Some(secret.clone())).await];
    settle(&silos, 2).await;
    let client_as_silo = Silo::builder().store(store.clone()).tls(Tls::client_key(key.clone()));
    let told = client_as_silo.start().await.err().unwrap().to_string();
    assert!(told.ends_with("it is a client's key, and this is a silo"), "{told}");
    for tls in [secret, Tls::client_key(key)] {
        let client = client(&store, Some(tls)).await;
        for key in 0..20 {
            let counter = client.grain::<dyn Counter>(key.to_string());
            counter.read_other((key + 1).to_string()).await.unwrap();
        }
    }
    let told = refused(&store, Some(Tls::client_key(other))).await;
    assert!(told.contains("the peer has another secret, or is of another cluster"), "{told}");
    let told = refused(&store, None).await;
    assert!(told.contains("encrypted connections only"), "{told}");
}
