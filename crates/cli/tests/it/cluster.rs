//! Silos started by hand, as an operator does it.

use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Silo, failure, members, row, wait_for, wait_status};
use crate::harness::{run, store_in};

const FREE: &str = "127.0.0.1:0";

#[test]
fn three_silos_lose_one_then_all_and_come_back_on_the_same_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let mut silos: Vec<_> =
        ["a", "b", "c"].map(|name| Silo::start(&store, FREE, &["--name", name])).into();
    for silo in &silos {
        let row = wait_status(&store, &silo.address, "Active");
        assert_eq!(row["gateway"], silo.gateway.to_string());
    }

    silos[1].process.kill();
    let dead = wait_status(&store, &silos[1].address, "Dead");
    let voters: Vec<_> =
        dead["suspicions"].as_array().unwrap().iter().map(|v| v["voter"].clone()).collect();
    assert!(
        !voters.is_empty()
            && voters.iter().all(|v| *v == silos[0].address || *v == silos[2].address)
    );
    let shown = run(&["members", "--store", &store, "--cluster-id", "test"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("2 Active, 1 Dead") && shown.contains("suspected by"), "{shown}");

    silos[0].process.kill();
    silos[2].process.kill();
    let endpoints: Vec<_> = silos.iter().map(|silo| silo.endpoint().to_owned()).collect();
    let launched: Vec<_> =
        endpoints.iter().map(|listen| Silo::launch(&store, listen, &[])).collect();
    let back: Vec<_> = launched.into_iter().map(|silo| silo.active().unwrap()).collect();
    for (old, new) in silos.iter().zip(&back) {
        assert_eq!(old.endpoint(), new.endpoint());
        assert_ne!(old.address, new.address);
        wait_status(&store, &new.address, "Active");
        wait_status(&store, &old.address, "Dead");
    }

    for mut silo in back {
        silo.process.signal("TERM");
        let (status, said) = silo.process.end();
        assert!(status.success(), "{status}: {said}");
        wait_status(&store, &silo.address, "Dead");
    }
}

#[test]
fn two_silos_started_at_once_on_one_address_are_never_both_active() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    // No other process asks for this port in the moment between.
    let port = TcpListener::bind(FREE).unwrap().local_addr().unwrap().to_string();
    let both = [Silo::launch(&store, &port, &[]), Silo::launch(&store, &port, &[])];
    let (active, ended): (Vec<_>, Vec<_>) =
        both.map(crate::harness::Launched::active).into_iter().partition(Result::is_ok);
    assert_eq!((active.len(), ended.len()), (1, 1));
    for (status, said) in ended.into_iter().filter_map(Result::err) {
        assert!(status.code() == Some(4) && said.contains(&port), "{status}: {said}");
    }
    let rows = members(&store, "test")["silos"].as_array().unwrap().len();
    assert_eq!(rows, 1, "the loser wrote nothing");
}

/// Paused for long enough to be declared dead, a silo finds that out when it wakes, and ends.
#[test]
fn a_silo_declared_dead_ends_with_its_own_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let fast = ["--profile", "fast"];
    let mut silos: Vec<_> = (0..3).map(|_| Silo::start(&store, FREE, &fast)).collect();
    let victim = silos.remove(0);
    victim.process.signal("STOP");
    wait_status(&store, &victim.address, "Dead");
    victim.process.signal("CONT");
    let mut victim = victim;
    let (status, said) = victim.process.end();
    assert!(status.code() == Some(86) && said.contains(&victim.address), "{status}: {said}");
    wait_for("the others to be there", || {
        silos.iter_mut().all(|s| s.process.is_running()).then_some(())
    });
}

/// GNU `timeout`, and a Ctrl-C on a terminal, send a signal to a process and once more to its
/// group.
#[test]
fn a_signal_that_comes_several_times_at_once_is_one_request() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let mut silo = Silo::start(&store, "127.0.0.1:0", &[]);
    for name in ["TERM", "TERM", "INT", "TERM"] {
        silo.process.signal(name);
    }
    let (status, said) = silo.process.end();
    assert!(status.success(), "{status}: {said}");
    let row = row(&store, &silo.address).unwrap();
    assert_eq!(row["status"], "Dead", "it has left by itself: {row}");
}

