//! The small versions of all experiments: they run, their tables are whole, and the default profile
//! reaches every goal that a small cluster can show.

use emmer_report::Report;
use emmer_sim::Profile;
use emmer_sim::experiments::{Experiment, Options};

fn small(experiment: Experiment) -> Report {
    let options = Options { profiles: vec![Profile::Default], silos: 40, ..Options::quick() };
    let report = experiment.run(&options);
    assert!(!report.rows.is_empty());
    assert!(report.rows.iter().all(|row| row.len() == report.columns.len()));
    let missed: Vec<_> = report.goals.iter().filter(|goal| !goal.is_met()).collect();
    assert!(missed.is_empty(), "{missed:?}\n{}", report.to_text());
    report
}

#[test]
fn detect() {
    let report = small(Experiment::Detect);
    assert_eq!(report.rows.len(), 5);
    assert!(report.goals.len() > 10);
}

#[test]
fn coldstart() {
    small(Experiment::ColdStart);
}

#[test]
fn mass_crash() {
    small(Experiment::MassCrash);
}

#[test]
fn isolate() {
    let options = Options { profiles: vec![Profile::Default], silos: 5, ..Options::quick() };
    let report = Experiment::Isolate.run(&options);
    let missed: Vec<_> = report.goals.iter().filter(|goal| !goal.is_met()).collect();
    assert!(missed.is_empty(), "{missed:?}\n{}", report.to_text());
    assert_eq!(report.rows.len(), 5);
}

#[test]
fn loss() {
    assert_eq!(small(Experiment::Loss).goals.len(), 4);
}

#[test]
fn classic_is_slow_and_sure() {
    let options = Options { profiles: vec![Profile::Classic], silos: 20, ..Options::quick() };
    let report = Experiment::Detect.run(&options);
    let json: Vec<serde_json::Value> =
        report.to_json_lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let p50 = json[1]["p50 s"].as_f64().unwrap();
    assert!((10.0..45.0).contains(&p50), "{p50}");
}

#[test]
fn every_experiment_is_found_by_its_name() {
    for experiment in Experiment::ALL {
        assert_eq!(Experiment::named(experiment.name()), Some(experiment));
    }
    assert_eq!(Experiment::named("nothing"), None);
}
