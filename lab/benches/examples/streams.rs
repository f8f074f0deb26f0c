//! Streams and observers: the processor time of a value, the wait for the first one, the memory of
//! an idle stream, and one event for 100,000 observers.
//!
//! `cargo run --release -p emmer-benches --example streams`. Two silos and the clients are in this
//! process, and talk over its loopback: the processor time is that of both sides together.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use emmer::observers::{News, Watch};
use emmer::prelude::*;
use emmer::streams::Answers;
use emmer_benches::Result;
use emmer_benches::meter::{Meter, resident};
use emmer_report::Goal;
use emmer_report::numbers::record;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// Values of a stream, in one measurement.
const VALUES: u64 = 2_000_000;
/// Streams at once.
const STREAMS: u64 = 1_024;
/// Calls that a value is compared with.
const CALLS: u64 = 200_000;
/// Tries of the first value.
const FIRSTS: usize = 2_000;
/// Streams that stay idle.
const IDLE: u64 = 10_000;
/// Observers of one grain, and the clients that have them.
const OBSERVERS: usize = 100_000;
const CLIENTS: usize = 100;
/// Number of events for them.
const EVENTS: u64 = 20;

/// A value of about 100 bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reading([u64; 12]);

#[observer]
trait Heard {
    fn said(&self, text: Bytes);
}

#[grain_interface(key = u64, grain = "bench-streams")]
trait Streams {
    async fn readings(&self, n: u64, to: Sink<Reading>);
    async fn bytes(&self, n: u64, to: Sink<Bytes>);
    async fn echo(&self, bytes: Bytes) -> Bytes;
    async fn keep(&self, to: Sink<Bytes>);
    async fn rest(&self);
    async fn join(&self, who: ObserverRef<dyn Heard>) -> emmer::Result<()>;
    async fn say(&self, text: Bytes) -> u64;
    async fn silo(&self) -> String;
}

