//! Frames, deep values, limits, and strangers on the ports.

use std::future::IntoFuture;

use emmer::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::imp::*;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Deep(Option<Box<Self>>, u8);

pub(crate) fn deep(n: u32) -> Deep {
    let mut d = Deep::default();
    for _ in 0..n {
        d = Deep(Some(Box::new(d)), 0);
    }
    d
}
impl Drop for Deep {
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut d) = next {
            next = d.0.take();
        }
    }
}

#[grain_interface(key = u64)]
pub trait Big {
    async fn take(&mut self, bytes: Vec<u8>) -> u64;
    async fn give(&mut self, n: u64) -> Vec<u8>;
    async fn take_deep(&mut self, d: Deep) -> u64;
    async fn give_deep(&mut self, n: u32) -> Deep;
    async fn ran(&self) -> u64;
    async fn nap(&self, ms: u64) -> u64;
}

#[derive(Grain)]
pub(crate) struct BigGrain {
    ran: u64,
}

#[grain]
impl Big for BigGrain {
    async fn take(&mut self, bytes: Vec<u8>) -> u64 {
        self.ran += 1;
        bytes.len() as u64
    }
    async fn give(&mut self, n: u64) -> Vec<u8> {
        self.ran += 1;
        vec![200; n as usize]
    }
    async fn take_deep(&mut self, d: Deep) -> u64 {
        self.ran += 1;
        let _ = d.1;
        1
    }
    async fn give_deep(&mut self, n: u32) -> Deep {
        self.ran += 1;
        deep(n)
    }
    async fn ran(&self) -> u64 {
        self.ran
    }
    async fn nap(&self, ms: u64) -> u64 {
        tokio::time::sleep(millis(ms)).await;
        1
    }
}

async fn big(store: &str, change: impl FnOnce(&mut emmer::options::SiloOptions)) -> Silo {
    Silo::builder()
        .store(format!("memory://{store}"))
        .gateway("127.0.0.1:0")
        .configure(change)
        .host::<dyn Big, BigGrain>()
        .start()
        .await
        .unwrap()
}

/// Too large and too deep: one call fails with the truth, all others continue.
#[test]
fn large_and_deep_values() {
    run(2, 100, async {
        let small = |o: &mut emmer::options::SiloOptions| o.limits.frame_bytes_max = 64 * 1024;
        let (a, b) = (big("b1", small).await, big("b1", small).await);
        let outside = Client::builder().store("memory://b1").connect().await.unwrap();
        for key in 0..6 {
            outside.grain::<dyn Big>(key).ran().await.unwrap();
        }
        for (name, client) in [("a", a.grains()), ("b", b.grains()), ("client", outside.grains())] {
            for key in 0..1 {
                let g = client.grain::<dyn Big>(key);
                let beside = tokio::spawn(g.nap(100).into_future());
                tokio::time::sleep(millis(5)).await;
                for n in [
                    65_000u64, 65_400, 65_480, 65_490, 65_500, 65_510, 65_520, 65_530, 65_536,
                    65_600, 200_000, 20_000_000,
                ] {
                    let before = g.ran().await.unwrap();
                    let end = g.take(vec![1; n as usize]).timeout(secs(5)).await;
                    let after = g.ran().await.unwrap();
                    if let Err(e) = &end {
                        assert!(e.maybe_executed() || after == before, "take {n} {e:?} ran");
                    }
                    let end = g.give(n).timeout(secs(5)).await.map(|v| v.len());
                    let last = g.ran().await.unwrap();
                    if let Err(e) = &end {
                        assert!(e.maybe_executed() || last == after, "give {n} {e:?} ran");
                    }
                }
                for n in [10u32, 60, 62, 63, 64, 126, 127, 128, 129, 300, 100_000] {
                    let before = g.ran().await.unwrap();
                    let end = g.take_deep(deep(n)).timeout(secs(5)).await;
                    let after = g.ran().await.unwrap();
                    if let Err(e) = &end {
                        assert!(e.maybe_executed() || after == before, "deep {n} {e:?} ran");
                    }
                    let end = g.give_deep(n).timeout(secs(5)).await.map(|_| ());
                    if let Err(e) = &end {
                        assert!(e.maybe_executed(), "give deep {n} {e:?}");
                    }
                }
                let end = beside.await.unwrap();
                assert!(end.is_ok(), "{name} {key}: a call beside too large ones failed: {end:?}");
            }
        }
        b.stop().await.unwrap();
        a.stop().await.unwrap();
    });
}

