//! Every scenario runs, every contender is measured, and the counts are right. How fast it was is
//! no test's business.

use std::time::Duration;

use emmer_benches::report::Compared;
use emmer_benches::sample::BYTES_EACH;
use emmer_benches::scenarios::threads;
use emmer_benches::{
    Settings, activate, cluster, directory, local, memory, remote, ring, soak, storm, strangers,
};

fn tiny() -> Settings {
    Settings { rounds: 1, scale: 1e-6, threads: vec![1, 2] }
}

/// Names of the contenders, each once.
fn contenders(compared: &Compared) -> Vec<String> {
    let mut names: Vec<_> = compared.lines().into_iter().map(|line| line.2).collect();
    names.sort();
    names.dedup();
    names
}

fn silent(_: &str) {}

#[test]
fn local_calls_are_counted() {
    let compared = local::measure(&tiny(), &threads(), &silent).unwrap();
    assert_eq!(contenders(&compared), ["emmer", "emmer, new refs", "inline", "mpsc"]);
    for sample in compared.rounds.iter().flatten() {
        let each = match sample.what.as_str() {
            // 100 calls shared by 64 callers are one each.
            local::HOT | local::SPREAD => 64,
            _ => 100,
        };
        assert_eq!(sample.operations, each, "{sample:?}");
        assert!(sample.wall_ns > 0 && sample.cpu_ns > 0, "{sample:?}");
    }
    let report = local::report(&compared);
    // Three scenarios of four contenders, one way of two, on one thread and on two.
    assert_eq!(report.rows.len(), 2 * (3 * 4 + 2));
    assert_eq!(report.goals.len(), 7);
}

#[test]
fn activations_are_counted() {
    let compared = activate::measure(&tiny(), &threads(), &silent).unwrap();
    assert_eq!(contenders(&compared), ["emmer", "emmer, with state", "inline", "mpsc"]);
    assert!(compared.rounds.iter().flatten().all(|sample| sample.operations == 64));
    assert_eq!(activate::report(&compared).goals.len(), 2);
}

#[test]
fn idle_grains_are_weighed() {
    let compared = memory::measure(&tiny(), &threads(), &silent).unwrap();
    assert_eq!(contenders(&compared), ["emmer", "emmer, with state", "inline", "mpsc"]);
    assert!(compared.rounds.iter().flatten().all(|s| s.more.contains_key(BYTES_EACH)));
}

#[test]
fn calls_between_two_runtimes_are_answered() {
    let settings = Settings { threads: vec![2], ..tiny() };
    let compared = remote::measure(&settings, &threads(), &silent).unwrap();
    assert_eq!(contenders(&compared).len(), remote::Contender::ALL.len());
    // Three numbers of callers each; every one of them had answers.
    assert_eq!(compared.lines().len(), 3 * remote::Contender::ALL.len());
    for sample in compared.rounds.iter().flatten() {
        assert!(sample.operations > 0 && sample.latency.is_some(), "{sample:?}");
    }
}

#[test]
fn three_silos_answer_a_client_and_each_other() {
    let settings = Settings { threads: vec![2], ..tiny() };
    let compared = cluster::measure(&settings, &threads(), &silent).unwrap();
    assert_eq!(compared.lines().len(), 2 * 6);
    assert!(compared.rounds.iter().flatten().all(|sample| sample.operations > 0));
    assert_eq!(cluster::report(&compared).rows.len(), 12);
}

#[test]
fn every_grain_of_a_storm_answers() {
    let settings = Settings { threads: vec![2], ..tiny() };
    let compared = storm::measure(&settings, &threads(), &silent).unwrap();
    let all = ["emmer, 1 silo", "emmer, 3 silos", "emmer, 3 silos, local"];
    assert_eq!(contenders(&compared), all);
    assert!(compared.rounds.iter().flatten().all(|sample| sample.operations == 100));
}

#[test]
fn the_directory_knows_every_grain() {
    let compared = directory::measure(&tiny(), &threads(), &silent).unwrap();
    assert_eq!(contenders(&compared), ["directory", "emmer, 2 silos", "map"]);
    assert_eq!(directory::report(&compared).rows.len(), 3 + 3 + 2);
}

#[test]
fn views_and_rings_of_every_size_are_made() {
    let compared = ring::measure(&tiny(), &threads(), &silent).unwrap();
    assert_eq!(ring::report(&compared).rows.len(), 4 * ring::SIZES.len());
}

#[test]
fn a_soak_makes_its_calls_and_reads_the_memory() {
    let time = Duration::from_millis(100);
    let plan = soak::Plan { rate: 1_000, time, every: time / 2, threads: 2 };
    let intervals = soak::run(&plan, &threads(), &silent).unwrap();
    assert!(intervals.iter().map(|one| one.latency.count()).sum::<u64>() > 0);
    assert!(intervals.iter().all(|one| one.resident[0] > 0 && one.failed == 0));
    assert_eq!(soak::report(&plan, &intervals).rows.len(), intervals.len());
}

#[test]
fn strangers_come_and_an_honest_client_notices_nothing() {
    let plan = strangers::Plan { count: 400, silent: 20, seed: 7 };
    let found = strangers::run(&plan, &threads(), &silent).unwrap();
    assert_eq!(found.len(), 2, "without TLS, and with it");
    for one in found {
        let (calls, failed, _) = one.calls;
        assert!(one.strangers == 200 && calls > 0 && failed == 0, "{one:?}");
    }
}
