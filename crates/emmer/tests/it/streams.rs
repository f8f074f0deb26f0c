//! Streamed answers: order, ends, back-pressure, and the ends of processes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use emmer::CallError;
use emmer::prelude::*;
use emmer::streams::{Answers, SinkError};
use emmer::test::{Cluster, NetModel, World};
use futures_util::{StreamExt, stream};

#[grain_interface(key = u64)]
trait Log {
    /// The numbers from `from` on.
    async fn count(&self, from: u64, n: u64, bytes: usize, lines: Sink<Line>) -> u64;
    async fn fail(&self, n: u64, numbers: Sink<u64>) -> Result<u64, String>;
    async fn burn(&self, n: u64, numbers: Sink<u64>);
    /// Streams until it is closed, and counts into [`PRODUCED`].
    async fn pour(&self, id: u64, numbers: Sink<u64>);
    /// Keeps the sink under its number, and returns.
    async fn tail(&mut self, id: u64, numbers: Sink<u64>) -> Result<(), String>;
    /// Gives `n` to every tail; the number of those that took it.
    async fn say(&mut self, n: u64) -> usize;
    async fn end(&mut self, id: u64);
    async fn leave(&mut self);
    /// Waits for its reader alone.
    async fn wait(&self, numbers: Sink<u64>);
    /// Three numbers, and then none for a long time.
    async fn forward(&self, numbers: Sink<u64>);
    async fn silo(&self) -> String;
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Line {
    number: u64,
    text: String,
}

/// Values that went into sinks, by the number of the stream. Keys are drawn, so that tests on other
/// threads have others.
static PRODUCED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

#[derive(Grain)]
struct LogGrain {
    tails: HashMap<u64, Sink<u64>>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Log for LogGrain {
    async fn count(&self, from: u64, n: u64, bytes: usize, lines: Sink<Line>) -> u64 {
        for number in from..from + n {
            let line = Line { number, text: "x".repeat(bytes) };
            if lines.send(line).await.is_err() {
                return number;
            }
        }
        from + n
    }

    async fn fail(&self, n: u64, numbers: Sink<u64>) -> Result<u64, String> {
        for number in 0..n {
            numbers.send(number).await.map_err(|e| e.to_string())?;
        }
        Err(format!("enough after {n}"))
    }

    async fn burn(&self, n: u64, numbers: Sink<u64>) {
        for number in 0..n {
            let _ = numbers.send(number).await;
        }
        panic!("fire");
    }

    async fn pour(&self, id: u64, numbers: Sink<u64>) {
        let mut number = 0;
        while numbers.send(number).await.is_ok() {
            number += 1;
            PRODUCED[id as usize].store(number, Ordering::Relaxed);
        }
        PRODUCED[id as usize].store(u64::MAX, Ordering::Relaxed);
    }

    async fn tail(&mut self, id: u64, numbers: Sink<u64>) -> Result<(), String> {
        self.tails.insert(id, numbers);
        Ok(())
    }

    async fn say(&mut self, n: u64) -> usize {
        self.tails.retain(|_, tail| tail.try_send(n) != Err(SinkError::Closed));
        self.tails.len()
    }

    async fn end(&mut self, id: u64) {
        self.tails.remove(&id);
    }

    async fn leave(&mut self) {
        self.ctx.deactivate_on_idle();
    }

    async fn wait(&self, numbers: Sink<u64>) {
        let _ = numbers.send(0).await;
        numbers.closed().await;
    }

    async fn forward(&self, numbers: Sink<u64>) {
        let three = stream::iter(0..3);
        assert_eq!(numbers.send_all(three.clone()).await, Ok(()));
        assert_eq!(numbers.send_all(three.chain(stream::pending())).await, Err(SinkError::Closed));
    }

    async fn silo(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }
}

async fn cluster(world: &World, silos: usize) -> Cluster {
    let cluster = world.cluster(silos, |silo| silo.host::<dyn Log, LogGrain>()).await;
    world.net().set_model(NetModel { delay_max: millis(2), split: 0.2, ..NetModel::default() });
    cluster
}

/// A grain on the silo `n`.
async fn on(cluster: &Cluster, client: &GrainFactory, n: usize) -> LogRef {
    let wanted = cluster.node(n).address().to_string();
    for key in 0..100 {
        let log = client.grain::<dyn Log>(key);
        if log.silo().await.unwrap() == wanted {
            return log;
        }
    }
    unreachable!("a hundred grains, and none on {wanted}")
}

/// Streams of the silo `n` with other processes.
fn open(cluster: &Cluster, n: usize) -> u64 {
    let samples = cluster.node(n).watch().metrics();
    let streams = samples.iter().filter(|sample| sample.metric.name == "emmer_streams");
    let open = streams.map(|sample| match sample.value {
        emmer::metrics::MetricValue::Level(open) => open as u64,
        _ => unreachable!("a gauge"),
    });
    open.sum()
}

/// The values of a stream, and its end.
async fn all<T, E, R>(mut answers: Answers<T, E, R>) -> (Vec<T>, Option<CallError<E>>) {
    let mut values = Vec::new();
    while let Some(next) = answers.next().await {
        match next {
            Ok(value) => values.push(value),
            Err(error) => {
                assert!(answers.next().await.is_none(), "an error is the last item");
                return (values, Some(error));
            }
        }
    }
    (values, None)
}

async fn counts(log: LogRef) {
    for (n, bytes) in [(0, 1), (1, 3), (3_000, 10), (40, 20_000)] {
        let (lines, error) = all(log.count(5, n, bytes)).await;
        assert!(error.is_none(), "{error:?}");
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, (5..5 + n).collect::<Vec<_>>());
        assert!(lines.iter().all(|line| line.text.len() == bytes));
    }
    assert_eq!(log.count(1, 10, 1).returned().await.unwrap(), 11);
}

#[emmer::test(seeds = 5)]
async fn values_come_in_order_and_the_end_is_told(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    for n in 0..3 {
        counts(on(&cluster, &client.grains(), n).await).await;
        assert_eq!(open(&cluster, n), 0, "nothing is left behind");
        let call = async move |grains: GrainFactory| {
            for key in 0..10 {
                counts(grains.grain::<dyn Log>(key)).await;
            }
        };
        cluster.node(n).run(call).await.unwrap();
    }
}

#[emmer::test(seeds = 5)]
async fn an_error_comes_after_the_values_before_it(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let fails = async |log: LogRef| {
        let (numbers, error) = all(log.fail(700)).await;
        assert_eq!(numbers, (0..700).collect::<Vec<_>>());
        assert!(matches!(&error, Some(CallError::App(why)) if why == "enough after 700"));
        let (numbers, error) = all(log.burn(30)).await;
        assert!(numbers.len() <= 30, "{}", numbers.len());
        assert!(matches!(error, Some(CallError::Panicked { .. })), "{error:?}");
    };
    fails(on(&cluster, &client.grains(), 1).await).await;
    let call = async move |grains: GrainFactory| {
        for key in 0..10 {
            fails(grains.grain::<dyn Log>(key)).await;
        }
    };
    cluster.node(0).run(call).await.unwrap();
}

#[emmer::test(seeds = 5)]
async fn a_reader_that_does_not_read_stops_the_writer(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let id = 60;
    let log = on(&cluster, &client.grains(), 1).await;
    let mut numbers = log.pour(id);
    for n in 0..3 {
        assert_eq!(numbers.next().await.unwrap().unwrap(), n);
    }
    world.advance(secs(300)).await;
    let produced = PRODUCED[id as usize].load(Ordering::Relaxed);
    // Values that the reader has taken, and the window.
    assert!(produced <= 3 + 2 * 512, "{produced} values");
    for n in 3..2_000 {
        assert_eq!(numbers.next().await.unwrap().unwrap(), n);
    }
    drop(numbers);
    world.advance(millis(20)).await;
    assert_eq!(open(&cluster, 1), 0, "nothing is left behind");
    assert_eq!(PRODUCED[id as usize].load(Ordering::Relaxed), u64::MAX, "the turn has heard of it");
}

#[emmer::test(seeds = 5)]
async fn a_sink_that_is_kept_outlives_its_call(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let log = on(&cluster, &client.grains(), 1).await;
    let (mut one, mut two) = (log.tail(1), log.tail(2));
    let begun =
        tokio::join!(async { tokio::time::timeout(secs(1), one.next()).await.is_err() }, async {
            tokio::time::timeout(secs(1), two.next()).await.is_err()
        },);
    assert_eq!(begun, (true, true), "nothing was said");
    assert_eq!(log.say(7).await.unwrap(), 2);
    assert_eq!(one.next().await.unwrap().unwrap(), 7);
    world.advance(secs(600)).await;
    assert_eq!(log.say(8).await.unwrap(), 2, "an idle stream stays open");
    assert_eq!(one.next().await.unwrap().unwrap(), 8);
    log.end(1).await.unwrap();
    assert!(one.next().await.is_none(), "dropped in a turn: the end");
    log.leave().await.unwrap();
    let (numbers, error) = all(two).await;
    assert_eq!(numbers, [7, 8]);
    assert_eq!(open(&cluster, 1), 0, "nothing is left behind");
    let error = error.expect("dropped with its grain").to_string();
    assert!(error.contains("broke off after 2 values"), "{error}");
}

#[emmer::test(seeds = 10)]
async fn a_silo_that_dies_ends_its_streams(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let log = on(&cluster, &client.grains(), 2).await;
    let (mut tail, mut pour) = (log.tail(1), log.pour(61));
    assert!(tokio::time::timeout(secs(1), tail.next()).await.is_err());
    assert_eq!(pour.next().await.unwrap().unwrap(), 0);
    cluster.kill(2);
    let begun = world.elapsed();
    let ends = async {
        let (_, tail) = all(tail).await;
        let (_, pour) = all(pour).await;
        (tail, pour)
    };
    let (tail, pour) = tokio::time::timeout(secs(60), ends).await.unwrap();
    assert!(matches!(tail, Some(CallError::Unreachable { maybe_executed: true, .. })), "{tail:?}");
    assert!(matches!(pour, Some(CallError::Unreachable { maybe_executed: true, .. })), "{pour:?}");
    let took = world.elapsed().saturating_sub(begun);
    assert!(took <= secs(20), "{took:?}");
}

#[emmer::test(seeds = 10)]
async fn a_gateway_that_dies_ends_the_streams_behind_it_at_once(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client_with(|options| options.gateways_max = 1).await;
    let gateway = client.gateways()[0];
    let at = usize::from(cluster.node(1).address() == gateway);
    let log = on(&cluster, &client.grains(), 1 - at).await;
    let mut tail = log.tail(1);
    assert!(tokio::time::timeout(secs(1), tail.next()).await.is_err());
    assert_eq!(log.say(1).await.unwrap(), 1);
    cluster.kill(at);
    let begun = world.elapsed();
    let (numbers, error) = all(tail).await;
    let took = world.elapsed().saturating_sub(begun);
    assert_eq!(numbers, [1]);
    assert!(matches!(error, Some(CallError::Unreachable { .. })), "{error:?}");
    assert!(took <= secs(1), "{took:?}");
    // The grain hears that its reader is gone.
    let said = async {
        loop {
            if log.say(2).await == Ok(0) {
                return;
            }
            world.advance(secs(1)).await;
        }
    };
    assert!(tokio::time::timeout(secs(60), said).await.is_ok());
}

#[emmer::test(seeds = 5)]
async fn a_dropped_stream_wakes_a_turn_that_waits_for_it(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    for n in 0..2 {
        let log = on(&cluster, &client.grains(), n).await;
        let mut waiting = log.wait();
        assert_eq!(waiting.next().await.unwrap().unwrap(), 0);
        drop(waiting);
        world.advance(millis(50)).await;
        assert_eq!(cluster.node(n).statistics().calls_serving, 0, "the turn is over");
        let mut forwarded = log.forward();
        for number in [0, 1, 2, 0, 1, 2] {
            assert_eq!(forwarded.next().await.unwrap().unwrap(), number);
        }
        assert_eq!(cluster.node(n).statistics().calls_serving, 1);
        drop(forwarded);
        world.advance(millis(50)).await;
        assert_eq!(cluster.node(n).statistics().calls_serving, 0, "the turn is over");
    }
}

/// Within a silo a turn wakes its readers late, and yet at the end of its poll.
#[emmer::test]
async fn a_reader_hears_each_turn_that_has_sent_a_value(world: World) {
    let cluster = cluster(&world, 1).await;
    let hears = async |grains: GrainFactory| {
        let log = grains.grain::<dyn Log>(1);
        let mut numbers = log.tail(1);
        let reads = tokio::spawn(async move {
            for number in 0..5 {
                assert_eq!(numbers.next().await.unwrap().unwrap(), number);
            }
        });
        tokio::time::sleep(millis(50)).await;
        for number in 0..5 {
            assert_eq!(log.say(number).await.unwrap(), 1);
            // The reader waits again, in the same millisecond.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        tokio::time::timeout(millis(10), reads).await.unwrap().unwrap();
    };
    cluster.node(0).run(hears).await.unwrap();
}

#[emmer::test(seeds = 5)]
async fn silence_is_bounded_where_the_caller_says_so(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let log = on(&cluster, &client.grains(), 1).await;
    let mut waiting = log.wait().silence(secs(3));
    assert_eq!(waiting.next().await.unwrap().unwrap(), 0);
    let begun = world.elapsed();
    let error = waiting.next().await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert_eq!(world.elapsed().saturating_sub(begun).as_secs(), 3);
}

/// The grain of a silo that leaves: its streams break off, and the silo does not wait for them.
#[emmer::test(seeds = 5)]
async fn a_silo_that_leaves_breaks_its_streams_off(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let log = on(&cluster, &client.grains(), 1).await;
    let mut pour = log.pour(62);
    assert_eq!(pour.next().await.unwrap().unwrap(), 0);
    let mut waiting = log.wait();
    assert_eq!(waiting.next().await.unwrap().unwrap(), 0);
    let begun = world.elapsed();
    let ends = async {
        let (_, pour) = all(pour).await;
        let (_, waiting) = all(waiting).await;
        (pour, waiting)
    };
    let ((), (pour, waiting)) = tokio::join!(cluster.stop(1), ends);
    assert!(world.elapsed().saturating_sub(begun) < secs(10));
    assert!(matches!(pour, Some(CallError::Unreachable { .. })), "{pour:?}");
    assert!(matches!(waiting, Some(CallError::Unreachable { .. })), "{waiting:?}");
}

/// Reads as a seed says: at once, slowly, or not to the end.
async fn reads(world: &World, log: LogRef, n: u64) {
    let mut lines = log.count(0, n, usize::try_from(world.bits() % 300).unwrap());
    let (slow, stop) = (world.bits().is_multiple_of(3), world.bits().is_multiple_of(4));
    let stop = if stop { world.bits() % (n + 1) } else { n + 1 };
    let mut read = 0;
    while read < stop {
        match lines.next().await {
            Some(Ok(line)) => {
                assert_eq!(line.number, read, "the order of values");
                read += 1;
            }
            Some(Err(CallError::App(never))) => match never {},
            Some(Err(_)) => {
                assert!(lines.next().await.is_none(), "an end is told once");
                return;
            }
            None => {
                assert_eq!(read, n, "an end that is told, and values are missing");
                return;
            }
        }
        if slow {
            world.advance(millis(world.bits() % 200)).await;
        }
    }
}

/// Kills, cuts, lost gateways, slow readers and dropped streams.
#[emmer::test(seeds = 8)]
async fn whatever_happens_order_holds_and_every_end_is_told(world: World) {
    let mut cluster = cluster(&world, 4).await;
    let (one, two) = (cluster.client().await, cluster.client().await);
    let keys: Vec<u64> = (0..24).map(|_| world.bits() % 8).collect();
    let faults = async {
        for _ in 0..6 {
            world.advance(millis(world.bits() % 3_000)).await;
            let n = 1 + usize::try_from(world.bits() % 3).unwrap();
            match world.bits() % 5 {
                0 => {
                    cluster.kill(n);
                    cluster.restart(n).await;
                }
                1 => cluster.forget_connections(0, n),
                2 => {
                    cluster.isolate(n);
                    world.advance(millis(world.bits() % 2_000)).await;
                    cluster.heal();
                }
                3 => cluster.forget_all_connections(),
                _ => {}
            }
        }
        cluster.heal();
    };
    let reading = async {
        let streams = keys.iter().enumerate().map(async |(n, key)| {
            world.advance(millis(world.bits() % 8_000)).await;
            let client = if n % 2 == 0 { &one } else { &two };
            reads(&world, client.grain::<dyn Log>(*key), world.bits() % 4_000).await;
        });
        futures_util::future::join_all(streams).await
    };
    let (complete, ()) = tokio::join!(tokio::time::timeout(secs(3_600), reading), faults);
    complete.expect("every end is told");
    drop((one, two));
    world.advance(secs(60)).await;
    for n in 0..4 {
        assert_eq!(open(&cluster, n), 0, "silo {n} has streams left");
    }
}
