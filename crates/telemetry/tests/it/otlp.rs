//! One trace through a client, a gateway and two grains in two silo processes, and their metrics,
//! received by a collector.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use emmer::metrics::METRICS;
use emmer::prelude::*;
use emmer_telemetry::Otlp;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

use crate::collector::{Collector, Span};

#[grain_interface(key = u64)]
trait Front {
    async fn silo(&self) -> String;
    async fn ask(&mut self, key: u64) -> Result<String, String>;
}

#[grain_interface(key = u64)]
trait Back {
    async fn silo(&self) -> String;
}

#[derive(Grain)]
struct FrontGrain {
    #[context]
    ctx: Ctx,
}

#[derive(Grain)]
struct BackGrain {
    #[context]
    ctx: Ctx,
}

fn silo_of(ctx: &Ctx) -> String {
    ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
}

#[grain]
impl Front for FrontGrain {
    async fn silo(&self) -> String {
        silo_of(&self.ctx)
    }

    async fn ask(&mut self, key: u64) -> Result<String, String> {
        let back = self.ctx.grains().grain::<dyn Back>(key);
        back.silo().await.map_err(|error| error.to_string())
    }
}

#[grain]
impl Back for BackGrain {
    async fn silo(&self) -> String {
        silo_of(&self.ctx)
    }
}

/// The variable that names the store and the collector of a silo's process.
const PROCESS: &str = "EMMER_TEST_SILO_PROCESS";

/// Begins to send: at once for traces, and metrics at the end.
fn sending(collector: &str, service: &str, share: f64) -> emmer_telemetry::OtlpSender {
    let otlp = Otlp::to(collector).service(service).traces(share).header("X-Token", "very secret");
    let sender = otlp.start().unwrap();
    let subscriber = tracing_subscriber::registry().with(sender.layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    sender
}

/// The process of a silo, until its input ends; no test where the variable is not set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_a_silo() {
    let Ok(setting) = std::env::var(PROCESS) else { return };
    let (store, collector) = setting.split_once(' ').unwrap();
    let sender = sending(collector, "silo", 0.0);
    let silo = Silo::builder()
        .store(store)
        .cluster_id(ClusterId::new("traces").unwrap())
        .configure(|options| {
            options.gateway = Some("127.0.0.1:0".parse().unwrap());
        })
        .observer(sender.metrics(secs(3_600)))
        .host::<dyn Front, FrontGrain>()
        .host::<dyn Back, BackGrain>()
        .start()
        .await
        .unwrap();
    println!("\nready {}", silo.address());
    let end = || std::io::stdin().lines().for_each(drop);
    tokio::task::spawn_blocking(end).await.unwrap();
    silo.stop().await.unwrap();
    sender.stop().await;
}

/// A silo in a process of its own.
struct Process(Child);

impl Process {
    fn start(store: &str, collector: &str) -> (Self, String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["otlp::a_process_of_a_silo", "--exact", "--nocapture"])
            .env(PROCESS, format!("{store} {collector}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.find_map(|line| line.unwrap().strip_prefix("ready ").map(str::to_owned));
        // The rest is ignored, but must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), ready.unwrap())
    }

    fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let of: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(of.len(), 1, "{name}: {spans:#?}");
    of[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_receives_one_trace_of_two_processes_and_their_metrics() {
    let collector = Collector::start().await;
    let to = format!("http://{}", collector.address);
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}/cluster.db", dir.path().display());
    let (first, address) = Process::start(&store, &to);
    let (second, other) = Process::start(&store, &to);
    let client = Client::builder().store(store.as_str());
    let client = client.cluster_id(ClusterId::new("traces").unwrap()).connect().await.unwrap();
    // Two grains on different silos, found by calls without traces.
    let mut apart = None;
    for key in 0..100 {
        let front = client.grain::<dyn Front>(key).silo().await.unwrap();
        if front != client.grain::<dyn Front>(key).ask(key).await.unwrap() {
            apart = Some(key);
            break;
        }
    }
    let key = apart.unwrap();
    assert!(collector.spans().is_empty());
    let sender = sending(&to, "client", 1.0);
    let root = tracing::info_span!("request");
    let ask = client.grain::<dyn Front>(key).ask(key).into_future();
    let back = ask.instrument(root).await.unwrap();
    client.close().await;
    sender.stop().await;
    first.stop();
    second.stop();
    let spans = collector.until(|spans| spans.iter().any(|span| span.name == "request")).await;
    let way = ["request", "Front.ask", "gateway", "turn Front.ask", "Back.silo", "turn Back.silo"];
    for (outer, inner) in way.iter().zip(&way[1..]) {
        let (outer, mut span) = (named(&spans, outer), named(&spans, inner));
        // A silo says that it serves a call which came over a connection.
        while span.parent != outer.id {
            span = spans.iter().find(|one| one.id == span.parent).unwrap();
            assert_eq!(span.name, "serve");
        }
        assert_eq!(span.trace, outer.trace);
    }
    assert!(named(&spans, "request").parent.is_empty());
    assert_eq!(spans.iter().map(|span| &span.trace).collect::<BTreeSet<_>>().len(), 1);
    let service = |name: &str| named(&spans, name).service.clone();
    assert_eq!([service("request"), service("Front.ask")], ["client", "client"]);
    assert_eq!(named(&spans, "turn Back.silo").silo, back);
    assert_ne!(named(&spans, "turn Front.ask").silo, back);
    let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    let metrics = collector.metrics();
    let from: BTreeSet<_> = metrics.iter().map(|(instance, _)| instance.clone()).collect();
    assert_eq!(from, BTreeSet::from([address, other]));
    for (_, metrics) in metrics {
        assert!(metrics.len() > 40 && metrics.iter().all(|one| names.contains(one.name.as_str())));
        for one in metrics {
            if let Some(Data::Histogram(histogram)) = one.data {
                for point in histogram.data_points {
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                    assert_eq!(point.count, point.bucket_counts.iter().sum::<u64>());
                }
            }
        }
    }
    assert!(collector.tokens().iter().all(|token| token == "very secret"));
}