/// Limits of calls in flight: who is refused is Overloaded, did not run, and nothing is counted for
/// ever.
#[test]
fn calls_in_flight_have_a_limit() {
    run(2, 100, async {
        let few = |o: &mut emmer::options::SiloOptions| {
            o.limits.calls_in_flight_max = 20;
            o.limits.silo_calls_in_flight_max = 100_000;
        };
        let (a, b) = (big("b2", few).await, big("b2", few).await);
        let outside = Client::builder().store("memory://b2").connect().await.unwrap();
        for client in [a.grains(), outside.grains()] {
            for _ in 0..5 {
                let mut calls = tokio::task::JoinSet::new();
                for n in 0..200 {
                    calls.spawn(
                        client.grain::<dyn Big>(n % 40).nap(20).timeout(secs(10)).into_future(),
                    );
                }
                let (mut ok, mut over, mut other) = (0, 0, Vec::new());
                while let Some(end) = calls.join_next().await {
                    match end.unwrap() {
                        Ok(_) => ok += 1,
                        Err(CallError::Overloaded { .. }) => over += 1,
                        Err(e) => other.push(e),
                    }
                }
                assert!(other.is_empty(), "{other:?}");
                assert_eq!(ok + over, 200);
            }
        }
        for s in [&a, &b] {
            let s = s.statistics();
            assert_eq!((s.calls_in_flight, s.calls_serving, s.turns_waiting), (0, 0, 0));
        }
        b.stop().await.unwrap();
        a.stop().await.unwrap();
    });
}

/// Strangers on both ports: garbage, halves, silence, floods; honest calls continue.
#[test]
fn strangers_on_the_ports() {
    run(2, 100, async {
        let (a, b) =
            (big("b3", |o| o.limits.gateway_connections_max = 50).await, big("b3", |_| ()).await);
        let ports = [
            a.gateway().unwrap(),
            std::net::SocketAddr::from((a.address().ip(), a.address().port())),
        ];
        let outside = Client::builder().store("memory://b3").connect().await.unwrap();
        let mut dice = Dice(7);
        let mut open = Vec::new();
        for round in 0..160u64 {
            let port = ports[round as usize % 2];
            let Ok(mut s) = TcpStream::connect(port).await else { continue };
            let hello: Vec<u8> = {
                let mut h = vec![0x2e, 0, 0, 0, 1, 0x45, 0x4d, 0x4d, 0x52, 1, 0, 9, 0, 3];
                h.extend(b"dev");
                h.push(2);
                h.extend(round.to_le_bytes());
                h.push(0);
                h.push(1);
                h.extend([1, 0, 0, 0, 2, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
                h.extend([0; 8]);
                h[0] = (h.len() - 4) as u8;
                h
            };
            let bytes: Vec<u8> = match round % 8 {
                0 => (0..dice.roll(5000)).map(|_| dice.roll(256) as u8).collect(),
                1 => vec![0xff; 100_000],
                2 => vec![0, 0, 0, 0],
                3 => hello[..dice.roll(hello.len() as u64) as usize].to_vec(),
                4 => {
                    let mut h = hello.clone();
                    let at = dice.roll(h.len() as u64) as usize;
                    h[at] ^= 1 << dice.roll(8);
                    h
                }
                5 => {
                    let mut h = hello.clone();
                    h.extend([0xff, 0xff, 0xff, 0x00, 4]);
                    h.extend(vec![7; 1000]);
                    h
                }
                6 => {
                    let mut h = hello.clone();
                    for _ in 0..50 {
                        h.extend([9, 0, 0, 0, 9, dice.roll(255) as u8, 0, 0, 0, 0, 0, 0, 0]);
                    }
                    h
                }
                _ => {
                    let mut h = hello.clone();
                    h.extend([35, 0, 0, 0]);
                    h.extend((0..35).map(|_| dice.roll(7) as u8));
                    h
                }
            };
            let _ = s.write_all(&bytes).await;
            if round % 3 == 0 {
                open.push(s);
            } else if round % 3 == 1 {
                let mut buf = [0; 200];
                let _ = tokio::time::timeout(millis(20), s.read(&mut buf)).await;
            }
            if round % 20 == 0 {
                outside.grain::<dyn Big>(round).take(vec![1]).timeout(secs(5)).await.unwrap();
                b.grains().grain::<dyn Big>(round).take(vec![1]).timeout(secs(5)).await.unwrap();
            }
        }
        let second =
            tokio::time::timeout(secs(20), Client::builder().store("memory://b3").connect()).await;
        assert!(second.is_ok_and(|c| c.is_ok()), "no room for an honest client");
        b.grains().grain::<dyn Big>(1).take(vec![1]).await.unwrap();
        a.stop().await.unwrap();
        b.stop().await.unwrap();
    });
}

/// Passes bytes between a client and the silo, in both directions until `deaf` is set: then the
/// client gets nothing.
async fn deaf_proxy(
    silo: std::net::SocketAddr,
    deaf: std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(silo) = TcpStream::connect(silo).await else { return };
            let deaf = deaf.clone();
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_silo, mut to_silo) = silo.into_split();
                let answers = async {
                    let mut bytes = vec![0; 64 << 10];
                    while let Ok(n) = from_silo.read(&mut bytes).await {
                        if n == 0 || to_client.write_all(&bytes[..n]).await.is_err() {
                            return;
                        }
                        if deaf.load(std::sync::atomic::Ordering::Relaxed) {
                            std::future::pending::<()>().await;
                        }
                    }
                };
                let calls = tokio::io::copy(&mut from_client, &mut to_silo);
                tokio::select! {
                    _ = calls => {}
                    () = answers => {}
                }
            });
        }
    });
    address
}

