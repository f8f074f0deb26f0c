//! `emmer doctor` and `emmer schema`.

use serde_json::Value;

use crate::harness::{failure, run, store_in};

#[test]
fn a_good_store_is_fit_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let url = store_in(dir.path());
    // A file that is missing is not made.
    let (code, said) = failure(&run(&["doctor", "--store", &url]));
    assert!(code == 3 && said.contains("is the path right"), "{said}");
    let made = format!("{url}?mode=rwc");
    let found = run(&["doctor", "--store", &made]);
    let shown = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.status.success(), "{shown}{}", String::from_utf8_lossy(&found.stderr));
    assert!(
        shown.contains("commit") && shown.contains("(of 25)") && !shown.contains("FAILED"),
        "{shown}"
    );
    assert!(shown.contains("what was written is deleted"), "{shown}");
    assert!(shown.ends_with("\nfit for a cluster\n"), "{shown}");
    // Again, for a program: every field is in the book.
    let found = run(&["doctor", "--store", &url, "--format", "json"]);
    let document: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(
        (&document["fit"], document["checks"].as_array().map(Vec::len)),
        (&Value::Bool(true), Some(10))
    );
    assert_eq!(document["limits"]["mutations"].as_u64(), Some(100));
    assert!(document["commit"]["median_us"].as_u64().unwrap() > 0);
    let page = include_str!("../../../../docs/commands.md");
    for name in names(&document) {
        assert!(page.contains(&format!("| `{name}` |")), "docs/commands.md does not list {name}");
    }
    // The cluster it used is empty.
    let members =
        run(&["members", "--store", &url, "--cluster-id", "emmer-doctor", "--format", "json"]);
    let members: Value = serde_json::from_slice(&members.stdout).unwrap();
    assert_eq!(
        (members["version"].as_u64(), members["silos"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
}

/// Every field's name, at any depth.
fn names(json: &Value) -> Vec<String> {
    match json {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| [vec![name.clone()], names(value)].concat())
            .collect(),
        Value::Array(items) => items.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn mistakes_end_with_one_paragraph() {
    for (args, code, word) in [
        (["doctor", "--store", "mongo://x"].as_slice(), 2, "mongo"),
        (&["doctor"], 2, "EMMER_STORE"),
        (&["schema", "--store", "memory://x"], 2, "no script for memory"),
        (&["schema", "--store", "nothing"], 2, "://"),
    ] {
        let (found, said) = failure(&run(args));
        assert!(found == code && said.contains(word), "{args:?}: {found} {said}");
    }
}

#[test]
fn the_script_of_a_file_is_printed_and_no_file_made() {
    let dir = tempfile::tempdir().unwrap();
    let found = run(&["schema", "--store", &store_in(dir.path())]);
    let script = String::from_utf8(found.stdout).unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    for words in ["emmer_meta", "silo_instances", "MembershipVersion", "grain_state"] {
        assert!(script.contains(words), "{words}: {script}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
