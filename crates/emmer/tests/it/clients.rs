//! Clients: how they find gateways, wait for them, and report them.

use emmer::errors::ConnectError;
use emmer::prelude::*;
use emmer::store::{HistoryTable, SiloTable};
use emmer::tables::{ClusterId, Timestamp};
use emmer::test::{Cluster, Failure, World};

#[grain_interface(key = u64)]
trait Bell {
    async fn ring(&mut self) -> u64;
}

#[derive(Grain, Default)]
struct BellGrain {
    rung: u64,
}

#[grain]
impl Bell for BellGrain {
    async fn ring(&mut self) -> u64 {
        self.rung += 1;
        self.rung
    }
}

async fn cluster(world: &World, silos: usize) -> Cluster {
    world.cluster(silos, |silo| silo.host::<dyn Bell, BellGrain>()).await
}

/// The gateways of a cluster, as an operator writes them into a list.
async fn gateways(world: &World) -> Vec<String> {
    let table = SiloTable::new(world.store().tables(), ClusterId::new("dev").unwrap());
    let rows = table.gateways().await.unwrap();
    rows.iter().map(|row| format!("{}:{}", row.address.ip(), row.proxy_port)).collect()
}

#[emmer::test(seeds = 3)]
async fn a_list_of_gateways_does_without_the_store(world: World) {
    let cluster = cluster(&world, 3).await;
    let list = gateways(&world).await;
    assert_eq!(list.len(), 3);
    let twice = [list.clone(), list[..1].to_vec()].concat();
    let client = cluster.client_of(|client| client.gateways(twice)).await;
    assert_eq!(client.gateway_watch().state().gateways.len(), 3);
    world.store().fail(Failure::Unavailable);
    assert_eq!(client.grain::<dyn Bell>(1).ring().await.unwrap(), 1);
    let before = world.store().requests();
    cluster.client_of(|client| client.gateways([list[0].as_str()])).await;
    let after = world.store().requests();
    // The silos continue their work; a client asks nothing.
    assert!(after.1 - before.1 <= 3, "{before:?} {after:?}");
}

/// One named gateway is enough: it names the others, and later ones.
#[emmer::test(seeds = 3)]
async fn a_client_that_knows_one_gateway_learns_of_all(world: World) {
    let mut cluster = cluster(&world, 3).await;
    let list = gateways(&world).await;
    let one = |client: emmer::options::ClientBuilder| client.gateways([list[0].as_str()]);
    let client = cluster.client_of(|client| one(client).discover()).await;
    let other = cluster.client_of(one).await;
    let mut watch = client.gateway_watch();
    while watch.state().gateways.len() < 3 {
        watch.changed().await;
    }
    // The silos that it began with die.
    cluster.add().await;
    while watch.state().gateways.len() < 4 {
        watch.changed().await;
    }
    for at in 0..3 {
        cluster.kill(at);
    }
    // A call that was under way to one of them may be lost.
    while client.grain::<dyn Bell>(1).ring().timeout(secs(60)).await.is_err() {}
    assert!(!other.gateway_watch().state().is_connected());
}

#[emmer::test(seeds = 3)]
async fn a_client_waits_for_its_cluster_and_its_store(world: World) {
    let mut cluster = cluster(&world, 1).await;
    world.store().fail(Failure::Unavailable);
    let connecting = cluster.client_of(|client| client.wait_for_gateway("20s"));
    let recovering = async {
        tokio::time::sleep(secs(5)).await;
        world.store().recover();
    };
    let (client, ()) = tokio::join!(connecting, recovering);
    assert_eq!(client.grain::<dyn Bell>(1).ring().timeout(secs(60)).await.unwrap(), 1);
    let mut watch = client.gateway_watch();
    assert!(watch.changed().await.is_connected());
    cluster.kill(0);
    assert!(!watch.changed().await.is_connected());
    let call = client.grain::<dyn Bell>(1).ring().timeout(secs(120));
    cluster.restart(0).await;
    let address = cluster.node(0).address();
    let (rung, state) = tokio::join!(call.into_future(), watch.connected());
    assert_eq!((rung.unwrap(), state.gateways), (1, vec![address]), "a new activation");
    client.close().await;
    assert!(watch.changed().await.closed);
}

