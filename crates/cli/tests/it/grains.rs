//! Commands that look at the grains of a running cluster, and act on them.

use serde_json::Value;

use crate::harness::{Silo, failure, run, store_in};

const FREE: &str = "127.0.0.1:0";

/// The command on the cluster of the test.
fn on(store: &str, args: &[&str]) -> std::process::Output {
    run(&[args, &["--store", store, "--cluster-id", "test"]].concat())
}

fn document(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn text(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn grains_are_counted_listed_called_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let silos: Vec<_> = ["a", "b"].map(|name| Silo::start(&store, FREE, &["--name", name])).into();
    for n in 0..12 {
        let key = format!("A{n:02}");
        let totals = document(&on(&store, &["call", "airport", &key, "totals"]));
        assert_eq!(totals["departures"], 0);
    }
    let counts = document(&on(&store, &["grains", "--format", "json"]));
    let airports = counts["types"].as_array().unwrap().iter();
    let airports = airports.filter(|one| one["grain_type"] == "airport");
    let active: u64 = airports.map(|one| one["activations"].as_u64().unwrap()).sum();
    assert_eq!(active, 12);
    // Page by page, over both silos, each of them once.
    let (mut keys, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut args = vec!["grains", "airport", "--limit", "5", "--format", "json"];
        if let Some(after) = &after {
            args.extend(["--after", after]);
        }
        let page = document(&on(&store, &args));
        let rows = page["grains"].as_array().unwrap();
        assert!(rows.len() <= 5);
        keys.extend(rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    keys.sort();
    assert_eq!(keys, (0..12).map(|n| format!("A{n:02}")).collect::<Vec<_>>());
    let found = text(&on(&store, &["grains", "Airport", "--key", "A07"]));
    assert!(found.contains("airport  A07") && found.lines().count() == 2, "{found}");

    let ended = document(&on(
        &store,
        &["deactivate", "airport", "A07", "--because", "ticket 19", "--format", "json"],
    ));
    assert_eq!((&ended["ended"], &ended["left"]), (&1.into(), &0.into()));
    let look = text(&on(&store, &["grain", "airport", "A07"]));
    assert!(look.starts_with("airport/A07 is not active"), "{look}");
    let again = text(&on(&store, &["deactivate", "airport", "A07"]));
    assert_eq!(again, "airport/A07 was not active\n");
    // Without the store: each gateway finds the silo of the grain.
    for silo in &silos {
        let gateway = silo.gateway.to_string();
        let args = ["grain", "airport", "A03", "--gateway", &gateway, "--cluster-id", "test"];
        let look = run(&args);
        assert!(text(&look).starts_with("airport/A03 on silo "), "{look:?}");
    }
    let history = crate::harness::wait_for("the act in the history", || {
        let shown = text(&on(&store, &["history"]));
        shown.contains("deactivated").then_some(shown)
    });
    assert!(history.contains("airport/A07: 1 ended") && history.contains("ticket 19"), "{history}");
}

#[test]
fn wrong_names_and_arguments_are_answered_with_what_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let _silo = Silo::start(&store, FREE, &[]);
    for (args, code, words) in [
        (&["grain", "airprot", "JFK"][..], 1, "expected one of aircraft, airport"),
        (&["call", "airport", "JFK", "total"], 2, "Airport.totals() -> AirportTotals"),
        (&["call", "airport", "JFK", "totals", "{"], 2, "no JSON"),
        (&["call", "airport", "JFK", "totals", "3"], 2, "neither an object nor an array"),
        (&["call", "airport", "JFK", "apply"], 2, "from: u64, batch: Vec<Departure>"),
        (&["call", "airport", "JFK", "apply", r#"{"form": 1}"#], 2, "\"form\" is no argument"),
        (&["call", "airport", "JFK", "apply", r#"{"from": "x", "batch": []}"#], 1, "codec"),
        (&["grains", "--silo", "c"], 1, "there is no silo \"c\""),
    ] {
        let output = on(&store, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(words), "{args:?}: {said}");
    }
    let methods = text(&on(&store, &["call", "airport", "JFK"]));
    assert!(methods.contains("Airport.totals() -> AirportTotals\n"), "{methods}");
    let (code, said) = failure(&run(&["grains"]));
    assert!(code == 2 && said.contains("--gateway"), "{said}");
}

/// A key is the application's, and may be anything.
#[test]
fn no_key_says_anything_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let _silo = Silo::start(&store, FREE, &[]);
    let key = "\u{1b}]0;mine\u{7}\r\n<script>\u{9b}2J";
    document(&on(&store, &["call", "airport", key, "totals"]));
    let shown = [
        text(&on(&store, &["grains", "airport"])),
        text(&on(&store, &["grain", "airport", key])),
        text(&on(&store, &["deactivate", "airport", key])),
    ];
    for shown in shown {
        let hostile = |c: char| c.is_control() && c != '\n';
        assert!(shown.contains("mine") && !shown.contains(hostile), "{shown:?}");
    }
}

/// As on a host where programs of strangers run.
#[test]
fn settings_close_the_interface() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let _silo = Silo::start(&store, FREE, &["--set", "admin.local=false"]);
    for args in [&["grains"][..], &["grain", "airport", "JFK"], &["deactivate", "airport", "JFK"]] {
        let (code, said) = failure(&on(&store, args));
        assert!(code == 1 && said.contains("the gateway refuses"), "{args:?}: {said}");
    }
}
