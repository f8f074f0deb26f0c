//! Report of the server to the doctor.

use crate::common::{PATIENT, open};
use emmer_test_servers::MariadbServer;

#[tokio::test]
async fn a_server_that_does_not_wait_for_its_disk_is_told() {
    let Some(server) = MariadbServer::start_or_skip("a_server_that_does_not_wait") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url())).await;
    let found = store.examine().await.unwrap();
    let said = server.sql("SELECT VERSION()").unwrap();
    assert!(
        found.server == "MariaDB" && said.contains(&found.version) && found.version.len() > 4,
        "{found:?} {said}"
    );
    // The server of these tests waits for the kernel only.
    assert!(found.warns_of_lost_writes() && found.findings[0].text.contains("is 2"), "{found:?}");
    // One host, one clock.
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms + 1_000, "{clock:?}");
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1").unwrap();
    assert!(!store.examine().await.unwrap().warns_of_lost_writes());
}
