//! Handshakes over real sockets: what both sides show, refuse and hear.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use emmer_core::ClusterId;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::certs::{self, Wanted};
use super::{Guard, Role, Tls, TlsError, secret, words};
use crate::world;

/// An authority, and a folder for its files.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: certs::Authority,
}

/// The files of one process.
#[derive(Clone)]
pub(crate) struct Made {
    certificate: PathBuf,
    key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("one")
    }

    fn named(name: &str) -> Self {
        let issuer = certs::Authority::new(name).unwrap();
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("authority.pem"), issuer.certificate()).unwrap();
        Self { folder, issuer }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    pub(crate) fn make(&self, file: &str, name: &str) -> Made {
        self.make_so(file, &Wanted::named(name))
    }

    pub(crate) fn make_so(&self, file: &str, wanted: &Wanted) -> Made {
        let issued = self.issuer.issue(wanted).unwrap();
        let path = |end: &str| self.folder.path().join(format!("{file}.{end}"));
        let made = Made { certificate: path("pem"), key: path("key") };
        fs::write(&made.certificate, issued.certificate).unwrap();
        fs::write(&made.key, issued.key).unwrap();
        made
    }

    /// The TLS of a process that believes this authority.
    pub(crate) fn tls(&self, made: &Made) -> Tls {
        Tls::new(self.file(), &made.certificate, &made.key)
    }
}

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn cluster() -> ClusterId {
    ClusterId::new("shop").unwrap()
}

