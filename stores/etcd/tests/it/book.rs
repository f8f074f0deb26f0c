//! The command in the book lists the silos.

use std::process::Command;

use emmer_store_etcd::EtcdStore;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::book::{lists_the_silos, output_of};
use emmer_test_servers::{EtcdServer, Trouble, skip};

const STORE: Store = store!(EtcdStore);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_tool_lists_the_silos() {
    let Some(server) = EtcdServer::start_or_skip("the_servers_own_tool") else { return };
    // A package of its own.
    if let Err(trouble @ Trouble::Missing { .. }) = server.ctl(&["version"]) {
        return skip("etcdctl_lists_the_silos", &trouble);
    }
    lists_the_silos(
        STORE,
        &server.url(),
        include_str!("../../../../docs/stores/etcd.md"),
        |command| {
            let command =
                command.replace("localhost:2379", &format!("127.0.0.1:{}", server.port()));
            output_of(Command::new("sh").args(["-c", &command]))
        },
    )
    .await;
}
