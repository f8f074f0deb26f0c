//! `emmer metrics`, `emmer statistics` and `emmer history` while silo processes run.

use serde_json::Value;

use crate::harness::{Silo, failure, run, store_in, wait_for, wait_status};

/// The output of a command about the cluster, as JSON.
fn json(store: &str, command: &str, more: &[&str]) -> Value {
    let base = [command, "--store", store, "--cluster-id", "test", "--format", "json"];
    let output = run(&[&base[..], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn table(store: &str, command: &str, more: &[&str]) -> String {
    let base = [command, "--store", store, "--cluster-id", "test"];
    let output = run(&[&base[..], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_silos_recorded_is_shown_while_none_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let start = |name: &str| {
        let more = [
            "--name",
            name,
            "--set",
            "records.metrics_period=1s",
            "--set",
            "records.statistics_period=1s",
        ];
        Silo::start(&store, "127.0.0.1:0", &more)
    };
    let (mut a, mut b) = (start("a"), start("b"));
    wait_for("metrics of both", || {
        let metrics = json(&store, "metrics", &[]);
        (metrics["silos"].as_array().unwrap().len() == 2).then_some(())
    });
    let of_a = wait_for("statistics of a", || {
        let found = json(&store, "statistics", &["--silo", "a", "--since", "5m"]);
        let found = found["statistics"].as_array().unwrap().clone();
        (!found.is_empty()).then_some(found)
    });
    assert!(of_a.iter().all(|one| one["name"] == "a" && one["address"] == a.address.as_str()));
    let probes = ["--name", "emmer_membership_probes_total", "--silo", &a.address];
    wait_for("the probes of a", || {
        let found = json(&store, "statistics", &probes);
        let found = found["statistics"].as_array().unwrap().clone();
        found.iter().any(|one| one["is_delta"] == true).then_some(())
    });
    b.process.kill();
    wait_status(&store, &b.address, "Dead");
    a.process.signal("TERM");
    assert!(a.process.end().0.success());
    let history = json(&store, "history", &[]);
    let told: Vec<_> = history["changes"].as_array().unwrap().iter().collect();
    let words: Vec<String> = told
        .iter()
        .map(|one| format!("{} {}", one["name"], one["change"]).replace('"', ""))
        .collect();
    for word in ["a joined", "b joined", "b died", "a leaves", "a left"] {
        assert!(words.iter().any(|w| w == word), "{word} is not in {words:?}");
    }
    let died = told.iter().find(|one| one["change"] == "died").unwrap();
    assert_eq!(died["written_by"], a.address.as_str());
    assert!(died["evidence"][0].as_str().unwrap().contains("its process is gone"), "{died}");
    let shown = table(&store, "history", &["--silo", "b"]);
    assert!(shown.contains("its process is gone") && !shown.contains("  a  "), "{shown}");
    let shown = table(&store, "metrics", &[]);
    assert!(shown.contains(": 2 silos have written\n") && shown.contains("MiB"), "{shown}");
    let shown = table(&store, "metrics", &["--clients"]);
    assert!(shown.ends_with(": 0 clients have written\n"), "{shown}");
    let shown = table(&store, "statistics", &["--since", "5m", "--name", "view_version"]);
    assert!(shown.contains("TIME") && shown.contains("emmer_membership_view_version"), "{shown}");
}

#[test]
fn bad_input_is_named_and_an_unused_store_has_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    for command in ["metrics", "statistics", "history"] {
        let (code, said) = failure(&run(&[command, "--store", &store, "--cluster-id", "dev"]));
        assert!(code == 3 && said.contains(&store), "{said}");
    }
    for since in ["yesterday", "99999999999999999999d", "20000d"] {
        let output = run(&["history", "--store", &store, "--cluster-id", "dev", "--since", since]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("--since"), "{said}");
    }
    let output = run(&["statistics", "--store", &store, "--cluster-id", "dev", "--since", "32d"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("at most 31d"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
    // A cluster without metrics, and a cluster id without rows, in a store with another cluster.
    Silo::start(&store, "127.0.0.1:0", &["--set", "records.metrics_period=0s"]);
    let base = ["metrics", "--store", &store, "--cluster-id"];
    let shown = run(&[&base[..], &["test"]].concat()).stdout;
    assert!(String::from_utf8_lossy(&shown).ends_with(": 0 silos have written\n"));
    let (code, said) = failure(&run(&[&base[..], &["other"]].concat()));
    assert!(code == 10 && said.contains("has no cluster other"), "{said}");
}

/// The list grows with each cluster that runs in the store, and helps with a name that is wrong.
#[test]
fn the_clusters_of_a_store_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let clusters = || {
        let output = run(&["clusters", "--store", &store, "--format", "json"]);
        assert!(output.status.success(), "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = document["clusters"].as_array().unwrap().clone();
        all.into_iter()
            .map(|one| (one["cluster_id"].as_str().unwrap().to_owned(), one["active"].clone()))
            .collect::<Vec<_>>()
    };
    std::fs::File::create(dir.path().join("cluster.db")).unwrap();
    assert_eq!(clusters(), []);
    let _silo = Silo::start(&store, "127.0.0.1:0", &[]);
    let listed = wait_for("the list", || Some(clusters()).filter(|all| !all.is_empty()));
    assert_eq!(listed, [("test".to_owned(), 1.into())]);
    let shown = String::from_utf8(run(&["clusters", "--store", &store]).stdout).unwrap();
    assert!(shown.contains("1 cluster\n") && shown.contains("LAST I AM ALIVE"), "{shown}");
    let shown = run(&["clusters", "--store", &store, "--limit", "0"]).stdout;
    assert!(String::from_utf8_lossy(&shown).ends_with(": 0 of 1 clusters (--limit)\n"));
    let (code, said) = failure(&run(&["history", "--store", &store, "--cluster-id", "tset"]));
    assert!(code == 10 && said.contains("has no cluster tset: there is test"), "{said}");
}
