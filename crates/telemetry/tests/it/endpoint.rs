//! A silo with an endpoint, scraped over HTTP.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;

use emmer::metrics::METRICS;
use emmer::prelude::*;
use emmer::tables::Duty;
use emmer_telemetry::{Endpoint, Facade};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[grain_interface(key = u64)]
trait Counter {
    async fn add(&mut self, n: u64) -> Result<u64, String>;
}

#[derive(Grain)]
struct CounterGrain {
    sum: u64,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, String> {
        self.sum += n;
        if self.sum > 1_000 { Err("too much".to_owned()) } else { Ok(self.sum) }
    }
}

/// The endpoint that a leaving grain looks at, and the answer that it saw.
static SEEN: Mutex<(Option<SocketAddr>, String)> = Mutex::new((None, String::new()));

impl Lifecycle for CounterGrain {
    async fn deactivate(&mut self, _: &Ctx, _: DeactivationReason) {
        let asked = SEEN.lock().unwrap().0;
        if let Some(address) = asked {
            let answer = get(address, "/readyz").await;
            SEEN.lock().unwrap().1 = answer;
        }
    }
}

async fn started(store: &str) -> (Silo, SocketAddr) {
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = endpoint.address();
    let builder = Silo::builder().store(format!("memory://{store}")).observer(endpoint);
    let builder = builder.cluster_id(ClusterId::new("telemetry").unwrap());
    // A name with every difficult character.
    let builder = builder.configure(|o| o.name = Some("it's \"a\" \\ {b} ä".to_owned()));
    let silo = builder.configure(|o| o.load_period = millis(600));
    let silo = silo.host::<dyn Counter, CounterGrain>().start().await.unwrap();
    (silo, address)
}

/// The whole answer to a request.
async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
}