/// Deletes the file of the store, with its log.
fn delete_store(dir: &Path) {
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.join(format!("cluster.db{end}")));
    }
}

/// Waits for the end of silos whose table is lost.
fn end_with_87(silos: Vec<Silo>, word: &str) {
    for mut silo in silos {
        let (status, said) = silo.process.end();
        assert_eq!(status.code(), Some(87), "{said}");
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn silos_whose_store_is_deleted_end_and_those_that_start_then_join_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let silos = vec![Silo::start(&store, FREE, &[]), Silo::start(&store, FREE, &[])];
    delete_store(dir.path());
    end_with_87(silos, "the membership table is gone from the store");
    assert!(!dir.path().join("cluster.db").exists(), "nobody has made it anew");
    let next = Silo::start(&store, FREE, &[]);
    wait_status(&store, &next.address, "Active");
    assert_eq!(members(&store, "test")["silos"].as_array().unwrap().len(), 1);
}

/// A copy of another store replaces the file, next to the old log: SQLite would read the two as
/// one.
#[test]
fn silos_whose_file_is_replaced_beside_its_log_end() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (store_in(dir.path()), tempfile::tempdir().unwrap());
    drop(Silo::start(&store_in(other.path()), FREE, &[]));
    let silos = vec![Silo::start(&store, FREE, &[]), Silo::start(&store, FREE, &[])];
    let name = |dir: &Path| dir.join("cluster.db");
    let copy = dir.path().join("copy.db");
    std::fs::copy(name(other.path()), &copy).unwrap();
    std::fs::rename(copy, name(dir.path())).unwrap();
    end_with_87(silos, "the membership table is gone from the store");
}

#[test]
fn silos_whose_store_is_replaced_end_and_leave_the_new_cluster_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let silos = vec![Silo::start(&store, FREE, &[]), Silo::start(&store, FREE, &[])];
    delete_store(dir.path());
    let next = Silo::start(&store, FREE, &[]);
    end_with_87(silos, "another membership table");
    wait_status(&store, &next.address, "Active");
    assert_eq!(members(&store, "test")["silos"].as_array().unwrap().len(), 1);
}

/// A silo that no other is left to declare dead.
#[test]
fn an_operator_declares_a_lost_silo_dead_and_no_living_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let mut silo = Silo::start(&store, FREE, &[]);
    let dead = |silo: &str, reason: &str| {
        let base = ["dead", silo, "--because", reason, "--format", "json"];
        run(&[&base[..], &["--store", &store, "--cluster-id", "test"]].concat())
    };
    let (code, said) = failure(&dead(&silo.address, "a mistake"));
    assert!(code == 1 && said.contains("touched its row") && said.contains("--force"), "{said}");
    assert!(said.contains("its port answers"), "{said}");
    assert_eq!(row(&store, &silo.address).unwrap()["status"], "Active");
    assert!(silo.process.is_running());
    let (code, said) = failure(&dead("127.0.0.1:1", "lost"));
    assert!(code == 1 && said.contains("ip:port:epoch"), "{said}");
    let (code, said) = failure(&dead(&silo.address, " "));
    assert!(code == 2 && said.contains("--because"), "{said}");
    silo.process.kill();
    for changed in [true, false] {
        let output = dead(&silo.address, "the power is out, ticket 17");
        assert!(output.status.success(), "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["changed"], changed, "{document}");
        assert_eq!(row(&store, &silo.address).unwrap()["status"], "Dead");
    }
    let base = ["history", "--store", &store, "--cluster-id", "test", "--format", "json"];
    let shown = String::from_utf8(run(&base).stdout).unwrap();
    assert!(shown.contains("ticket 17") && shown.contains("emmer dead"), "{shown}");
}
