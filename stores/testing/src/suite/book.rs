//! What the book says an administrator types is run as it stands there.

use std::process::{Command, Stdio};

use emmer_store::SiloTable;
use emmer_store::silos::SILO_INSTANCES;

use super::Store;
use super::rows::{cluster, silo};

/// The first block of shell commands on a page of the book.
///
/// # Panics
/// There is none.
pub fn first_command(page: &str) -> &str {
    let (_, rest) = page.split_once("```sh\n").expect("the page has no block of shell commands");
    let (command, _) = rest.split_once("\n```").expect("the block does not end");
    command
}

/// The first command on the store's page lists the silos of the cluster `prod`, with every column
/// of the table description. `run` is given the command and returns what it prints at the server of
/// `url`.
///
/// # Panics
/// It does not.
pub async fn lists_the_silos(
    store: Store,
    url: &str,
    page: &str,
    run: impl FnOnce(&str) -> String,
) {
    let table = SiloTable::new(store.patient(url).await, cluster("prod"));
    table.ensure().await.unwrap();
    table.commit(&table.read_version().await.unwrap(), vec![silo(1)], vec![]).await.unwrap();
    let shown = tokio::task::block_in_place(|| run(first_command(page)));
    let lower = shown.to_ascii_lowercase();
    let keys = [SILO_INSTANCES.partition_key, SILO_INSTANCES.row_key].into_iter();
    for name in keys.chain(SILO_INSTANCES.columns.iter().map(|column| column.name)) {
        assert!(
            lower.contains(&name.to_ascii_lowercase()),
            "no {name} in what the command prints:\n{shown}"
        );
    }
    for value in ["127.0.0.1-11111-1", "Active", "VersionRow", "1970-01-01"] {
        assert!(shown.contains(value), "no {value} in what the command prints:\n{shown}");
    }
}

/// What a command prints.
///
/// # Panics
/// It fails.
pub fn output_of(command: &mut Command) -> String {
    let ended = command.stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).into_owned()
}
