//! The network of a world: in order, late, cut, broken; and the hosts on it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use emmer_virtual::{Host, NetModel, State, Stream, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

const PORT: u16 = 80;

/// Two hosts with a connection from the first to the second.
async fn pair(world: &World) -> (Arc<Host>, Arc<Host>, Stream, Stream) {
    let (one, other) = (world.host(), world.host());
    let mut listener = world.net().listen(&other, (other.ip(), PORT).into()).unwrap();
    let accepting = tokio::spawn(async move { listener.accept().await.unwrap().0 });
    let here = world.net().connect(&one, (other.ip(), PORT).into()).await.unwrap();
    let there = accepting.await.unwrap();
    (one, other, here, there)
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_in_order_and_whole_however_late_each_piece_is() {
    let world = World::new(3);
    let (_one, _other, mut here, mut there) = pair(&world).await;
    let (most, split) = (Duration::from_millis(50), 0.5);
    world.net().set_model(NetModel { delay_max: most, loss: 0.2, split, ..NetModel::default() });
    let sent: Vec<u8> = (0..100_000u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let sending = sent.clone();
    let writer = tokio::spawn(async move {
        for piece in sending.chunks(777) {
            here.write_all(piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let mut received = Vec::new();
    there.read_to_end(&mut received).await.unwrap();
    writer.await.unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
}

#[tokio::test(start_paused = true)]
async fn what_a_cut_holds_back_arrives_when_it_heals() {
    let world = World::new(1);
    let (one, other, mut here, mut there) = pair(&world).await;
    world.net().cut(one.ip(), other.ip());
    here.write_all(b"held").await.unwrap();
    let mut buffer = [0; 4];
    let early = tokio::time::timeout(Duration::from_secs(60), there.read_exact(&mut buffer)).await;
    assert!(early.is_err(), "it passed the cut");
    // The other direction is open.
    there.write_all(b"back").await.unwrap();
    here.read_exact(&mut buffer).await.unwrap();
    world.net().heal();
    there.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"held");
}

#[tokio::test(start_paused = true)]
async fn the_peer_of_a_killed_process_reads_the_end_and_its_port_refuses() {
    let world = World::new(1);
    let (one, other, mut here, _there) = pair(&world).await;
    other.kill();
    assert_eq!(other.state(), State::Dead);
    assert_eq!(here.read(&mut [0; 4]).await.unwrap(), 0);
    let refused = world.net().connect(&one, (other.ip(), PORT).into()).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn nobody_answers_for_a_machine_without_power() {
    let world = World::new(1);
    let (one, other, mut here, _there) = pair(&world).await;
    world.net().silence(other.ip());
    other.kill();
    let patience = Duration::from_secs(3_600);
    assert!(tokio::time::timeout(patience, here.read(&mut [0; 4])).await.is_err());
    let dialed = world.net().connect(&one, (other.ip(), PORT).into());
    assert!(tokio::time::timeout(patience, dialed).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_reset_reaches_both_ends_at_once() {
    let world = World::new(1);
    let (one, other, mut here, mut there) = pair(&world).await;
    here.write_all(b"lost").await.unwrap();
    world.net().reset(one.ip(), other.ip());
    let kinds = [here.read(&mut [0; 4]).await, there.read(&mut [0; 4]).await]
        .map(|r| r.unwrap_err().kind());
    assert_eq!(kinds, [std::io::ErrorKind::ConnectionReset; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_host_runs_nothing_and_goes_on_where_it_was() {
    let world = World::new(1);
    let host = world.host();
    let (tell, mut told) = tokio::sync::mpsc::channel(16);
    host.spawn(&tokio::runtime::Handle::current(), async move {
        for n in 0..3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = tell.send(n).await;
        }
    });
    assert_eq!(told.recv().await, Some(0));
    host.pause();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(told.try_recv().is_err());
    let resumed = Instant::now();
    host.resume();
    assert_eq!(
        (told.recv().await, resumed.elapsed()),
        (Some(1), Duration::ZERO),
        "its timer had fired meanwhile"
    );
    host.kill();
    assert_eq!(told.recv().await, None);
    assert_eq!(host.tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn clocks_drift_jump_and_stand_still() {
    let world = World::new(1);
    let host = world.host();
    let clock = host.clock();
    let second = Duration::from_secs(1);
    clock.drift(100_000);
    tokio::time::sleep(second).await;
    assert_eq!(clock.mono_nanos(), 1_100_000_000);
    clock.drift(-1_000_000);
    tokio::time::sleep(second).await;
    assert_eq!(clock.mono_nanos(), 1_100_000_000);
    let before = clock.wall_micros();
    clock.set_wall_by(-3_600_000);
    assert_eq!(before - clock.wall_micros(), 3_600_000_000);
}

/// Like a host whose process is gone: the first bytes cause a reset, and the next ones fail.
#[tokio::test(start_paused = true)]
async fn who_writes_to_an_end_that_was_closed_is_told_by_a_reset() {
    let world = World::new(3);
    let (_one, _other, mut here, there) = pair(&world).await;
    drop(there);
    here.write_all(b"first").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = here.write_all(b"second").await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
