//! Any bytes on a port close that connection and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use emmer::prelude::*;
use emmer::store::SiloTable;
use emmer::tables::{SiloEntry, SiloStatus, Timestamp};
use emmer_example_flights::Airport;

use crate::harness::{PATIENCE, Silo, store_in};

/// Sends `bytes` and waits until the other side closes the connection.
fn is_closed_after(to: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The other side may close before all of it is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{to}: {error}"),
    }
    assert!(answer.len() < 4_096, "{to}: {} bytes for garbage", answer.len());
}

/// A client that waits no longer than it takes to ask.
async fn connect(store: &str, cluster: &str) -> Result<Client, emmer::errors::ConnectError> {
    let cluster = ClusterId::new(cluster).unwrap();
    let client = Client::builder().store(store).cluster_id(cluster);
    client.wait_for_gateway("1s").connect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_giant_frames_close_only_their_connection() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let mut silo = Silo::start(&store, "127.0.0.1:0", &[]);
    let client = connect(&store, "test").await.unwrap();
    let airport = client.grain::<dyn Airport>("JFK");
    assert_eq!(airport.totals().timeout(PATIENCE).await.unwrap().applied, 0);
    let noise: Vec<u8> =
        (0..100_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut giant = (2u32 << 30).to_le_bytes().to_vec();
    giant.extend_from_slice(&[1; 64]);
    let silos = silo.endpoint().parse().unwrap();
    for port in [silos, silo.gateway] {
        for bytes in [&noise[..], &http[..], &giant[..]] {
            tokio::task::block_in_place(|| is_closed_after(port, bytes));
        }
    }
    assert!(silo.process.is_running());
    assert_eq!(airport.totals().timeout(PATIENCE).await.unwrap().applied, 0);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_another_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let silo = Silo::start(&store, "127.0.0.1:0", &[]);
    let error = connect(&store, "other").await.unwrap_err().to_string();
    assert!(error.contains("other") && error.contains("no Active silo"), "{error}");

    // As if the table of another cluster named this silo: the silo refuses by itself.
    let opened = emmer::store::open(&store).await.unwrap();
    let table = SiloTable::new(opened, ClusterId::new("other").unwrap());
    let address = silo.address.parse().unwrap();
    let mut entry = SiloEntry::new(address, SiloStatus::Active, Timestamp::from_millis(0));
    entry.proxy_port = silo.gateway.port();
    table.commit(&emmer::tables::TableVersion::default(), vec![entry], Vec::new()).await.unwrap();
    let error = connect(&store, "other").await.unwrap_err().to_string();
    assert!(error.contains("other") && error.contains("test"), "{error}");
    assert!(connect(&store, "test").await.is_ok());
}

/// A crowd of clients finds a gateway full before its process has no descriptor left, and silos
/// join all the while.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn clients_leave_descriptors_for_silos() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let mut first = Silo::with_descriptors(&store, 48);
    let gateway = first.gateway.to_string();
    let mut clients = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..40 {
        let client = Client::builder().cluster_id("test").gateways([gateway.as_str()]);
        match client.wait_for_gateway("0s").connect().await {
            Ok(client) => clients.push(client),
            Err(error) => refused.push(error.to_string()),
        }
    }
    assert!(clients.len() >= 16 && !refused.is_empty(), "{} connected", clients.len());
    let says = "too many connections";
    assert!(refused.iter().all(|error| error.contains(says)), "{refused:?}");
    let second = tokio::task::block_in_place(|| Silo::start(&store, "127.0.0.1:0", &[]));
    let airport = clients[0].grain::<dyn Airport>("JFK");
    assert_eq!(airport.totals().timeout(PATIENCE).await.unwrap().applied, 0);
    drop(second);
    first.process.signal("TERM");
    let (status, said) = tokio::task::block_in_place(|| first.process.end());
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains("the process has few descriptors"), "{said}");
}