#[derive(Grain)]
struct StreamsGrain {
    observers: Observers<dyn Heard>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Streams for StreamsGrain {
    async fn readings(&self, n: u64, to: Sink<Reading>) {
        for number in 0..n {
            if to.send(Reading([number; 12])).await.is_err() {
                return;
            }
        }
    }

    async fn bytes(&self, n: u64, to: Sink<Bytes>) {
        let value = Bytes::from(vec![7; 100]);
        for _ in 0..n {
            if to.send(value.clone()).await.is_err() {
                return;
            }
        }
    }

    async fn echo(&self, bytes: Bytes) -> Bytes {
        bytes
    }

    async fn rest(&self) {
        std::future::pending::<()>().await;
    }

    async fn keep(&self, to: Sink<Bytes>) {
        to.closed().await;
    }

    async fn join(&self, who: ObserverRef<dyn Heard>) -> emmer::Result<()> {
        Ok(self.observers.add(who)?)
    }

    async fn say(&self, text: Bytes) -> u64 {
        self.observers.tell(|to| to.said(text));
        self.observers.len()
    }

    async fn silo(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let store: std::sync::Arc<dyn emmer::store::SystemStore> =
        std::sync::Arc::new(emmer::store::MemoryStore::new());
    let start = || {
        Silo::builder()
            .store(store.clone())
            .cluster_id("bench")
            .listen("127.0.0.1:0")
            .gateway("127.0.0.1:0")
            .host::<dyn Streams, StreamsGrain>()
            .start()
    };
    let (one, two) = (start().await?, start().await?);
    let here = one.grains();
    // First: memory that others have left would be used again, and not be counted.
    let idle = idle(&on(&here, &two).await?).await?;
    let mut goals = vec![
        std::thread::spawn(|| alone().map_err(|e| e.to_string()))
            .join()
            .map_err(|_| "a panic")??,
        local("a value within a silo, two threads, ns of CPU", on(&here, &one).await?).await?,
    ];
    goals.extend(between(&on(&here, &two).await?).await?);
    goals.push(idle);
    let clients = clients(&store).await?;
    goals.extend(observed(&on(&here, &two).await?, &clients).await?);
    for goal in &goals {
        println!("{:<60} {:>10.3} (goal {})", goal.what, goal.reached.unwrap_or(0.0), goal.at_most);
    }
    record("streams", &goals)?;
    Ok(())
}

/// A grain on this silo.
async fn on(grains: &GrainFactory, silo: &Silo) -> Result<StreamsRef> {
    let wanted = silo.address().to_string();
    for key in 0..1_000 {
        let grain = grains.grain::<dyn Streams>(key);
        if grain.silo().await? == wanted {
            return Ok(grain);
        }
    }
    Err("no grain is on the silo".into())
}

/// Reads a stream to its end; the number of its values.
async fn read<T: serde::de::DeserializeOwned>(mut answers: Answers<T>) -> Result<u64> {
    let mut count = 0;
    while let Some(value) = answers.next().await {
        std::hint::black_box(value?);
        count += 1;
    }
    Ok(count)
}

/// A silo whose runtime has one thread.
#[tokio::main(flavor = "current_thread")]
async fn alone() -> Result<Goal> {
    let store: std::sync::Arc<dyn emmer::store::SystemStore> =
        std::sync::Arc::new(emmer::store::MemoryStore::new());
    let silo = Silo::builder().store(store).cluster_id("alone");
    let silo = silo.listen("127.0.0.1:0").gateway("127.0.0.1:0");
    let silo = silo.host::<dyn Streams, StreamsGrain>().start().await?;
    let grain = on(&silo.grains(), &silo).await?;
    let goal = local("a value within a silo, one thread, ns of CPU", grain).await?;
    silo.stop().await?;
    Ok(goal)
}

/// A task reads: the writer runs on the same thread, or on another one.
async fn local(what: &'static str, grain: StreamsRef) -> Result<Goal> {
    read(grain.readings(VALUES / 10)).await?;
    let meter = Meter::start();
    let reads = async move { read(grain.readings(VALUES)).await.map_err(|e| e.to_string()) };
    let count = tokio::spawn(reads).await??;
    Ok(Goal::at_most(what, each(meter, count), 60.0))
}

async fn between(grain: &StreamsRef) -> Result<Vec<Goal>> {
    let call = calls(grain).await?;
    let meter = Meter::start();
    let one = read(grain.bytes(VALUES)).await?;
    let one = each(meter, one) / call;
    let meter = Meter::start();
    let mut streams = JoinSet::new();
    for _ in 0..STREAMS {
        let grain = grain.clone();
        streams.spawn(async move {
            read(grain.bytes(VALUES / STREAMS)).await.map_err(|e| e.to_string())
        });
    }
    let mut count = 0;
    while let Some(read) = streams.join_next().await {
        count += read??;
    }
    let many = each(meter, count) / call;
    let (called, first) = firsts(grain).await?;
    println!("a call between silos: {call:.0} ns of CPU, {called:?} p50; a first value {first:?}");
    Ok(vec![
        Goal::at_most("a value between silos, of a call's CPU, 1 stream", one, 0.5),
        Goal::at_most("a value between silos, of a call's CPU, 1,024 streams", many, 0.5),
        Goal::at_most(
            "the first value, of a call's time (p50)",
            first.as_secs_f64() / called.as_secs_f64(),
            1.2,
        ),
    ])
}

/// The processor time of a call, of 64 callers, in nanoseconds.
async fn calls(grain: &StreamsRef) -> Result<f64> {
    let value = Bytes::from(vec![7; 100]);
    grain.echo(value.clone()).await?;
    let meter = Meter::start();
    let mut callers = JoinSet::new();
    for _ in 0..64 {
        let (grain, value) = (grain.clone(), value.clone());
        callers.spawn(async move {
            for _ in 0..CALLS / 64 {
                grain.echo(value.clone()).await.map_err(|e| e.to_string())?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(called) = callers.join_next().await {
        called??;
    }
    Ok(each(meter, CALLS))
}

/// The times of a call, and of a stream until its first value: the middle of each.
async fn firsts(grain: &StreamsRef) -> Result<(Duration, Duration)> {
    let (mut calls, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..FIRSTS {
        let begun = Instant::now();
        grain.echo(Bytes::from(vec![7; 100])).await?;
        calls.push(begun.elapsed());
        let begun = Instant::now();
        let mut stream = grain.bytes(1);
        stream.next().await.ok_or("no value")??;
        streams.push(begun.elapsed());
        read(stream).await?;
    }
    calls.sort_unstable();
    streams.sort_unstable();
    Ok((calls[FIRSTS / 2], streams[FIRSTS / 2]))
}

/// The memory of an idle stream, on both sides together, without that of its call.
async fn idle(grain: &StreamsRef) -> Result<Goal> {
    let begun = resident()?;
    let mut calls = Vec::new();
    for _ in 0..IDLE {
        let mut call = Box::pin(grain.rest().into_future());
        begin(&mut call);
        calls.push(call);
    }
    let call = grown(begun).await?;
    let begun = resident()?;
    let mut streams = Vec::new();
    for _ in 0..IDLE {
        let mut stream = grain.keep();
        begin(stream.next());
        streams.push(stream);
    }
    let stream = grown(begun).await?;
    println!("an idle call {call:.0} bytes on both sides, with a stream {stream:.0}");
    Ok(Goal::at_most("an idle stream, bytes on both sides beyond its call", stream - call, 2_048.0))
}

/// The memory that each of [`IDLE`] has taken since it was `begun` bytes.
#[expect(clippy::cast_precision_loss, reason = "a count of bytes")]
async fn grown(begun: u64) -> Result<f64> {
    // By then both sides are silent.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(resident()?.saturating_sub(begun) as f64 / IDLE as f64)
}

async fn clients(store: &std::sync::Arc<dyn emmer::store::SystemStore>) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(emmer_benches::silos::client(store.clone()).await?);
    }
    Ok(clients)
}

async fn observed(grain: &StreamsRef, clients: &[Client]) -> Result<Vec<Goal>> {
    let key = grain.key();
    let mut watches: Vec<Watch<dyn Heard>> = Vec::new();
    for client in clients {
        let grain = client.grain::<dyn Streams>(key);
        for _ in 0..OBSERVERS / CLIENTS {
            let mut watch = client.watch(&grain, |grain, me| grain.join(me)).capacity(64);
            begin(watch.next());
            watches.push(watch);
        }
    }
    let text = Bytes::from(vec![7; 100]);
    let begun = Instant::now();
    while grain.say(Bytes::new()).await? < OBSERVERS as u64 {
        if begun.elapsed() > Duration::from_secs(120) {
            return Err("the observers have not joined within two minutes".into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("{OBSERVERS} observers have joined in {:?}", begun.elapsed());
    heard(&mut watches, 0).await?;
    let meter = Meter::start();
    for _ in 0..EVENTS {
        grain.say(text.clone()).await?;
    }
    heard(&mut watches, EVENTS).await?;
    let told = each(meter, EVENTS * OBSERVERS as u64);
    let for_all = told * OBSERVERS as f64 / 1e6;
    Ok(vec![
        Goal::at_most("an event for 100,000 observers on 100 clients, ms of CPU", for_all, 100.0),
        Goal::at_most("the same for each observer, ns of CPU", told, 1_000.0),
    ])
}

/// Reads everything that was told, and then as many events from each.
async fn heard(watches: &mut [Watch<dyn Heard>], events: u64) -> Result<()> {
    for watch in watches {
        let mut count = 0;
        while count < events {
            match watch.next().await {
                Some(Ok(News::Event(_))) => count += 1,
                Some(Ok(News::Gap(gap))) => return Err(format!("{gap:?}").into()),
                other => return Err(format!("{other:?}").into()),
            }
        }
        if events == 0 {
            while begin(watch.next()) {}
        }
    }
    Ok(())
}

/// Polls once: a stream begins by that. Returns true if it has something.
fn begin<T>(next: impl Future<Output = T>) -> bool {
    pin!(next).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of large numbers")]
fn each(meter: Meter, count: u64) -> f64 {
    meter.read().1.as_nanos() as f64 / count as f64
}
