//! `emmer config`.

use serde_json::Value;

use crate::harness::run;

#[test]
fn every_setting_is_shown_with_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("emmer.toml");
    let file = "store = \"postgres://me:hush@db/emmer\"\nlisten = \"127.0.0.1:1\"\n\n\
        [reminders]\nwindow = \"70s\"\n";
    std::fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let found = run(&["config", "--config", path, "--set", "limits.forwards_max=9"]);
    let shown = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.status.success(), "{shown}{}", String::from_utf8_lossy(&found.stderr));
    let line = |key: &str| {
        let found = shown.lines().find(|line| line.split_whitespace().next() == Some(key));
        found.unwrap_or_else(|| panic!("{key}: {shown}"))
    };
    assert!(line("store").contains("postgres://") && !shown.contains("hush"), "{shown}");
    assert!(line("listen").contains("127.0.0.1:1") && line("listen").contains("emmer.toml:2"));
    assert!(line("limits.forwards_max").ends_with("--set"));
    assert!(
        line("response_timeout").contains("30s") && line("response_timeout").ends_with("default")
    );
    assert!(shown.contains("a silo does not start so: cluster_id is not set"), "{shown}");

    let arguments = ["config", "--config", path, "--cluster-id", "shop"];
    let arguments = [&arguments[..], &["--changed", "--format", "json"]].concat();
    let found = run(&arguments);
    let document: Value = serde_json::from_slice(&found.stdout).unwrap();
    let keys = document["settings"].as_array().unwrap().iter().map(|one| one["key"].as_str());
    let keys: Vec<_> = keys.map(Option::unwrap).collect();
    assert_eq!(keys, ["store", "cluster_id", "listen", "reminders.window"]);
    assert_eq!(document["mistakes"], Value::Array(Vec::new()));
}

#[test]
fn all_mistakes_are_told_at_once() {
    let found = run(&["config", "--set", "lissten=1", "--set", "limits.forward_max=2"]);
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(2));
    assert!(said.contains("did you mean \"listen\"?"), "{said}");
    assert!(said.contains("did you mean \"limits.forwards_max\"?"), "{said}");
}