#[emmer::test]
async fn no_more_calls_wait_for_a_gateway_than_may(world: World) {
    let cluster = cluster(&world, 1).await;
    let client = cluster.client_with(|options| options.calls_waiting_max = 3).await;
    client.grain::<dyn Bell>(1).ring().await.unwrap();
    let mut watch = client.gateway_watch();
    assert!(watch.changed().await.is_connected());
    cluster.kill(0);
    assert!(!watch.changed().await.is_connected());
    let calls = (0..5u64).map(|key| client.grain::<dyn Bell>(key).ring().timeout(secs(10)));
    let calls = calls.map(async |call| call.await.unwrap_err());
    let errors = futures_util::future::join_all(calls).await;
    let refused = |error: &CallError<_>| matches!(error, CallError::Overloaded { .. });
    assert_eq!(errors.iter().filter(|error| refused(error)).count(), 2, "{errors:?}");
    let words = errors.iter().find(|error| refused(error)).unwrap().to_string();
    assert!(words.contains("3 calls of this client wait for a gateway already"), "{words}");
    // Calls that waited are gone, and there is room again.
    let late = client.grain::<dyn Bell>(1).ring().timeout(secs(1)).await.unwrap_err();
    assert!(matches!(late, CallError::Timeout { maybe_executed: false, .. }), "{late}");
}

