//! Streams as arguments: order, pace, and ends on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emmer::CallError;
use emmer::prelude::*;
use emmer::test::{Cluster, NetModel, World};
use futures_util::{StreamExt, stream};

#[grain_interface(key = u64)]
trait Import {
    /// Takes all; the number of rows and the sum of their lengths.
    async fn rows(&mut self, rows: Source<Row>) -> Result<(u64, u64), String>;
    /// Takes three, and leaves the rest.
    async fn some(&self, rows: Source<Row>) -> u64;
    /// Takes three, and no more until it ends.
    async fn slow(&self, rows: Source<Row>, seconds: u64) -> u64;
    /// Gives back what comes in.
    async fn echo(&self, rows: Source<Row>, back: Sink<Row>) -> Result<(), String>;
    async fn silo(&self) -> String;
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Row {
    number: u64,
    #[serde(serialize_with = "unless_bad")]
    text: String,
}

fn unless_bad<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    if text == "bad" {
        return Err(serde::ser::Error::custom("a bad row"));
    }
    serializer.serialize_str(text)
}

#[derive(Grain)]
struct ImportGrain {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Import for ImportGrain {
    async fn rows(&mut self, mut rows: Source<Row>) -> Result<(u64, u64), String> {
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = rows.next().await {
            let row = row.map_err(|e| e.to_string())?;
            assert_eq!(row.number, count, "the order of rows");
            count += 1;
            bytes += row.text.len() as u64;
        }
        Ok((count, bytes))
    }

    async fn some(&self, mut rows: Source<Row>) -> u64 {
        let mut last = 0;
        for _ in 0..3 {
            last = rows.next().await.and_then(Result::ok).map_or(0, |row| row.number);
        }
        last
    }

    async fn slow(&self, mut rows: Source<Row>, seconds: u64) -> u64 {
        for _ in 0..3 {
            let _ = rows.next().await;
        }
        tokio::time::sleep(secs(seconds)).await;
        3
    }

    async fn echo(&self, mut rows: Source<Row>, back: Sink<Row>) -> Result<(), String> {
        while let Some(row) = rows.next().await {
            back.send(row.map_err(|e| e.to_string())?).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    async fn silo(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }
}

async fn cluster(world: &World) -> Cluster {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Import, ImportGrain>()).await;
    world.net().set_model(NetModel { delay_max: millis(2), split: 0.2, ..NetModel::default() });
    cluster
}

async fn on(cluster: &Cluster, client: &GrainFactory, n: usize) -> ImportRef {
    let wanted = cluster.node(n).address().to_string();
    for key in 0..100 {
        let import = client.grain::<dyn Import>(key);
        if import.silo().await.unwrap() == wanted {
            return import;
        }
    }
    unreachable!("a hundred grains, and none on {wanted}")
}

fn row(number: u64, bytes: usize) -> Row {
    Row { number, text: "x".repeat(bytes) }
}

/// Rows without end, and the number of those that were asked for.
fn endless() -> (Source<Row>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let rows = stream::iter(0..).map(move |number| {
        counted.fetch_add(1, Ordering::Relaxed);
        row(number, 10)
    });
    (Source::new(rows), asked)
}

async fn imports(import: ImportRef) {
    for (n, bytes) in [(0, 1), (1, 1), (3_000, 20), (30, 30_000)] {
        let rows: Vec<Row> = (0..n).map(|number| row(number, bytes)).collect();
        let taken = import.rows(rows).await.unwrap();
        assert_eq!(taken, (n, n * bytes as u64));
    }
    let (rows, _asked) = endless();
    assert_eq!(import.some(rows).await.unwrap(), 2, "a method may leave the rest");
    let rows = stream::iter(0..1_000).map(|number| row(number, 5)).boxed();
    let mut back = import.echo(rows);
    let mut next = 0;
    while let Some(row) = back.next().await {
        assert_eq!(row.unwrap().number, next);
        next += 1;
    }
    assert_eq!(next, 1_000);
}

fn open(cluster: &Cluster, n: usize) -> f64 {
    let samples = cluster.node(n).watch().metrics();
    let streams = samples.iter().filter(|sample| sample.metric.name == "emmer_streams");
    let open = streams.map(|sample| match sample.value {
        emmer::metrics::MetricValue::Level(open) => open,
        _ => unreachable!("a gauge"),
    });
    open.sum()
}

#[emmer::test(seeds = 5)]
async fn rows_arrive_in_order_and_their_end_is_told(world: World) {
    let cluster = cluster(&world).await;
    let client = cluster.client().await;
    for n in 0..2 {
        imports(on(&cluster, &client.grains(), n).await).await;
        let key = on(&cluster, &client.grains(), n).await.key();
        let call = async move |grains: GrainFactory| imports(grains.grain::<dyn Import>(key)).await;
        cluster.node(0).run(call).await.unwrap();
        world.advance(secs(1)).await;
        assert_eq!((open(&cluster, 0), open(&cluster, 1)), (0.0, 0.0), "nothing is left behind");
    }
}

#[emmer::test(seeds = 5)]
async fn a_method_that_does_not_read_stops_the_stream(world: World) {
    let cluster = cluster(&world).await;
    let client = cluster.client().await;
    let import = on(&cluster, &client.grains(), 1).await;
    let (rows, asked) = endless();
    assert_eq!(import.slow(rows, 100).await.unwrap(), 3);
    let asked_for = asked.load(Ordering::Relaxed);
    assert!(asked_for <= 3 + 2 * 512, "{asked_for} rows");
    world.advance(secs(20)).await;
    assert_eq!(asked.load(Ordering::Relaxed), asked_for, "the stream is dropped");
    assert_eq!(open(&cluster, 1), 0.0);
}

#[emmer::test(seeds = 5)]
async fn a_stream_that_breaks_off_is_no_end(world: World) {
    let cluster = cluster(&world).await;
    let client = cluster.client().await;
    let import = on(&cluster, &client.grains(), 1).await;
    let bad = Row { number: 2, text: "bad".to_owned() };
    let error = import.rows(vec![row(0, 1), row(1, 1), bad]).await.unwrap_err();
    let CallError::App(why) = error else { panic!("{error}") };
    assert!(why.contains("broke off after 2"), "{why}");
    // The caller gives up: the method hears of it.
    let (rows, _asked) = endless();
    let given_up = tokio::time::timeout(millis(300), import.rows(rows)).await;
    assert!(given_up.is_err());
    let after = tokio::time::timeout(secs(2), import.rows(Vec::new())).await;
    assert_eq!(after.unwrap().unwrap(), (0, 0), "the turn before it has ended");
}

#[emmer::test(seeds = 5)]
async fn a_client_that_dies_ends_its_upload(world: World) {
    let cluster = cluster(&world).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let import = on(&cluster, &one.grains(), 1).await;
    let key = import.key();
    let upload = async {
        let (rows, _asked) = endless();
        two.grain::<dyn Import>(key).rows(rows).await
    };
    let dies = async {
        world.advance(millis(200)).await;
        two.close().await;
    };
    let (uploaded, ()) = tokio::join!(upload, dies);
    assert!(uploaded.is_err(), "{uploaded:?}");
    let after = tokio::time::timeout(secs(20), import.rows(Vec::new())).await;
    assert_eq!(after.unwrap().unwrap(), (0, 0), "the turn before it has ended");
}
