//! Every scenario runs, every contender is measured, and the counts are right. How fast it was is no test's business.

use emmer_benches::job::Launcher;
use emmer_benches::report::Compared;
use emmer_benches::{Settings, activate, local, memory, remote};

fn tiny() -> Settings {
    Settings { rounds: 1, scale: 1e-6, threads: vec![1, 2] }
}

/// Who was measured, each once.
fn contenders(compared: &Compared) -> Vec<String> {
    let mut names: Vec<_> = compared.lines().into_iter().map(|line| line.2).collect();
    names.sort();
    names.dedup();
    names
}

fn silent(_: &str) {}

#[test]
fn local_calls_are_counted() {
    let compared = local::measure(&tiny(), &Launcher::Threads, &silent).unwrap();
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
    assert_eq!(report.goals.len(), 8);
}

#[test]
fn activations_are_counted() {
    let compared = activate::measure(&tiny(), &Launcher::Threads, &silent).unwrap();
    assert_eq!(contenders(&compared), ["emmer", "emmer, with state", "inline", "mpsc"]);
    assert!(compared.rounds.iter().flatten().all(|sample| sample.operations == 64));
    assert_eq!(activate::report(&compared).goals.len(), 2);
}

#[test]
fn idle_grains_are_weighed() {
    let compared = memory::measure(&tiny(), &Launcher::Threads, &silent).unwrap();
    assert_eq!(contenders(&compared), ["emmer", "emmer, with state", "inline", "mpsc"]);
    assert!(compared.rounds.iter().flatten().all(|s| s.more.contains_key(memory::BYTES_EACH)));
}

#[test]
fn calls_between_two_runtimes_are_answered() {
    let settings = Settings { threads: vec![2], ..tiny() };
    let compared = remote::measure(&settings, &Launcher::Threads, &silent).unwrap();
    assert_eq!(contenders(&compared).len(), remote::Contender::ALL.len());
    // Three numbers of callers each; every one of them had answers.
    assert_eq!(compared.lines().len(), 3 * remote::Contender::ALL.len());
    for sample in compared.rounds.iter().flatten() {
        assert!(sample.operations > 0 && sample.latency.is_some(), "{sample:?}");
    }
}
