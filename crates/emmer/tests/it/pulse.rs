//! The membership of a silo does not wait for a busy runtime.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use emmer::membership::Config;
use emmer::metrics::MetricValue;
use emmer::options::StoreSource;
use emmer::prelude::*;
use emmer::store::SystemStore;
use emmer::tables::{ClusterId, SiloStatus};
use emmer_store::silos::SiloTable;
use tokio::runtime::{Builder, Runtime};

use crate::common::{self, Counter, CounterGrain, settle};

const WORKERS: usize = 2;
/// More than the whole detection of a silo that is dead.
const BLOCKED: Duration = Duration::from_secs(3);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap()
}

async fn silo(store: &Arc<dyn SystemStore>) -> Silo {
    silo_on(store.clone(), Config::fast()).await
}

async fn silo_on(store: impl Into<StoreSource>, membership: Config) -> Silo {
    Silo::builder()
        .store(store)
        .configure(|options| options.membership = membership)
        .host::<dyn Counter, CounterGrain>()
        .on_terminate(|_| {})
        .start()
        .await
        .unwrap()
}

/// Times that the silo's fence shut.
fn fences(silo: &Silo) -> u64 {
    count(silo, "emmer_fence_shut_total")
}

/// Probes of the silo that were answered, and those that were missed.
fn probes(silo: &Silo) -> [u64; 2] {
    ["answered", "missed"]
        .map(|event| count(silo, &format!("emmer_membership_probes_total{{event=\"{event}\"}}")))
}

fn count(silo: &Silo, title: &str) -> u64 {
    let mut samples = silo.metrics().into_iter();
    match samples.find(|sample| sample.title() == title).map(|sample| sample.value) {
        Some(MetricValue::Count(count)) => count,
        other => panic!("{title}: {other:?}"),
    }
}

#[test]
fn a_silo_whose_every_worker_is_blocked_for_3_s_gets_no_vote_and_its_fence_stays_open() {
    let store = common::store();
    let silos: Vec<(Runtime, Silo)> = (0..3)
        .map(|_| {
            let runtime = runtime();
            let silo = runtime.block_on(silo(&store));
            (runtime, silo)
        })
        .collect();
    for (runtime, silo) in &silos {
        runtime.block_on(settle(std::slice::from_ref(silo), 3));
    }
    // Their connections are made, and their first probes answered.
    std::thread::sleep(Duration::from_secs(2));
    let (busy, others) = silos.split_first().unwrap();
    let (shut, before) = (fences(&busy.1), probes(&busy.1));
    let all = Arc::new(Barrier::new(WORKERS + 1));
    for _ in 0..WORKERS {
        let all = all.clone();
        busy.0.spawn(async move {
            all.wait();
            std::thread::sleep(BLOCKED);
        });
    }
    all.wait();
    let begun = Instant::now();
    while begun.elapsed() < BLOCKED {
        for (_, silo) in others {
            let view = silo.view();
            let row = view.get(&busy.1.address()).expect("it is a member");
            assert_eq!(row.status, SiloStatus::Active, "after {:?}", begun.elapsed());
            assert!(row.votes.is_empty(), "after {:?}: {:?}", begun.elapsed(), row.votes);
        }
        assert_eq!(fences(&busy.1), shut, "{:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Answers came meanwhile, by connections that the workers do not read.
    let [answered, missed] = loop {
        let since = probes(&busy.1);
        let [answered, missed] = [0, 1].map(|event| since[event] - before[event]);
        if answered + missed > 8 {
            break [answered, missed];
        }
        assert!(begun.elapsed() < BLOCKED * 10, "{answered} probes answered, {missed} missed");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(missed * 4 <= answered, "{answered} probes answered, {missed} missed");
    let counter = busy.1.grain::<dyn Counter>("after that");
    let added = busy.0.block_on(async { counter.add(2).await });
    assert_eq!(added.unwrap(), 2);
    for (runtime, silo) in &silos {
        assert!(!silo.has_ended());
        runtime.block_on(silo.stop()).unwrap();
    }
}

/// Its tasks will never run again, and its membership does not say that it lives.
#[test]
fn a_silo_whose_runtime_is_gone_is_dead() {
    let store = common::store();
    let (one, other) = (runtime(), runtime());
    let gone = one.block_on(silo(&store));
    let stays = other.block_on(silo(&store));
    other.block_on(settle(std::slice::from_ref(&stays), 2));
    one.shutdown_background();
    let begun = Instant::now();
    while stays.view().status_of(&gone.address()) == Some(SiloStatus::Active) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    other.block_on(stays.stop()).unwrap();
}

/// A silo that is stuck for good must not keep its grains: after 15 s its membership is silent.
#[test]
fn a_silo_whose_every_worker_is_blocked_for_15_s_is_dead_and_not_before() {
    let store = common::store();
    let (one, other) = (runtime(), runtime());
    let stuck = one.block_on(silo(&store));
    let stays = other.block_on(silo(&store));
    one.block_on(settle(std::slice::from_ref(&stuck), 2));
    other.block_on(settle(std::slice::from_ref(&stays), 2));
    // Their connections are made, and their first probes answered.
    std::thread::sleep(Duration::from_secs(2));
    let all = Arc::new(Barrier::new(WORKERS + 1));
    let begun = Instant::now();
    for _ in 0..WORKERS {
        let all = all.clone();
        one.spawn(async move {
            all.wait();
            // Until the test lets them go.
            all.wait();
        });
    }
    all.wait();
    let lives = || stays.view().status_of(&stuck.address()) == Some(SiloStatus::Active);
    while lives() && begun.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (lives, after) = (lives(), begun.elapsed());
    all.wait();
    assert!(!lives, "it still says that it lives");
    assert!(after >= Duration::from_secs(15), "dead after {after:?}");
    other.block_on(stays.stop()).unwrap();
}

/// Its row in the table, too, says that it lives.
#[test]
fn a_silo_whose_every_worker_is_blocked_still_reaches_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/cluster.db?mode=rwc", folder.path().display());
    let runtime = runtime();
    let membership =
        Config { min_i_am_alive_publish_timeout: Duration::from_millis(100), ..Config::fast() };
    let silo = runtime.block_on(silo_on(url.as_str(), membership));
    let other = Builder::new_current_thread().enable_all().build().unwrap();
    let store = other.block_on(emmer_stores::open(&url)).unwrap();
    let table = SiloTable::new(store, ClusterId::new("dev").unwrap());
    let word = || {
        let row = other.block_on(table.read_silo(&silo.address())).unwrap();
        row.unwrap().i_am_alive_time
    };
    let all = Arc::new(Barrier::new(WORKERS + 1));
    for _ in 0..WORKERS {
        let all = all.clone();
        runtime.spawn(async move {
            all.wait();
            // Until the test lets them go.
            all.wait();
        });
    }
    all.wait();
    let (begun, mut words) = (Instant::now(), vec![word()]);
    while words.len() < 4 && begun.elapsed() < Duration::from_secs(10) {
        let last = word();
        if words.last() != Some(&last) {
            words.push(last);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    all.wait();
    assert_eq!(words.len(), 4, "{words:?}");
    runtime.block_on(silo.stop()).unwrap();
}
