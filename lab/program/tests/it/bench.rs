//! `emmer-lab bench`: the measurements run from end to end, small. Their results are not checked
//! here.

use serde_json::Value;

use crate::harness::{failure, run, run_by, store_in};

/// The rows of a measurement on SQLite, which must succeed.
fn rows(what: &[&str]) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let reports = dir.path().join("reports");
    let common = ["--format", "json", "--reports", reports.to_str().unwrap()];
    let output = run(&[&["bench", "membership"], what, &common[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(reports.join(format!("bench-membership-{}.csv", what[0])).is_file());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn silos_of_one_process_agree() {
    let rows = rows(&["start", "--silos", "4", "--rounds", "2"]);
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter().all(|row| row["silos"] == 4 && row["versions"].as_u64() >= Some(1)),
        "{rows:?}"
    );
}

#[test]
fn a_killed_process_dies_in_the_table() {
    let rows = rows(&["kill", "--silos", "3", "--rounds", "2", "--rest", "100ms"]);
    assert_eq!(rows.len(), 2);
    assert_ne!(rows[0]["killed"], rows[1]["killed"]);
    assert!(rows.iter().all(|row| row["Dead after ms"].is_number()), "{rows:?}");
}

#[test]
fn no_call_fails_when_silos_leave_and_none_that_did_not_run_when_they_are_killed() {
    for (how, column) in [(&[][..], "failed"), (&["--kill"][..], "known not to have run")] {
        let load = ["leave", "--rounds", "4", "--rate", "500", "--rest", "300ms"];
        let rows = rows(&[&load[..], how].concat());
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row["answered"].as_u64() > Some(0)), "{rows:?}");
        assert!(rows.iter().all(|row| row[column].as_u64() == Some(0)), "{rows:?}");
    }
}

#[test]
fn what_callers_see_of_a_leave_stands_beside_what_others_were_measured_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let load = ["--only", "leave", "--grains", "50", "--rate", "100", "--window", "2s"];
    let common = ["--format", "json", "--reports", dir.path().to_str().unwrap()];
    let output = run(&[&["bench", "faults"], &load[..], &common[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(dir.path().join("bench-faults.csv").is_file());
    let rows = String::from_utf8(output.stdout).unwrap();
    let row: Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    assert_eq!(row["fault"], "SIGTERM", "{row}");
    assert!(row["calls"].as_u64() >= Some(500), "{row}");
    assert_eq!((row["failed"].as_u64(), row["stale turns"].as_u64()), (Some(0), Some(0)), "{row}");
    assert!(row["Orleans"].as_str().unwrap().contains("of 80,000"), "{row}");
}

#[test]
fn connections_that_do_nothing_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let few =
        ["--idle", "20", "--silent", "20", "--halves", "5", "--for", "100ms", "--format", "json"];
    let output =
        run(&[&["bench", "connections", "--reports", dir.path().to_str().unwrap()], &few[..]]
            .concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(output.stdout).unwrap();
    let held =
        rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).next_back().unwrap();
    // Five of 15 MiB would be 75.
    assert!(held["what"].as_str().unwrap().contains("half frames"), "{held}");
    assert!(held["with"].as_f64() < Some(64.0), "{held}");
}

/// Conditions of every round in which a silo falls silent: the silo ended itself, its grains worked
/// before and elsewhere afterwards, and no grain ran on two silos. The command's success proves the
/// last one as well.
fn nothing_was_stale(rows: &[Value], rounds: usize) {
    assert_eq!(rows.len(), rounds + 1, "one row for each round, and the total: {rows:?}");
    for row in &rows[..rounds] {
        assert_eq!(row["exit code"], "86", "{row}");
        assert!(row["turns"].as_u64() > Some(0), "the log must show the turns before: {row}");
        assert!(row["its grains active elsewhere"].as_u64() > Some(0), "{row}");
    }
    let total = &rows[rounds];
    assert_eq!(total["round"], "total");
    for what in ["stale turns", "stale hooks", "early activations"] {
        assert_eq!(total[what].as_u64(), Some(0), "{what}: {total}");
    }
}

#[test]
fn a_frozen_process_ends_itself_and_runs_nothing_after_its_death() {
    let fast = ["--profile", "fast", "--rest", "2s", "--hold", "100ms", "--rate", "100"];
    let rows = rows(&[&["freeze", "--rounds", "1"], &fast[..]].concat());
    nothing_was_stale(&rows, 1);
    // A worker that was stopped between the fence and its admitted turn begins that turn when it is
    // woken; so may a call within it.
    let workers = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(rows[0]["caught"].as_u64() <= Some(2 * workers), "{rows:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_cut_from_its_peers_runs_nothing_that_they_activated() {
    let fast = ["--profile", "fast", "--rest", "2s", "--hold", "100ms", "--rate", "100"];
    // In network namespaces, where this user may make them.
    nothing_was_stale(&rows(&[&["cut", "--rounds", "2"], &fast[..]].concat()), 2);
    nothing_was_stale(&rows(&[&["cut", "--rounds", "1", "--by", "proxy"], &fast[..]].concat()), 1);
}

#[test]
fn an_outage_needs_to_know_how_the_server_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let (code, said) = failure(&run(&["bench", "membership", "outage", "--store", &store]));
    assert!(code == 2 && said.contains("--stop"), "{said}");
    let (code, said) = failure(&run(&["bench", "membership", "kill", "--profile", "fastest"]));
    assert!(code == 2 && said.contains("\"fastest\""), "{said}");
}

/// Runs three silo processes, of which one calls 300,000 grains at once. `before` is a command that
/// starts the measurement.
fn storm(before: &[&str]) -> Option<(f64, f64)> {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "storm", "--rounds", "1", "--format", "json", "--reports"];
    let args = [&args[..], &[dir.path().to_str().unwrap()]].concat();
    let output = run_by(before, &args)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = String::from_utf8(output.stdout).unwrap();
    let mut rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let three = rows.find(|row| row["contender"] == "emmer, 3 silos").unwrap();
    let number = |name: &str| three[name].as_f64().unwrap_or_else(|| panic!("{name} of {three}"));
    Some((number("fence shut ms"), number("latest probe ms")))
}

/// A storm must not disturb the membership. The machine may have other work, so one try of three
/// has to hold.
#[test]
fn no_fence_shuts_and_no_probe_is_later_than_200_ms_when_300_000_grains_are_called_at_once() {
    for before in [&[][..], &["taskset", "-c", "0"]] {
        let mut tries = Vec::new();
        let holds = (0..3).any(|_| match storm(before) {
            // This machine has no such program.
            None => true,
            Some((fence, probe)) => {
                tries.push((fence, probe));
                fence == 0.0 && probe <= 200.0
            }
        });
        assert!(holds, "{before:?}: {tries:?}");
    }
}
