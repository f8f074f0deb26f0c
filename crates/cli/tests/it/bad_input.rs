//! Bad input: a clear paragraph, its own exit code, and nothing half done.

use std::io::Write;
use std::net::TcpListener;

use crate::harness::{emmer, failure, members, run, store_in};

/// Exit code and message of an `emmer silo` that fails.
fn silo(store: &str, cluster: &str, listen: &str, gateway: &str) -> (i32, String) {
    failure(&run(&[
        "silo",
        "--store",
        store,
        "--cluster-id",
        cluster,
        "--listen",
        listen,
        "--gateway",
        gateway,
    ]))
}

#[test]
fn stores_that_cannot_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let free = "127.0.0.1:0";
    let (code, said) = silo("nosuch://here", "dev", free, free);
    assert!(code == 2 && said.contains("\"nosuch\"") && said.contains("sqlite"), "{said}");
    let (code, said) = silo("mongodb+srv://bob:s3cret@cluster/db", "dev", free, free);
    assert!(code == 2 && said.contains("mongodb://") && !said.contains("s3cret"), "{said}");
    if cfg!(not(feature = "mysql")) {
        let (code, said) = silo("mariadb://bob:s3cret@db/x", "dev", free, free);
        assert!(code == 3 && said.contains("--features mysql"), "{said}");
    }
    let (code, said) = silo("postgres://bob:s3cret@db/x", "dev", free, free);
    assert!(code == 3 && said.contains("postgres") && !said.contains("s3cret"), "{said}");
    let directory = format!("sqlite://{}", dir.path().display());
    let missing = format!("sqlite://{}/no/such/dir/cluster.db", dir.path().display());
    let garbage = dir.path().join("garbage.db");
    std::fs::write(&garbage, "this is no database, whatever its name says").unwrap();
    let garbage = format!("sqlite://{}", garbage.display());
    for url in [&directory, &missing, &garbage] {
        let (code, said) = silo(url, "dev", free, free);
        assert!(code == 3 && said.contains(url), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn names_and_addresses_that_are_none() {
    let free = "127.0.0.1:0";
    for (cluster, listen, gateway, says) in [
        ("two words", free, free, "--cluster-id: cluster_id: \"two words\""),
        ("dev", "localhost", free, "--listen: listen: "),
        ("dev", free, "30000", "--gateway: gateway: "),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (code, said) = silo(&store_in(dir.path()), cluster, listen, gateway);
        assert!(code == 2 && said.contains(says), "{said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{says}: nothing was made");
    }
}

/// They are refused before a file is made or a port is taken.
#[test]
fn options_that_nothing_can_work_with() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let file = dir.path().join("emmer.toml");
    std::fs::write(&file, "name = \"a\\u0000b\"\n[limits]\noutgoing_bytes_max = 0\n").unwrap();
    let common = ["silo", "--store", &store, "--cluster-id", "dev", "--listen", "127.0.0.1:0"];
    let path = file.to_str().unwrap();
    let cases: [(&[&str], &[&str]); 7] = [
        (
            &["--name", "a\nb"],
            &["--name: name: \"a\\nb\" has a control character", "1 to 256 bytes"],
        ),
        (&["--name", ""], &["--name: name: is empty"]),
        (&["--role", ""], &["--role: role: is empty"]),
        (&["--config", path], &["emmer.toml:1: name: \"a\\0b\" has a control character"]),
        (
            &["--config", path, "--name", "b"],
            &["emmer.toml:3: limits.outgoing_bytes_max: is 0", "65536"],
        ),
        (
            &["--set", "limits.frame_bytes_max=10"],
            &["--set: limits.frame_bytes_max: is 10", "at least 65536"],
        ),
        (&["--set", "shutdown_timeout=0s"], &["--set: shutdown_timeout: is 0ms", "at least 10ms"]),
    ];
    for (options, says) in cases {
        let (code, said) = failure(&run(&[&common, options].concat()));
        assert!(code == 2 && says.iter().all(|part| said.contains(part)), "{options:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was made");
}

#[test]
fn addresses_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let occupant = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = occupant.local_addr().unwrap().to_string();
    for (listen, gateway) in [(taken.as_str(), "127.0.0.1:0"), ("127.0.0.1:0", taken.as_str())] {
        let (code, said) = silo(&store, "dev", listen, gateway);
        assert!(code == 4 && said.contains(&taken), "{said}");
    }
    assert_eq!(members(&store, "dev")["silos"].as_array().unwrap().len(), 0, "no row was left");
}

#[test]
fn configuration_nobody_knows() {
    let dir = tempfile::tempdir().unwrap();
    let output = emmer(&["silo"]).env("EMMER_LISTN", "127.0.0.1:0").output().unwrap();
    let (code, said) = failure(&output);
    assert!(code == 2 && said.contains("EMMER_LISTN") && said.contains("EMMER_LISTEN"), "{said}");
    let file = dir.path().join("emmer.toml");
    std::fs::File::create(&file)
        .unwrap()
        .write_all(b"\n[membership]\nprobe_perod = \"1s\"\n")
        .unwrap();
    let (code, said) = failure(&run(&["silo", "--config", file.to_str().unwrap()]));
    assert!(
        code == 2 && said.contains("emmer.toml:3") && said.contains("membership.probe_period"),
        "{said}"
    );
    let output = run(&["silo", "--cluster-id", "dev"]);
    let (code, said) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
    assert!(code == Some(2) && said.contains("store is not set"), "{said}");
    assert!(said.contains("EMMER_STORE") && said.contains("listen is not set"), "{said}");
}

#[test]
fn members_of_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let (code, said) = failure(&run(&["members", "--store", &store, "--cluster-id", "dev"]));
    assert!(code == 3 && said.contains("does not exist"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "looking makes nothing");
    std::fs::File::create(dir.path().join("cluster.db")).unwrap();
    let document = members(&store, "dev");
    assert_eq!(
        (document["version"].as_u64(), document["cluster_id"].as_str()),
        (Some(0), Some("dev"))
    );
    assert_eq!(document["silos"].as_array().unwrap().len(), 0);
    let output = run(&["members", "--store", &store, "--cluster-id", "dev"]);
    assert_eq!(output.status.code(), Some(10));
    assert!(String::from_utf8_lossy(&output.stdout).contains("version 0: no silos"));
}

#[test]
fn departures_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cut.csv");
    let header = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_delay,carrier,flight,tailnum,origin,dest,distance";
    let row = "2013,1,1,517,515,2,11,UA,1545,N14228,EWR,IAH,1400";
    for (last, says) in
        [("2013,1,1,517,515,2,11,UA,15\n", "line 4: 9 fields"), (row, "line 4: it does not end")]
    {
        std::fs::write(&file, format!("{header}\n{row}\n{row}\n{last}")).unwrap();
        let (code, said) = failure(&run(&["demo", "--data", file.to_str().unwrap()]));
        assert!(
            code == 7 && said.contains(says) && said.contains("nothing was replayed"),
            "{said}"
        );
    }
}