/// Clients that read no answers, and clients that call a busy grain: together they hold at most
/// their limit, an honest client is served meanwhile, and nothing is held when they have gone.
#[test]
fn clients_together_hold_no_more_than_they_may() {
    const MAX: usize = 4 << 20;
    const ANSWER: u64 = 200_000;
    run(2, 100, async {
        let silo = big("b5", |o| o.limits.client_bytes_max = MAX).await;
        let deaf = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let proxied = deaf_proxy(silo.gateway().unwrap(), deaf.clone()).await;
        let connect = async |gateway: String| {
            Client::builder().gateways([gateway]).cluster_id("dev").connect().await.unwrap()
        };
        let honest = connect(silo.gateway().unwrap().to_string()).await;
        let within = || {
            let held = silo.statistics().client_bytes;
            // Of each connection 64 KiB of calls and of answers, one answer, and one being written.
            assert!(held <= (MAX as u64) + 10 * 2 * (ANSWER + (64 << 10)), "{held}");
        };
        for unread in [true, false] {
            deaf.store(false, std::sync::atomic::Ordering::Relaxed);
            let mut clients = Vec::new();
            for _ in 0..10 {
                clients.push(connect(proxied.clone()).await);
            }
            deaf.store(unread, std::sync::atomic::Ordering::Relaxed);
            let mut calls = tokio::task::JoinSet::new();
            for (n, client) in clients.iter().enumerate() {
                calls.spawn(client.grain::<dyn Big>(1).nap(3_000).into_future());
                for key in 0..40 {
                    let grain = client.grain::<dyn Big>(1_000 + n as u64 * 100 + key);
                    if unread {
                        calls.spawn(async move { grain.give(ANSWER).await.map(|_| 0) });
                    } else {
                        let busy = client.grain::<dyn Big>(1);
                        calls.spawn(async move { busy.take(vec![1; ANSWER as usize]).await });
                    }
                }
            }
            for _ in 0..50 {
                within();
                let answer = honest.grain::<dyn Big>(7).ran().timeout(secs(5)).await;
                assert!(answer.is_ok(), "{answer:?}");
                tokio::time::sleep(millis(5)).await;
            }
            if !unread {
                // A call that reaches the grain before the first nap has its turn.
                let refused = loop {
                    let ended = calls.join_next().await.unwrap().unwrap();
                    if let Err(error) = ended {
                        break error;
                    }
                };
                assert!(
                    matches!(&refused, CallError::Overloaded { detail, .. } if detail.contains("client_bytes_max")),
                    "{refused:?}"
                );
            }
            calls.abort_all();
            for client in clients {
                client.close().await;
            }
            let begun = std::time::Instant::now();
            while silo.statistics().client_bytes > 0 {
                let held = silo.statistics().client_bytes;
                assert!(begun.elapsed() < secs(60), "{held} bytes are held for nobody");
                tokio::time::sleep(millis(10)).await;
            }
        }
        honest.close().await;
        silo.stop().await.unwrap();
    });
}
