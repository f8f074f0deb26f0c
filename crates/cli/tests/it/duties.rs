//! Silos that an operator cordons, drains and stops, from another process.

use emmer::Client;
use emmer_example_flights::Airport;
use serde_json::Value;

use crate::harness::{Silo, emmer, failure, row, run, store_in, wait_for, wait_status};

const FREE: &str = "127.0.0.1:0";

/// The command on the cluster of the test.
fn on(store: &str, command: &str, silo: &str, more: &[&str]) -> std::process::Output {
    let base = [command, silo, "--store", store, "--cluster-id", "test", "--format", "json"];
    run(&[&base[..], more].concat())
}

fn document(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[test]
fn a_silo_is_cordoned_drained_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let mut silos: Vec<_> =
        ["a", "b"].map(|name| Silo::start(&store, FREE, &["--name", name])).into();
    let duty = |silo: &Silo| row(&store, &silo.address).unwrap()["duty"].clone();

    let told = document(&on(&store, "cordon", "b", &["--because", "ticket 18"]));
    assert_eq!(
        (&told["changed"], &told["told"], &told["name"]),
        (&true.into(), &true.into(), &"b".into())
    );
    assert_eq!(duty(&silos[1]), "Cordoned");
    assert_eq!(document(&on(&store, "cordon", "b", &[]))["changed"], false);

    // The grains of one would have no place to go.
    let output = on(&store, "drain", "a", &[]);
    let (code, said) = failure(&output);
    assert!(code == 1 && said.contains("no other silo takes"), "{said}");
    assert_eq!(duty(&silos[0]), "Full");

    assert_eq!(document(&on(&store, "uncordon", "b", &[]))["duty"], "Full");
    let drained = document(&on(&store, "drain", silos[1].endpoint(), &[]));
    assert_eq!(
        (&drained["done"], &drained["silo"]),
        (&true.into(), &silos[1].address.clone().into())
    );
    assert_eq!(duty(&silos[1]), "Drained");
    assert!(silos[1].process.is_running());

    let stopped = document(&on(&store, "stop", "b", &[]));
    assert_eq!(stopped["done"], true);
    let (status, said) = silos[1].process.end();
    assert!(status.success(), "{status}: {said}");
    wait_status(&store, &silos[1].address, "Dead");
    let (code, said) = failure(&on(&store, "uncordon", "b", &[]));
    assert!(code == 1 && said.contains("is Dead"), "{said}");

    let base = ["history", "--store", &store, "--cluster-id", "test", "--format", "json"];
    let shown = String::from_utf8(run(&base).stdout).unwrap();
    let words = ["cordoned", "resumed", "drains", "drained", "asked-to-leave"];
    for word in words.into_iter().chain(["ticket 18", "emmer drain", "operator"]) {
        assert!(shown.contains(word), "{word} in {shown}");
    }
}

/// No process is there to be told: the word stands in the table, and the wait ends.
#[test]
fn a_wait_for_a_silo_that_does_nothing_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let mut silos: Vec<_> =
        ["a", "b"].map(|name| Silo::start(&store, FREE, &["--name", name])).into();
    for silo in &silos {
        silo.process.signal("STOP");
    }
    let output = on(&store, "drain", "b", &["--within", "1s"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no gateway answers") && said.contains("is not done after 1s"), "{said}");
    assert_eq!(row(&store, &silos[1].address).unwrap()["duty"], "Draining");
    for silo in &mut silos {
        silo.process.kill();
    }
}

#[test]
fn words_that_no_history_should_have_are_refused() {
    for reason in ["", "two\nlines", &"x".repeat(1_001)] {
        let base = ["cordon", "a", "--store", "sqlite://nowhere.db", "--because", reason];
        let (code, said) = failure(&emmer(&base).output().unwrap());
        assert!(code == 2 && said.contains("--because"), "{said}");
    }
}

/// A silo joins one that has all grains. Nothing moves by itself, nor by a dry run.
#[test]
fn grains_are_evened_out_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let first = Silo::start(&store, FREE, &["--name", "a"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let call_all = async || {
        let client = Client::builder().store(&*store).cluster_id("test");
        let client = client.connect().await.unwrap();
        for n in 0..300u64 {
            let airport = client.grain::<dyn Airport>(format!("A{n}"));
            assert_eq!(airport.totals().await.unwrap().applied, 0);
        }
        client.close().await;
    };
    runtime.block_on(call_all());
    let second = Silo::start(&store, FREE, &["--name", "b"]);
    let base = ["rebalance", "--store", &store, "--cluster-id", "test", "--format", "json"];
    let rebalance = |how: &str| document(&run(&[&base[..], &[how]].concat()));
    let counts = |document: &Value, field: &str| -> Vec<u64> {
        let silos = document["silos"].as_array().unwrap();
        silos.iter().map(|silo| silo[field].as_u64().unwrap()).collect()
    };
    let planned = wait_for("both silos to tell their counts", || {
        let planned = rebalance("--dry-run");
        (counts(&planned, "used").iter().sum::<u64>() == 300
            && planned["transfers"].as_array().is_some_and(|all| !all.is_empty()))
        .then_some(planned)
    });
    assert_eq!(planned["transfers"][0]["from"], first.address.as_str());
    assert_eq!(planned["transfers"][0]["to"], second.address.as_str());
    assert_eq!(planned["transfers"][0]["grains"], 150);
    assert_eq!(counts(&planned, "after"), [150, 150]);
    let again = rebalance("--dry-run");
    assert_eq!(counts(&again, "used").iter().max(), Some(&300), "a dry run moves nothing");

    rebalance("--now");
    let even = wait_for("both silos to have their half", || {
        let shown = rebalance("--dry-run");
        let used = counts(&shown, "used");
        (used.iter().all(|used| (140..=160).contains(used))).then_some(shown)
    });
    assert_eq!(even["transfers"], serde_json::json!([]));
    runtime.block_on(call_all());
}