/// Errors of a wrong cluster name and of a missing gateway differ.
#[tokio::test]
async fn a_client_hears_what_the_store_has_in_the_place_of_a_gateway() {
    let store = crate::common::store();
    let silo = Silo::builder().store(store.clone()).cluster_id("rt");
    let silo = silo.host::<dyn Bell, BellGrain>().start().await.unwrap();
    let once = || Client::builder().store(store.clone()).wait_for_gateway(millis(0));
    let error = once().cluster_id("rt").connect().await.unwrap_err().to_string();
    assert!(
        error.ends_with("it has 1 Active silo, without a gateway: add `.gateway(..)`"),
        "{error}"
    );
    let error = once().cluster_id("rx").connect().await.unwrap_err().to_string();
    assert!(error.ends_with("no silo of it has used the store"), "{error}");
    // The store lists clusters that keep a history.
    let history = HistoryTable::new(store.clone(), ClusterId::new("rt").unwrap());
    history.ensure().await.unwrap();
    history.enlist(Timestamp::from_millis(0)).await.unwrap();
    let error = once().cluster_id("rx").connect().await.unwrap_err().to_string();
    assert!(error.ends_with("the store has no such cluster; it has rt"), "{error}");
    silo.stop().await.unwrap();
    let error = once().cluster_id("rt").connect().await.unwrap_err().to_string();
    assert!(error.ends_with("none of its silos is Active"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_connected_to_is_said_at_once_where_nobody_waits() {
    let once = || Client::builder().store("memory://nobody").wait_for_gateway(millis(0));
    let error = once().cluster_id("shop").connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::NoGateway { .. }), "{error}");
    assert!(error.to_string().ends_with("no silo of it has used the store"), "{error}");
    let error = once().cluster_id("two words").connect().await.unwrap_err();
    assert!(error.to_string().starts_with("cluster_id: \"two words\" is not a cluster"), "{error}");
    let error = once().gateways(["gateway"]).connect().await.unwrap_err();
    assert!(
        error.to_string().contains("\"gateway\" is not a gateway: expected host:port"),
        "{error}"
    );
    let error = once().gateways(["no-such-host.invalid:1"]).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Unresolved(_)), "{error}");
    let error = once().gateways(["127.0.0.1:1"]).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    let error = Client::connect("nonsense", "shop").await.unwrap_err();
    assert!(matches!(error, ConnectError::Store(_)), "{error}");
    // A store that does not know its word for good is not waited for.
    let silo = Silo::builder().store("memory://nobody").listen("localhost:1");
    let error = silo.start().await.unwrap_err().to_string();
    assert!(error.contains("listen: \"localhost:1\" is not an address: names of hosts"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_looked_up_and_texts_are_taken() {
    let silo = Silo::builder()
        .store("memory://texts")
        .cluster_id("texts")
        .listen("127.0.0.1:0")
        .gateway("127.0.0.1:0")
        .host::<dyn Bell, BellGrain>();
    let silo = silo.start().await.unwrap();
    let port = silo.gateway().unwrap().port();
    let list = [format!("localhost:{port}")];
    let client = Client::builder().cluster_id("texts").gateways(list).connect().await.unwrap();
    assert_eq!(client.grain::<dyn Bell>(1).ring().await.unwrap(), 1);
    let client = Client::connect("memory://texts", "texts").await.unwrap();
    assert_eq!(client.grain::<dyn Bell>(1).ring().await.unwrap(), 2);
    silo.stop().await.unwrap();
}

/// Of fifty-one gateways one lives, and no silo has noticed yet that the machines of the others are
/// gone: each swallows a dial.
#[emmer::test(seeds = 3)]
async fn one_living_gateway_among_fifty_silent_ones_is_found(world: World) {
    let cluster = cluster(&world, 51).await;
    let lasting = cluster.client_with(|options| options.gateways_max = 1).await;
    let first = lasting.gateways()[0];
    let survivor = cluster.nodes().iter().position(|node| node.address() != first).unwrap();
    for n in (0..51).filter(|n| *n != survivor) {
        if cluster.node(n).address() == first {
            cluster.kill(n);
        } else {
            cluster.unplug(n);
        }
    }
    let begun = world.elapsed();
    let client = cluster.client().await;
    assert!(world.elapsed() - begun <= secs(6), "{:?}", world.elapsed() - begun);
    assert_eq!(client.gateways(), [cluster.node(survivor).address()]);
    // The client that has lost its gateway has found it too.
    let mut watch = lasting.gateway_watch();
    while watch.state().gateways != [cluster.node(survivor).address()] {
        watch.changed().await;
    }
    assert!(world.elapsed() - begun <= secs(6), "{:?}", world.elapsed() - begun);
}

/// A client may have no right to write, and a store that a wrong address names is not made.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_only_reads() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}/cluster.db?mode=rwc", dir.path().display());
    let once = || Client::builder().store(store.as_str()).cluster_id("dev").wait_for_gateway("0s");
    let error = once().connect().await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a client has made a file");
    // It waits for the silos that make the store.
    let waits = tokio::spawn(Client::builder().store(store.as_str()).cluster_id("dev").connect());
    let silo = Silo::builder()
        .store(store.as_str())
        .gateway("127.0.0.1:0")
        .host::<dyn Bell, BellGrain>()
        .start()
        .await
        .unwrap();
    let client = waits.await.unwrap().unwrap();
    assert_eq!(client.grain::<dyn Bell>(7).ring().await.unwrap(), 1);
    client.close().await;
    silo.stop().await.unwrap();
}

/// The silo ends, for it looks for a table of its own. The client needs none.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_the_silos_of_a_store_that_was_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}/cluster.db", dir.path().display());
    let silo = async || {
        let silo = Silo::builder().store(store.as_str()).gateway("127.0.0.1:0");
        silo.host::<dyn Bell, BellGrain>().start().await.unwrap()
    };
    let old = silo().await;
    let client = Client::builder().store(store.as_str()).cluster_id("dev").connect().await.unwrap();
    assert_eq!(client.grain::<dyn Bell>(7).ring().await.unwrap(), 1);
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.path().join(format!("cluster.db{end}")));
    }
    assert_eq!(old.terminated().await, emmer::errors::TerminateReason::TableGone);
    assert!(client.grain::<dyn Bell>(7).ring().timeout(millis(100)).await.is_err());
    let new = silo().await;
    assert_eq!(client.grain::<dyn Bell>(7).ring().timeout(secs(60)).await.unwrap(), 1);
    client.close().await;
    new.stop().await.unwrap();
}
