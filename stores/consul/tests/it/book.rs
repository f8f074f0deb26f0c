//! The command in the book lists the silos.

use std::process::Command;

use emmer_store_consul::ConsulStore;
use emmer_test_servers::ConsulServer;
use emmer_test_servers::store;
use emmer_test_servers::suite::Store;
use emmer_test_servers::suite::book::{lists_the_silos, output_of};

const STORE: Store = store!(ConsulStore);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_own_tool_lists_the_silos() {
    let Some(server) = ConsulServer::start_or_skip("the_servers_own_tool") else { return };
    lists_the_silos(
        STORE,
        &server.url(),
        include_str!("../../../../docs/stores/consul.md"),
        |command| {
            let command =
                command.replace("localhost:8500", &format!("127.0.0.1:{}", server.port()));
            // Where the program was fetched it is not on the path.
            let command = command.replacen("consul", server.program().to_str().unwrap(), 1);
            output_of(Command::new("sh").args(["-c", &command]))
        },
    )
    .await;
}
