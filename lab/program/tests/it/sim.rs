//! `emmer-lab sim`: tables, files, exact replays.

use serde_json::Value;

use crate::harness::{failure, run};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn an_experiment_compares_profiles_in_one_table_and_writes_reports() {
    let dir = tempfile::tempdir().unwrap();
    let reports = dir.path().join("reports");
    let reports = reports.to_str().unwrap();
    let args =
        ["sim", "coldstart", "--quick", "--silos", "8", "--seeds", "1", "--reports", reports];
    let json =
        [&args[..], &["--profile", "default,fast", "--profile", "default", "--format", "json"]]
            .concat();
    let output = run(&json);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let profiles: Vec<_> = rows.iter().map(|row| row["profile"].as_str().unwrap()).collect();
    assert!(profiles.starts_with(&["default"]) && profiles.ends_with(&["fast"]), "{profiles:?}");
    let csv = std::fs::read_to_string(dir.path().join("reports/coldstart.csv")).unwrap();
    assert_eq!(csv.lines().count(), rows.len() + 1, "{csv}");
    // Now the table for people.
    let output = run(&[&args[..], &["--profile", "default,fast"]].concat());
    let shown = text(&output.stdout);
    assert!(
        shown.contains("emmer-lab sim coldstart")
            && shown.contains("\ndefault")
            && shown.contains("\nfast"),
        "{shown}"
    );
}

#[test]
fn a_seed_replays_exactly() {
    let once = run(&["sim", "run", "--seed", "17"]);
    assert!(once.status.success(), "{}", text(&once.stderr));
    let shown = text(&once.stdout);
    assert!(shown.starts_with("seed 17 with ") && shown.contains("trace hash "), "{shown}");
    assert!(shown.ends_with("every invariant held\n"), "{shown}");
    // With a trace it is the same run, after its lines.
    let traced = text(&run(&["sim", "run", "--seed", "17", "--trace"]).stdout);
    assert!(traced.ends_with(&shown) && traced.lines().count() > shown.lines().count() + 100);
    // Other bounds are another scenario.
    let other =
        text(&run(&["sim", "run", "--seed", "17", "--silos-max", "5", "--profile", "fast"]).stdout);
    assert_ne!(other, shown);
}

#[test]
fn many_seeds_hold_and_there_is_nothing_to_shrink() {
    let output = run(&["sim", "swarm", "--seeds", "3..7", "--threads", "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.starts_with("4 seeds, ") && shown.ends_with("every invariant held\n"), "{shown}");
    let output = run(&["sim", "shrink", "--seed", "3"]);
    assert!(output.status.success() && text(&output.stdout).contains("nothing to shrink"));
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    for args in [
        &["sim", "detect", "--profile", "clasic"][..],
        &["sim", "swarm", "--seeds", "9..3"],
        &["sim", "coldstart", "--silos", "2"],
        &["sim", "run"],
    ] {
        let output = run(args);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
    }
    let output = run(&["sim", "run", "--seed", "1", "--silos-min", "9", "--silos-max", "4"]);
    let (code, said) = failure(&output);
    assert!(code == 2 && said.contains("--silos-min"), "{said}");
}
