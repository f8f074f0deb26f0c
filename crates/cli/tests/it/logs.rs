//! The log of silos at `info`: a cluster's life in a dozen lines.

use serde_json::Value;

use crate::harness::{Silo, failure, run, store_in, wait_status};

/// The lines of a log in JSON, as level, silo and message; silos by their names.
fn told(log: &str) -> Vec<String> {
    let lines = log.lines().map(|line| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    lines
        .map(|line| {
            let silo = text(&line, "silo");
            let name = silo.split(" (").next().unwrap_or_default();
            let message = text(&line, "message");
            let message = message.split(": ").next().unwrap_or_default();
            format!("{} {name} {message}", text(&line, "level")).replace("  ", " ")
        })
        .collect()
}

#[test]
fn the_log_tells_the_life_of_three_silos_of_which_one_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let start = |name: &str| {
        let more = ["--name", name, "--log", "info", "--log-format", "json"];
        Silo::start(&store, "127.0.0.1:0", &more)
    };
    let (mut first, mut second, mut third) = (start("a"), start("b"), start("c"));
    second.process.kill();
    wait_status(&store, &second.address, "Dead");
    for silo in [&mut third, &mut first] {
        silo.process.signal("TERM");
        wait_status(&store, &silo.address, "Dead");
    }
    let (status, log) = first.process.end();
    assert!(status.success(), "{log}");
    // Some of them only say how the cluster came to know.
    let expected = [
        "INFO set",
        "INFO a silo begins",
        "INFO a a silo joins",
        "INFO a a silo has joined",
        "INFO b a silo joins",
        "INFO b a silo has joined",
        "INFO c a silo joins",
        "INFO c a silo has joined",
        "WARN b a silo was declared dead",
        "INFO c a silo leaves",
        "INFO c a silo has left",
        "INFO stopping",
        "INFO stopping in good order",
        "INFO a a silo leaves",
        "INFO a a silo has left",
        "INFO the silo has ended",
    ];
    let how = ["wrote that a silo is dead", "a probe was not answered", "a silo is suspected"];
    let mut lines = told(&log);
    lines.retain(|line| !how.iter().any(|how| line.ends_with(how)));
    assert_eq!(lines, expected, "{log}");
    let names_b = log.lines().find(|line| line.contains("declared dead")).unwrap();
    assert!(names_b.contains(&second.address) && names_b.contains("its process is gone"), "{log}");
    assert!(!log.contains("Dead {") && !log.contains("Some("), "no Debug print: {log}");
}

#[test]
fn a_form_of_the_log_that_there_is_not_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let of_silo = ["silo", "--store", &store, "--cluster-id", "dev", "--listen", "127.0.0.1:0"];
    let (code, said) = failure(&run(&[&of_silo[..], &["--log-format", "xml"]].concat()));
    assert!(code == 2 && said.contains("--log-format: log_format: \"xml\""), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}
