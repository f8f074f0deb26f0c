//! Counters of a silo for its operator, and the limits that refusals name.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};

use emmer::metrics::{METRICS, MetricKind, MetricValue};
use emmer::observe::Readiness;
use emmer::prelude::*;
use emmer::statistics::MethodStatistics;
use emmer::test::{Failure, NetModel, Node, World};

use crate::common::{self, Counter, CounterGrain, cluster};

fn of(silo: &Silo, method: &str) -> MethodStatistics {
    silo.method_statistics().into_iter().find(|m| m.method == method).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_errors_and_latencies_are_counted_by_method() {
    let (store, silos) = cluster(1).await;
    let counter = silos[0].grains().grain::<dyn Counter>("a");
    for _ in 0..200 {
        counter.total().await.unwrap();
    }
    // From outside, too.
    let client = Client::builder().store(store.clone()).connect().await.unwrap();
    for _ in 0..100 {
        client.grain::<dyn Counter>("a").total().await.unwrap();
    }
    counter.hold_other("a".to_owned()).await.unwrap_err();
    counter.fail().await.unwrap_err();
    let total = of(&silos[0], "Counter.total");
    assert_eq!((total.calls, total.own_errors, total.failures), (300, 0, 0));
    assert!(total.latency.samples() >= 300 / 64, "{:?}", total.latency);
    assert!(total.latency.quantile(0.5).unwrap() < std::time::Duration::from_secs(5));
    assert_eq!(of(&silos[0], "Counter.hold_other").own_errors, 1);
    assert_eq!(of(&silos[0], "Counter.fail").failures, 1);
    let all = silos[0].statistics();
    assert_eq!((all.turns, all.calls_in_flight, all.calls_serving), (302, 0, 0));
}

#[grain_interface(key = String, grain = "blocker")]
trait Blocker {
    async fn block(&mut self, after: u64);
    async fn block_between(&mut self, after: u64);
}

#[derive(Grain)]
struct BlockerGrain;

static NOTICED: AtomicU64 = AtomicU64::new(0);

/// Holds the thread until the test has noticed once more.
fn hold(after: u64) {
    while NOTICED.load(Ordering::Acquire) <= after {
        std::thread::sleep(millis(1));
    }
}

#[grain]
impl Blocker for BlockerGrain {
    async fn block(&mut self, after: u64) {
        hold(after);
    }

    async fn block_between(&mut self, after: u64) {
        tokio::task::yield_now().await;
        hold(after);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_that_holds_its_thread_is_noticed() {
    let silo = Silo::builder()
        .store(common::store())
        .host::<dyn Blocker, BlockerGrain>()
        .start()
        .await
        .unwrap();
    let blocker = silo.grain::<dyn Blocker>("a");
    for before in 0..3 {
        assert_eq!(silo.statistics().turns_blocking, before);
        // The first one finds no activation, the second runs in place, the third has suspended
        // first.
        let call = match before {
            2 => tokio::spawn(blocker.block_between(before).into_future()),
            _ => tokio::spawn(blocker.block(before).into_future()),
        };
        while silo.statistics().turns_blocking == before {
            tokio::task::yield_now().await;
        }
        NOTICED.store(before + 1, Ordering::Release);
        call.await.unwrap().unwrap();
    }
    silo.abort();
}

static LET_GO: AtomicU64 = AtomicU64::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);

#[grain_interface(key = String)]
trait Holder {
    /// Holds its thread until [`LET_GO`] is `n`.
    async fn hold_first(&mut self, n: u64);
    async fn hold_later(&mut self, n: u64);
    async fn hold_in_place(&mut self, n: u64);
}

#[derive(Grain)]
struct HolderGrain;

fn until_let_go(n: u64) {
    while LET_GO.load(Ordering::Acquire) < n {
        std::thread::sleep(millis(5));
    }
}

#[grain]
impl Holder for HolderGrain {
    async fn hold_first(&mut self, n: u64) {
        until_let_go(n);
        tokio::task::yield_now().await;
    }

    async fn hold_later(&mut self, n: u64) {
        tokio::task::yield_now().await;
        until_let_go(n);
        tokio::task::yield_now().await;
    }

    async fn hold_in_place(&mut self, n: u64) {
        until_let_go(n);
    }
}

/// A report names each turn that holds its thread, for calls of clients and of grains. Timers and
/// sockets that the thread polled continue meanwhile.
#[test]
fn a_held_thread_is_noticed_and_holds_up_no_timer() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (silo, client) = runtime.block_on(async {
        let store = common::store();
        let silo = Silo::builder().store(store.clone()).gateway("127.0.0.1:0");
        let silo = silo.host::<dyn Holder, HolderGrain>().start().await.unwrap();
        (silo, Client::builder().store(store).connect().await.unwrap())
    });
    let holders = [silo.grain::<dyn Holder>("x"), client.grain::<dyn Holder>("y")];
    // The task that a thread has woken last waits for that thread: tokio lets no other thread take
    // it. So there are several.
    for _ in 0..4 {
        runtime.spawn(async {
            loop {
                tokio::time::sleep(millis(1)).await;
                TICKS.fetch_add(1, Ordering::Release);
            }
        });
    }
    let mut n = 0;
    for round in 0..5 {
        for (holder, method) in holders.iter().flat_map(|h| (0..3).map(move |method| (h, method))) {
            n += 1;
            let before = silo.statistics().turns_blocking;
            let holder = holder.clone();
            let call = runtime.spawn(async move {
                match method {
                    0 => holder.hold_first(n).await,
                    1 => holder.hold_later(n).await,
                    _ => holder.hold_in_place(n).await,
                }
            });
            while silo.statistics().turns_blocking == before {
                std::thread::sleep(millis(1));
            }
            let (ticked, since) = (TICKS.load(Ordering::Acquire), std::time::Instant::now());
            while TICKS.load(Ordering::Acquire) < ticked + 2 && since.elapsed() < secs(10) {
                std::thread::sleep(millis(1));
            }
            let goes_on = TICKS.load(Ordering::Acquire) >= ticked + 2;
            LET_GO.store(n, Ordering::Release);
            assert!(goes_on, "{round}: a timer waits for the turn");
            runtime.block_on(call).unwrap().unwrap();
            assert_eq!(silo.statistics().turns_blocking, before + 1, "{round}: {method}");
        }
    }
    silo.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_shown_and_a_full_one_refuses_by_its_name() {
    let store: std::sync::Arc<dyn emmer::store::SystemStore> =
        std::sync::Arc::new(emmer::store::MemoryStore::new());
    let silo = Silo::builder()
        .store(store)
        .host::<dyn Counter, CounterGrain>()
        .configure(|o| o.limits.activation_queue_max = 3)
        .start()
        .await
        .unwrap();
    let busy = silo.grain::<dyn Counter>("busy");
    busy.add(1).await.unwrap();
    let holding = tokio::spawn(busy.hold(60_000).timeout(secs(60)).into_future());
    while busy.total().timeout(millis(20)).await.is_ok() {}
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(busy.add(1).into_future())).collect();
    // A turn is counted as waiting a moment before it is in the queue.
    let queued = || silo.longest_queues(1).first().map_or(0, |queue| queue.waiting);
    while silo.statistics().turns_waiting < 3 || queued() < 3 {
        tokio::task::yield_now().await;
    }
    let longest = silo.longest_queues(5);
    assert_eq!(longest.len(), 1);
    assert_eq!((&longest[0].key, longest[0].waiting), (busy.grain_id().key(), 3));
    assert_eq!(longest[0].grain_type, "counter");
    let refused = busy.add(1).await.unwrap_err();
    assert!(
        matches!(&refused, CallError::Overloaded { detail, .. } if detail.contains("activation_queue_max")),
        "{refused}"
    );
    assert_eq!(silo.statistics().calls_refused, 1);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    while silo.statistics().turns_waiting > 0 {
        tokio::task::yield_now().await;
    }
    assert!(silo.longest_queues(5).is_empty());
    holding.abort();
    silo.abort();
}

/// Found by a storm of 300,000 first calls: a look-up without room was Unreachable, and a
/// registration without room made the activation fail.
#[tokio::test(flavor = "multi_thread")]
async fn first_calls_beyond_the_directorys_room_wait_or_are_overloaded() {
    let store = common::store();
    let mut silos = Vec::new();
    for _ in 0..2 {
        let silo = Silo::builder().store(store.clone()).host::<dyn Counter, CounterGrain>();
        silos.push(silo.configure(|o| o.directory.pending_max = 1).start().await.unwrap());
    }
    common::settle(&silos, 2).await;
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let counter = silos[0].grains().grain::<dyn Counter>(format!("s{n}"));
            tokio::spawn(async move {
                loop {
                    match counter.total().await {
                        Ok(total) => return total,
                        Err(CallError::Overloaded { detail: text, .. }) => {
                            assert!(text.contains("pending_max"), "{text}");
                        }
                        Err(other) => panic!("{other}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(target_os = "linux")]
async fn a_silo_says_what_is_in_use_of_its_machine() {
    let silo = Silo::builder()
        .store(common::store())
        .configure(|options| options.load_period = std::time::Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    let mut told = silo.statistics();
    while told.cpu_percent.is_none() || told.memory_percent.is_none() {
        tokio::task::yield_now().await;
        told = silo.statistics();
    }
    assert!(told.memory_percent <= Some(100), "{told:?}");
    silo.stop().await.unwrap();
}

/// The table of metrics as the page has to have it.
fn table() -> String {
    let mut table = String::from("| name | kind | labels | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, meaning) = (metric.name, metric.kind, metric.meaning);
        table += &format!("| `{name}` | {kind} | {} | {meaning} |\n", labels.join(", "));
    }
    table
}

#[test]
fn the_page_lists_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("its test -->\n").unwrap();
    let (found, after) = rest.split_once("<!-- metrics: end -->").unwrap();
    let wanted = table();
    if found != wanted && std::env::var_os("EMMER_BLESS").is_some() {
        let page = format!("{before}its test -->\n{wanted}<!-- metrics: end -->{after}");
        std::fs::write(path, page).unwrap();
        return;
    }
    assert_eq!(found, wanted, "run this test once with EMMER_BLESS=1");
}

/// The words of a text that may be names of metrics.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("emmer_"))
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_there_are() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let dashboard = std::fs::read_to_string(format!("{folder}/grafana-dashboard.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = document["panels"].as_array().unwrap();
    let page = std::fs::read_to_string(format!("{folder}/observability.md")).unwrap();
    let told: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .flat_map(|target| words(target["expr"].as_str().unwrap()))
        .chain(words(&page).filter(|word| !word.starts_with("emmer_readable_")))
        .collect();
    assert!(panels.len() >= 12 && told.len() > 30, "{told:?}");
    for word in told {
        let name = word.strip_suffix("_bucket").unwrap_or(word);
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("{word} is no metric"));
        let is_histogram = metric.kind == MetricKind::Histogram;
        assert_eq!(word.ends_with("_bucket"), is_histogram, "{word} of a {}", metric.kind);
    }
}

fn metric(node: &Node, title: &str) -> Option<MetricValue> {
    let samples = node.watch().metrics();
    samples.into_iter().find(|sample| sample.title() == title).map(|sample| sample.value)
}

#[emmer::test(seeds = 5)]
async fn a_silo_that_is_cut_off_is_not_ready_and_counts_it(world: World) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Counter, CounterGrain>()).await;
    let node = cluster.node(0);
    assert_eq!(node.watch().readiness(), Readiness::Ready);
    assert_eq!(metric(node, "emmer_fence_shut"), Some(MetricValue::Level(0.0)));
    let active = "emmer_membership_silos{status=\"Active\"}";
    assert_eq!(metric(node, active), Some(MetricValue::Level(3.0)));
    world.store().fail(Failure::Unavailable);
    cluster.isolate(0);
    world.advance(secs(60)).await;
    assert_eq!(node.watch().readiness(), Readiness::Fenced);
    assert_eq!(metric(node, "emmer_fence_shut"), Some(MetricValue::Level(1.0)));
    assert_eq!(metric(node, "emmer_fence_shut_total"), Some(MetricValue::Count(1)));
    let Some(MetricValue::Level(age)) = metric(node, "emmer_membership_table_answer_age_seconds")
    else {
        panic!("the table has answered once");
    };
    assert!((50.0..80.0).contains(&age), "{age}");
    cluster.heal();
    world.store().recover();
    world.advance(secs(30)).await;
    // The others may have declared it dead before the store was away.
    if !node.has_ended() {
        assert_eq!(node.watch().readiness(), Readiness::Ready);
        let Some(MetricValue::Count(shut)) = metric(node, "emmer_fence_shut_seconds_total") else {
            panic!("it is always told");
        };
        assert!((30..80).contains(&shut), "{shut}");
    }
}

static RAN: std::sync::Mutex<Vec<u64>> = std::sync::Mutex::new(Vec::new());

#[grain_interface(key = u64)]
trait Tally {
    async fn note(&mut self, world: u64);
}

#[derive(Grain)]
#[placement(random)]
struct TallyGrain;

#[grain]
impl Tally for TallyGrain {
    async fn note(&mut self, world: u64) {
        RAN.lock().unwrap().push(world);
    }
}

/// A kill loses one-way calls. The silo that sent them counts at least the calls that did not run.
#[emmer::test(seeds = 5)]
async fn one_way_calls_that_a_kill_takes_along_are_counted(world: World) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Tally, TallyGrain>()).await;
    world.net().set_model(NetModel { delay_max: millis(20), ..NetModel::default() });
    let of = world.bits();
    let send = async move |client: GrainFactory| {
        let tallies: Vec<TallyRef> = (0..60).map(|n| client.grain::<dyn Tally>(n)).collect();
        let mut sent = 0;
        for tally in tallies.iter().cycle().take(4_000) {
            sent += u64::from(tally.note(of).send().is_ok());
            tokio::time::sleep(millis(1)).await;
        }
        sent
    };
    let kill = async {
        tokio::time::sleep(millis(1_900)).await;
        cluster.kill(1);
    };
    let (sent, ()) = tokio::join!(cluster.node(0).run(send), kill);
    world.advance(secs(60)).await;
    let ran = RAN.lock().unwrap().iter().filter(|world| **world == of).count() as u64;
    let lost = sent.unwrap() - ran;
    let count = |outcome: &str| {
        let title = format!("emmer_one_way_calls_lost_total{{outcome=\"{outcome}\"}}");
        let Some(MetricValue::Count(count)) = metric(cluster.node(0), &title) else {
            panic!("it is always told")
        };
        count
    };
    let (failed, unknown) = (count("failed"), count("unknown"));
    println!("{lost} lost, {failed} failed, {unknown} unknown");
    assert!(lost <= failed + unknown, "{lost} lost, {failed} failed, {unknown} unknown");
    assert!(failed + unknown <= lost + 300, "{lost} lost, {failed} failed, {unknown} unknown");
}