#[test]
fn a_placement_that_does_not_exist() {
    let silo = ["silo", "--store", "memory://", "--cluster-id", "c", "--listen", "127.0.0.1:0"];
    for command in [&silo[..], &["demo"]] {
        let (code, said) = failure(&run(&[command, &["--placement", "nearby"]].concat()));
        let is_named = said.contains("--placement") && said.contains("\"nearby\"");
        assert!(code == 2 && is_named && said.contains("hash_based"), "{said}");
    }
}

/// The answers are on record word for word: `EMMER_BLESS=1` rewrites the file.
#[test]
fn answers_to_bad_input_are_the_ones_on_record() {
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/bad_inputs.txt");
    let dir = tempfile::tempdir().unwrap();
    let files = [
        (
            "types.toml",
            "listen = 5\n[membership]\nprobe_period = true\n[limits]\n\
            forwards_max = \"many\"\n",
        ),
        ("store.toml", "store = 5\ncluster_id = \"dev\"\nlisten = \"127.0.0.1:0\"\n"),
        ("twenty.toml", "cluster_id = \"dev\"\n[limits]\nforwards_max = 99999999999999999999\n"),
        ("syntax.toml", "cluster_id = \"dev\"\nlisten = = 1\n"),
        ("shapes.toml", "listen = [1]\nname = { a = 1 }\nmembership = 5\n"),
        ("names.toml", "lisen = \"127.0.0.1:0\"\n[membreship]\nprobe_period = \"1s\"\n"),
        ("empty.db", ""),
    ];
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let here = dir.path().canonicalize().unwrap().display().to_string();
    let recorded = std::fs::read_to_string(record).unwrap();
    // Stores that other features bring are named in some answers.
    let is_plain = emmer::store::SCHEMES.len() == 2;
    let mut said = String::new();
    for block in recorded.split("$ emmer").skip(1) {
        let line = block.lines().next().unwrap();
        let arguments: Vec<_> = line.split_whitespace().collect();
        let output = emmer(&arguments).current_dir(dir.path()).output().unwrap();
        let out = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(out).unwrap().replace(&here, "/here");
        let text: String = text.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        let code = output.status.code().unwrap();
        assert!(code != 0, "{line}: it was taken for good");
        if block.contains("this build") && !is_plain {
            said.push_str(&format!("$ emmer{block}"));
        } else {
            said.push_str(&format!("$ emmer{line}\n{text}[exit code {code}]\n\n"));
        }
    }
    let made: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(made.len(), files.len(), "something was left behind: {made:?}");
    if std::env::var_os("EMMER_BLESS").is_some() {
        std::fs::write(record, &said).unwrap();
    }
    assert_eq!(said, recorded, "the answers differ from tests/it/bad_inputs.txt");
}