/// The names of the metrics in a scrape, as its `TYPE` lines have them.
fn names(scrape: &str) -> BTreeSet<(String, String)> {
    let lines = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            (name.to_owned(), kind.to_owned())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_finds_every_metric_of_the_list_and_no_other() {
    let (silo, address) = started("scrape").await;
    let counter = silo.grains().grain::<dyn Counter>(7u64);
    counter.add(3).await.unwrap();
    counter.add(1_000).await.unwrap_err();
    // One activation in eight is timed.
    for key in 100..116u64 {
        silo.grains().grain::<dyn Counter>(key).add(0).await.unwrap();
    }
    let wanted: BTreeSet<_> =
        METRICS.iter().map(|m| (m.name.to_owned(), m.kind.to_string())).collect();
    // The use of the processors is known after the second load report.
    let scrape = loop {
        let scrape = get(address, "/metrics").await;
        if scrape.contains("\nemmer_cpu_percent ") {
            break scrape;
        }
        tokio::time::sleep(millis(20)).await;
    };
    assert_eq!(names(&scrape), wanted);
    assert!(scrape.starts_with("HTTP/1.1 200 OK\r\n"), "{scrape}");
    for line in [
        "emmer_membership_silos{status=\"Active\"} 1",
        "emmer_calls_total{grain=\"counter\",method=\"Counter.add\"} 18",
        "emmer_call_errors_total{grain=\"counter\",method=\"Counter.add\",kind=\"own\"} 1",
        "emmer_activations{grain=\"counter\"} 17",
        "emmer_activation_seconds_count{grain=\"counter\"} 2",
        "name=\"it's \\\"a\\\" \\\\ {b} ä\"",
        "emmer_fence_shut 0",
    ] {
        assert!(scrape.contains(line), "{line} is not in {scrape}");
    }
    // A second scrape counts on, and does not count twice.
    counter.add(1).await.unwrap_err();
    let again = get(address, "/metrics").await;
    assert!(again.contains("emmer_activation_seconds_count{grain=\"counter\"} 2"), "{again}");
    assert!(again.contains("method=\"Counter.add\"} 19"), "{again}");
    silo.stop_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_silo_is_not_ready_before_it_refuses_anything() {
    let (silo, address) = started("ready").await;
    assert!(get(address, "/readyz").await.ends_with("\r\n\r\nready\n"));
    assert!(get(address, "/healthz").await.ends_with("\r\n\r\nok\n"));
    silo.grains().grain::<dyn Counter>(7u64).add(3).await.unwrap();
    SEEN.lock().unwrap().0 = Some(address);
    silo.stop().await.unwrap();
    let seen = SEEN.lock().unwrap().1.clone();
    assert!(seen.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{seen}");
    assert!(seen.ends_with("\r\n\r\nthe silo leaves the cluster\n"), "{seen}");
    // The port is free again once the silo is gone.
    while Endpoint::bind(address).await.is_err() {
        tokio::time::sleep(millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_answered_and_silent_connections_do_not_shut_others_out() {
    let (silo, address) = started("attack").await;
    let post =
        "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let answer = ask(address, post).await;
    assert!(answer.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{answer}");
    assert!(answer.contains("\r\nallow: GET, HEAD\r\n"), "{answer}");
    let answer = get(address, "/secret").await;
    assert!(
        answer.contains("here are /metrics, /healthz and /readyz, and with a token"),
        "{answer}"
    );
    let answer = ask(address, "\x16\x03\x01 this is no HTTP\r\n\r\n").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20));
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It need not take all of it.
    let _ = stream.write_all(long.as_bytes()).await;
    // More connections than there is room for: the oldest ones are closed.
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(get(address, "/healthz").await.ends_with("\r\n\r\nok\n"));
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or_default(), 0);
    // Idle scrapers that keep their connections are no better.
    let scrape = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    for stream in silent.iter_mut().rev().take(100) {
        let _ = stream.write_all(scrape).await;
    }
    assert!(get(address, "/readyz").await.ends_with("\r\n\r\nready\n"));
    assert_eq!(silo.grains().grain::<dyn Counter>(1u64).add(3).await, Ok(3));
    silo.stop_now().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let taken = Endpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = Endpoint::bind(taken.address()).await.unwrap_err().to_string();
    let begins = format!("cannot listen on {} for telemetry: ", taken.address());
    assert!(error.starts_with(&begins), "{error}");
}

struct Panics;

impl emmer::observe::Observer for Panics {
    fn begin(self: Box<Self>, _: emmer::observe::SiloWatch) {
        panic!("as told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_panics_stops_neither_the_silo_nor_others() {
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = endpoint.address();
    let builder = Silo::builder().store("memory://panics").observer(Panics).observer(endpoint);
    let silo = builder.host::<dyn Counter, CounterGrain>().start().await.unwrap();
    assert!(get(address, "/readyz").await.ends_with("\r\n\r\nready\n"));
    silo.stop_now().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_facade_without_a_recorder_harms_nobody() {
    let builder = Silo::builder().store("memory://facade");
    let builder = builder.cluster_id(ClusterId::new("telemetry").unwrap());
    let builder = builder.observer(Facade::every(millis(100)));
    let silo = builder.host::<dyn Counter, CounterGrain>().start().await.unwrap();
    assert_eq!(silo.grains().grain::<dyn Counter>(1u64).add(3).await, Ok(3));
    assert!(silo.watch().readiness().is_ready());
    silo.stop().await.unwrap();
    assert_eq!(silo.watch().readiness().to_string(), "ended: the silo has left the cluster");
}

/// The answer to an order with this header.
async fn order(address: SocketAddr, request: &str, header: &str) -> String {
    ask(address, &format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n\r\n"))
        .await
}

#[tokio::test]
async fn orders_need_the_token_and_are_obeyed_with_it() {
    let token = "correct-horse-battery";
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let endpoint = endpoint.token(token).unwrap();
    let address = endpoint.address();
    let silo = Silo::builder().store("memory://orders").observer(endpoint);
    let silo = silo.host::<dyn Counter, CounterGrain>().start().await.unwrap();
    let shown = format!("authorization: Bearer {token}");
    for header in [
        "x: y",
        "authorization: Bearer correct-horse-batterx",
        "authorization: Bearer ",
        &shown[..38],
    ] {
        let refused = order(address, "POST /cordon", header).await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{header}: {refused}");
        let refused = order(address, "GET /duty", header).await;
        assert!(refused.starts_with("HTTP/1.1 401"), "{header}: {refused}");
    }
    let refused = order(address, "GET /cordon", &shown).await;
    assert!(refused.starts_with("HTTP/1.1 405") && refused.contains("allow: POST"), "{refused}");
    assert_eq!(silo.duty(), Duty::Full);
    for (path, duty) in
        [("/cordon", Duty::Cordoned), ("/uncordon", Duty::Full), ("/drain", Duty::Draining)]
    {
        let done = order(address, &format!("POST {path}"), &shown).await;
        assert!(done.starts_with("HTTP/1.1 200") && done.contains(&duty.to_string()), "{done}");
    }
    while silo.duty() != Duty::Drained {
        tokio::task::yield_now().await;
    }
    assert!(order(address, "GET /duty", &shown).await.ends_with("Drained\n"));
    assert!(order(address, "POST /stop", &shown).await.starts_with("HTTP/1.1 200"));
    silo.run_until_stopped().await.unwrap();
}

#[tokio::test]
async fn a_silo_without_a_token_takes_no_orders() {
    let (silo, address) = started("no-orders").await;
    for header in ["x: y", "authorization: Bearer ", "authorization: Bearer 0123456789abcdef"] {
        let refused = order(address, "POST /stop", header).await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    }
    assert_eq!(silo.duty(), Duty::Full);
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = endpoint.token("0123456789abcde").unwrap_err().to_string();
    assert!(error.contains("at least 16 bytes") && !error.contains("0123"), "{error}");
    silo.stop().await.unwrap();
}