fn guard(tls: Tls, role: Role) -> Guard {
    Guard::new(tls, &cluster(), role).unwrap()
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (dialed, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (dialed.unwrap(), accepted.unwrap().0)
}

/// A handshake, with the result on either side. A dialer's proof is judged after its own handshake
/// is over, so the dialer hears of it by its first read.
async fn meet(
    dialer: &Guard,
    acceptor: &Guard,
    at_silos_port: bool,
) -> (Result<(), String>, Result<Option<Role>, String>) {
    let (dialing, accepting) = sockets().await;
    let dial = async {
        let mut stream = world::TcpStream::Secured(dialer.dialed(dialing, HOST).await?);
        let mut word = [0; 5];
        stream.read_exact(&mut word).await.map_err(|e| words(&e))?;
        assert_eq!(&word, b"hello");
        Ok(())
    };
    let accept = async {
        let (stream, shown) = acceptor.accepted(accepting, at_silos_port).await?;
        let mut stream = world::TcpStream::Secured(stream);
        stream.write_all(b"hello").await.map_err(|e| words(&e))?;
        stream.flush().await.map_err(|e| words(&e))?;
        Ok(shown?.map(|shown| shown.role))
    };
    tokio::join!(dial, accept)
}

#[tokio::test]
async fn silos_and_clients_of_a_cluster_show_what_they_are() {
    let authority = Authority::new();
    let one = guard(authority.tls(&authority.make("one", "silo.shop.emmer")), Role::Silo);
    let other = guard(authority.tls(&authority.make("other", "silo.shop.emmer")), Role::Silo);
    let client = guard(authority.tls(&authority.make("client", "client.shop.emmer")), Role::Client);
    assert_eq!(meet(&one, &other, true).await, (Ok(()), Ok(Some(Role::Silo))));
    assert_eq!(meet(&client, &other, false).await, (Ok(()), Ok(Some(Role::Client))));
    // The port says what that is worth.
    assert_eq!(meet(&client, &other, true).await, (Ok(()), Ok(Some(Role::Client))));
}

#[tokio::test]
async fn who_shows_nothing_gets_to_the_gateway_at_most() {
    let authority = Authority::new();
    let made = authority.make("silo", "silo.shop.emmer");
    let strict = guard(authority.tls(&made), Role::Silo);
    let open = guard(authority.tls(&made).anonymous_clients(), Role::Silo);
    let client = guard(Tls::anonymous(authority.file()), Role::Client);
    assert_eq!(meet(&client, &open, false).await, (Ok(()), Ok(None)));
    let refused = (
        Err("the peer wants to be shown a certificate".to_owned()),
        Err("the peer shows no certificate".to_owned()),
    );
    assert_eq!(meet(&client, &open, true).await, refused);
    assert_eq!(meet(&client, &strict, false).await, refused);
}

#[tokio::test]
async fn what_is_not_right_is_refused_and_both_sides_are_told_why() {
    let authority = Authority::new();
    let stranger = Authority::named("another");
    let silo = |authority: &Authority, file: &str, name: &str| {
        let made = authority.make(file, name);
        authority.tls(&made)
    };
    let good = guard(silo(&authority, "good", "silo.shop.emmer"), Role::Silo);

    // A silo that had read its certificate before it ran out.
    let wanted = Wanted::silo("shop").until(SystemTime::now() - Duration::from_secs(5));
    let expired = guard(authority.tls(&authority.make_so("expired", &wanted)), Role::Silo);
    let (dialed, accepted) = meet(&expired, &good, true).await;
    assert_eq!(dialed.unwrap_err(), "the peer finds that this certificate has expired");
    assert_eq!(accepted.unwrap_err(), "the certificate has expired");
    let (dialed, accepted) = meet(&good, &expired, true).await;
    assert_eq!(dialed.unwrap_err(), "the certificate has expired");
    assert_eq!(accepted.unwrap_err(), "the peer finds that this certificate has expired");

    // Another authority.
    let foreign = guard(silo(&stranger, "foreign", "silo.shop.emmer"), Role::Silo);
    let (dialed, accepted) = meet(&foreign, &good, true).await;
    assert_eq!(dialed.unwrap_err(), "the certificate is of an authority that is not believed");
    assert_eq!(accepted.unwrap_err(), "the peer does not know the authority of this certificate");

    // Another cluster of the same authority.
    let bank = ClusterId::new("bank").unwrap();
    let made = silo(&authority, "bank", "silo.bank.emmer");
    let bank = Guard::new(made, &bank, Role::Silo).unwrap();
    let (dialed, accepted) = meet(&bank, &good, true).await;
    assert_eq!(dialed.unwrap_err(), "the certificate names no silo or client of this cluster");
    assert!(accepted.is_err());
}

#[tokio::test]
async fn plain_bytes_and_cut_handshakes_are_refused() {
    let authority = Authority::new();
    let silo = guard(authority.tls(&authority.make("silo", "silo.shop.emmer")), Role::Silo);
    let (mut plain, accepting) = sockets().await;
    plain.write_all(b"GET / HTTP/1.1\r\nHost: silo\r\n\r\n").await.unwrap();
    let refused = silo.accepted(accepting, true).await.map(|(_, shown)| shown);
    assert_eq!(refused, Err("the peer does not speak TLS".to_owned()));

    let (dialing, mut plain) = sockets().await;
    plain.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await.unwrap();
    let refused = silo.dialed(dialing, HOST).await.map(drop);
    assert_eq!(refused, Err("the peer does not speak TLS".to_owned()));

    let (mut cut, accepting) = sockets().await;
    cut.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap();
    cut.shutdown().await.unwrap();
    assert!(silo.accepted(accepting, true).await.is_err());
}

#[test]
fn files_that_are_wrong_are_named() {
    let authority = Authority::new();
    let made = authority.make("silo", "silo.shop.emmer");
    let client = authority.make("client", "client.shop.emmer");
    let refused = |tls: Tls| Guard::new(tls, &cluster(), Role::Silo).unwrap_err();
    let gone = authority.folder.path().join("gone.pem");
    let told = refused(Tls::new(&gone, &made.certificate, &made.key));
    assert!(matches!(&told, TlsError::Unreadable { file, .. } if file.ends_with("gone.pem")));
    let told = refused(Tls::new(authority.file(), &made.key, &made.key)).to_string();
    assert!(told.contains("silo.key: expected certificates in PEM: it has none"), "{told}");
    let told = refused(Tls::new(authority.file(), &made.certificate, &made.certificate));
    assert!(told.to_string().contains("silo.pem: expected a private key in PEM"), "{told}");
    let told = refused(Tls::new(authority.file(), &made.certificate, &client.key)).to_string();
    assert!(told.ends_with("the key belongs to another certificate"), "{told}");
    let told = refused(authority.tls(&client)).to_string();
    assert!(told.ends_with("it is a client's certificate, and this is a silo"), "{told}");
    let told = refused(authority.tls(&authority.make("bank", "silo.bank.emmer"))).to_string();
    let expected = "it names none of this cluster: expected the DNS name `silo.shop.emmer`";
    assert!(told.ends_with(expected), "{told}");
    assert_eq!(refused(Tls::anonymous(authority.file())), TlsError::NoCertificate);
    // A key shows nowhere.
    let key = fs::read_to_string(&made.key).unwrap();
    let secret = key.lines().nth(1).unwrap();
    let guard = guard(authority.tls(&made), Role::Silo);
    assert!(!format!("{guard:?}").contains(secret));
}

#[test]
fn a_cluster_that_no_certificate_can_name_is_refused() {
    let authority = Authority::new();
    let made = authority.make("silo", "silo.shop.emmer");
    for name in ["a..b", "shop-", "shop."] {
        let cluster = ClusterId::new(name).unwrap();
        let told = Guard::new(authority.tls(&made), &cluster, Role::Silo).unwrap_err();
        assert_eq!(told, TlsError::Name { cluster: name.to_owned() });
    }
}

#[tokio::test]
async fn replaced_files_count_for_the_next_connection_and_an_old_authority_for_a_while() {
    let (before, after) = (Authority::new(), Authority::named("after"));
    let here = before.make("here", "silo.shop.emmer");
    let old = guard(before.tls(&before.make("old", "silo.shop.emmer")), Role::Silo);
    // Believes both: the silo still shows what the old one has signed.
    let both = after.folder.path().join("both.pem");
    let text = |of: &Authority| fs::read_to_string(of.file()).unwrap();
    fs::write(&both, text(&before) + &text(&after)).unwrap();
    let made = after.make("new", "silo.shop.emmer");
    let new = guard(Tls::new(&both, &made.certificate, &made.key), Role::Silo);
    let overlap = Duration::from_secs(600);
    let silo = guard(before.tls(&here).overlap(overlap), Role::Silo);
    let start = Instant::now();
    assert_eq!(silo.look(start), Ok(false));
    assert!(meet(&new, &silo, true).await.1.is_err());

    // Half a file: the earlier contents stay.
    fs::write(before.file(), "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    assert!(silo.look(start).is_err());
    assert!(meet(&old, &silo, true).await.1.is_ok());

    fs::copy(after.file(), before.file()).unwrap();
    assert_eq!(silo.look(start), Ok(true));
    assert_eq!(silo.look(start), Ok(false));
    assert!(meet(&new, &silo, true).await.1.is_ok());
    assert!(meet(&old, &silo, true).await.1.is_ok(), "the old authority is believed for a while");
    // Its time ends while a file is broken: it is believed no longer all the same.
    fs::write(before.file(), "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    assert!(silo.look(start + overlap * 2).is_err());
    assert!(meet(&old, &silo, true).await.1.is_err());
    assert!(meet(&new, &silo, true).await.1.is_ok());
    fs::copy(after.file(), before.file()).unwrap();
    assert_eq!(silo.look(start + overlap * 2), Ok(false));
    assert!(meet(&old, &silo, true).await.1.is_err());
    assert!(meet(&new, &silo, true).await.1.is_ok());
}

/// More than sockets hold goes both ways at once, in pieces of many sizes, and in order.
#[tokio::test]
async fn what_is_sent_arrives_whole_and_in_order() {
    const BYTES: usize = 8 << 20;
    let authority = Authority::new();
    let one = guard(authority.tls(&authority.make("one", "silo.shop.emmer")), Role::Silo);
    let other = guard(authority.tls(&authority.make("other", "silo.shop.emmer")), Role::Silo);
    let (dialing, accepting) = sockets().await;
    let (dialed, accepted) =
        tokio::join!(one.dialed(dialing, HOST), other.accepted(accepting, true));
    let pattern = |at: usize| (at.wrapping_mul(31) >> 3) as u8;
    let side = |stream| async move {
        let stream = world::TcpStream::Secured(stream);
        let (mut reading, writing) = stream.into_split();
        let written = async {
            let mut at = 0;
            while at < BYTES {
                let size = (at % 100_000 + 1).min(BYTES - at);
                let piece: Vec<u8> = (at..at + size).map(pattern).collect();
                let mut left = &piece[..];
                while !left.is_empty() {
                    match writing.try_write(left) {
                        Ok(n) => left = &left[n..],
                        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                            tokio::task::yield_now().await;
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
                at += size;
                while writing.is_unsent() && at == BYTES {
                    let _ = writing.try_write(&[]);
                    tokio::task::yield_now().await;
                }
            }
        };
        let read = async {
            let mut buffer = vec![0; 70_000];
            let mut at = 0;
            while at < BYTES {
                let n = reading.read(&mut buffer).await.unwrap();
                assert!(n > 0, "ended at {at}");
                let right = buffer[..n].iter().enumerate().all(|(i, b)| *b == pattern(at + i));
                assert!(right, "wrong bytes from {at} on");
                at += n;
            }
        };
        tokio::join!(written, read);
        // Ends in good order.
        drop(writing);
        assert_eq!(reading.read(&mut [0; 10]).await.unwrap(), 0);
    };
    tokio::join!(side(dialed.unwrap()), side(accepted.unwrap().0));
}

/// The file with the secret of a cluster, and the file for its clients.
struct Secret {
    folder: TempDir,
}

impl Secret {
    fn new(lines: &str, cluster: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("secret"), lines).unwrap();
        let key = certs::client_key(lines, cluster).unwrap();
        fs::write(folder.path().join("client"), key).unwrap();
        Self { folder }
    }

    fn silo(&self, cluster: &str) -> Guard {
        let tls = Tls::secret(self.folder.path().join("secret"));
        Guard::new(tls, &ClusterId::new(cluster).unwrap(), Role::Silo).unwrap()
    }

    fn client(&self) -> Guard {
        guard(Tls::client_key(self.folder.path().join("client")), Role::Client)
    }
}

#[tokio::test]
async fn a_secret_lets_in_those_of_one_cluster_that_have_it() {
    let (ours, other) = (certs::secret().unwrap(), certs::secret().unwrap());
    let secret = Secret::new(&ours, "shop");
    let (one, two) = (secret.silo("shop"), secret.silo("shop"));
    assert_eq!(meet(&one, &two, true).await, (Ok(()), Ok(Some(Role::Silo))));
    // The key of clients makes no silo.
    assert_eq!(meet(&secret.client(), &two, true).await, (Ok(()), Ok(Some(Role::Client))));
    let refused = |(dialed, accepted): (Result<(), String>, Result<_, String>)| {
        let told = "the peer has another secret, or is of another cluster";
        assert_eq!(dialed, Err(told.to_owned()));
        assert_eq!(accepted, Err(told.to_owned()));
    };
    // Another secret, another cluster with the same one, a client that is asked for a silo.
    refused(meet(&one, &Secret::new(&other, "shop").silo("shop"), true).await);
    refused(meet(&Secret::new(&other, "shop").client(), &one, false).await);
    let (dialed, accepted) = meet(&one, &secret.silo("bank"), true).await;
    assert_eq!(dialed.unwrap_err(), "the peer has another secret, or is of another cluster");
    assert!(accepted.is_err());
    // Certificates on one side only.
    let authority = Authority::new();
    let certified = guard(authority.tls(&authority.make("silo", "silo.shop.emmer")), Role::Silo);
    for (dialer, acceptor) in [(&one, &certified), (&certified, &one)] {
        let (dialed, accepted) = meet(dialer, acceptor, true).await;
        let told = "one of both has a secret, and the other one certificates";
        let told = [dialed.unwrap_err(), accepted.map(drop).unwrap_err()].map(|why| why == told);
        assert!(told.contains(&true), "{told:?}");
    }
}

/// Silos of this version and of a later one have the same keys.
#[test]
fn the_keys_of_a_secret_stay_what_they_are() {
    let keys = secret::keys(b"0123456789abcdef0123456789ABCDEF", &cluster()).unwrap();
    let hex = |key: &[u8]| -> String { key.iter().map(|byte| format!("{byte:02x}")).collect() };
    // Made by HKDF and Ed25519 of another hand, from RFC 5869 and RFC 8032.
    let begin = "302a300506032b6570032100";
    let silos = "5ef5dcb8e5ae4c28e2637bbe48554a5cc989d9f0ce5cf6d019a118052e7af77b";
    let clients = "f830a06f707f9b44f8e66bb564750422707d9fb23df64adcedef4e5be61c484e";
    assert_eq!(hex(&keys.silos), format!("{begin}{silos}"));
    assert_eq!(hex(&keys.clients.unwrap()), format!("{begin}{clients}"));
}

#[tokio::test]
async fn a_secret_is_replaced_while_silos_run() {
    let (old, new) = (certs::secret().unwrap(), certs::secret().unwrap());
    // Silo by silo: both are believed, then the new one is shown, then the old one is no longer
    // believed. Silos of neighbouring steps meet.
    let steps =
        [old.clone(), format!("{old}\n{new}\n"), format!("{new}\n{old}\n"), format!("{new}\n")];
    let silos = steps.each_ref().map(|step| Secret::new(step, "shop").silo("shop"));
    for pair in silos.windows(2) {
        assert_eq!(meet(&pair[0], &pair[1], true).await.1, Ok(Some(Role::Silo)));
        assert_eq!(meet(&pair[1], &pair[0], true).await.1, Ok(Some(Role::Silo)));
    }
    assert!(meet(&silos[0], &silos[3], true).await.1.is_err());
    // A silo that reads its file again believes the old secret for its overlap.
    let secret = Secret::new(&old, "shop");
    let (silo, start) = (secret.silo("shop"), Instant::now());
    fs::write(secret.folder.path().join("secret"), &new).unwrap();
    assert_eq!(silo.look(start), Ok(true));
    // It shows the new one now. The other knows both, and shows the old one.
    assert!(meet(&silos[1], &silo, true).await.1.is_ok());
    assert_eq!(silo.look(start + Tls::OVERLAP), Ok(true));
    assert!(meet(&silos[1], &silo, true).await.1.is_err());
    assert!(meet(&silos[3], &silo, true).await.1.is_ok());
}

#[test]
fn a_poor_secret_is_refused_and_none_is_shown() {
    let refused = |text: &str| {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("secret"), text).unwrap();
        let tls = Tls::secret(folder.path().join("secret"));
        let told = Guard::new(tls, &cluster(), Role::Silo).unwrap_err().to_string();
        assert!(!text.contains(' ') || !told.contains(text.trim()), "{told}");
        told
    };
    let short = "expected a secret of at least 32 bytes";
    assert!(refused("").contains("it is empty"));
    assert!(refused("correct horse battery staple 31").contains(short));
    let good = certs::secret().unwrap();
    assert!(refused(&format!("{good}\nchangeme changeme")).contains(short));
    assert!(refused(&"a".repeat(64)).contains("expected a random secret"));
    assert!(refused(&format!("{good}\n").repeat(9)).contains("at most 8 secrets"));
    let told = Guard::new(Tls::secret(&good), &cluster(), Role::Silo).unwrap_err().to_string();
    assert!(told.contains("there is no such file") && !told.contains(&good), "{told}");
    let tls = Tls::secret_in_variable("EMMER_NO_SUCH_VARIABLE");
    let told = Guard::new(tls, &cluster(), Role::Silo).unwrap_err().to_string();
    assert_eq!(told, "environment variable EMMER_NO_SUCH_VARIABLE: it is not set");
    let secret = Secret::new(&good, "shop");
    assert!(!format!("{:?}", secret.silo("shop")).contains(&good));
}

/// A silo whose certificate names addresses says to be at them only.
#[tokio::test]
async fn a_certificate_with_addresses_is_for_a_silo_at_them() {
    let authority = Authority::new();
    let bound = Wanted::silo("shop").address([127, 0, 0, 1]).address(Ipv6Addr::LOCALHOST);
    let here = guard(authority.tls(&authority.make_so("here", &bound)), Role::Silo);
    let bound = Wanted::silo("shop").address([10, 0, 0, 7]);
    let there = guard(authority.tls(&authority.make_so("there", &bound)), Role::Silo);
    let any = guard(authority.tls(&authority.make("any", "silo.shop.emmer")), Role::Silo);
    for address in [HOST, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        here.check_address(address).unwrap();
    }
    let told = there.check_address(HOST).unwrap_err().to_string();
    assert!(told.ends_with("it is for a silo at 10.0.0.7, and this one is at 127.0.0.1"), "{told}");
    any.check_address(HOST).unwrap();
    // The process at 127.0.0.1 is the silo there.
    assert!(meet(&any, &here, true).await.0.is_ok());
    let told = meet(&any, &there, true).await.0.unwrap_err();
    assert_eq!(told, "its certificate is for a silo at 10.0.0.7");
    // The other names of a certificate.
    let named = Wanted::client("shop").name("billing").name("spiffe://shop/billing");
    let client = guard(authority.tls(&authority.make_so("client", &named)), Role::Client);
    let (dialing, accepting) = sockets().await;
    let (_, accepted) = tokio::join!(client.dialed(dialing, HOST), here.accepted(accepting, false));
    let shown = accepted.unwrap().1.unwrap().unwrap();
    assert_eq!(
        (shown.role, shown.names.join(" ")),
        (Role::Client, "billing spiffe://shop/billing".to_owned())
    );
}

#[test]
fn a_certificate_of_the_wrong_age_is_noticed_by_its_owner() {
    let authority = Authority::new();
    let (now, day) = (SystemTime::now(), Duration::from_hours(24));
    for role in [Role::Silo, Role::Client] {
        let wanted = Wanted::named(format!("{role}.shop.emmer")).until(now + day);
        let guard = guard(authority.tls(&authority.make_so("short", &wanted)), role);
        let outdated =
            [now - day, now, now + day / 2, now + day * 2].map(|at| guard.is_outdated(at));
        assert_eq!(outdated, [true, false, false, true]);
        assert_eq!(guard.age_warning(now + day / 2), None, "it was made for a day");
        let over = "the certificate of this process has expired: peers refuse it";
        assert_eq!(guard.age_warning(now + day * 2), Some(over));
        let wanted = wanted.until(now - Duration::from_secs(5));
        let tls = authority.tls(&authority.make_so("over", &wanted));
        let guard = Guard::new(tls, &cluster(), role).unwrap();
        assert!(guard.is_outdated(now));
        assert_eq!(guard.age_warning(now), Some(over));
        let told = guard.outdated().to_string();
        assert!(told.contains("over.pem: the certificate has expired"), "{told}");
    }
    let long = Wanted::silo("shop").until(now + day * 90);
    let long = guard(authority.tls(&authority.make_so("long", &long)), Role::Silo);
    assert_eq!(long.age_warning(now + day * 88), None);
    let soon = "the certificate of this process expires within a day";
    assert_eq!(long.age_warning(now + day * 89 + day / 2), Some(soon));
    let secret = Secret::new(&certs::secret().unwrap(), "shop");
    assert!(!secret.silo("shop").is_outdated(now + day * 9_999));
}
