//! Report of the server to the doctor.

use crate::common::{PATIENT, open};
use emmer_store::{FindingLevel, FindingSubject};
use emmer_test_servers::PostgresServer;

#[tokio::test]
async fn a_server_that_does_not_wait_for_its_disk_is_told() {
    let Some(server) = PostgresServer::start_or_skip("a_server_that_does_not_wait") else { return };
    let store = open(&format!("{}?{PATIENT}", server.url_of("postgres"))).await;
    let found = store.examine().await.unwrap();
    let said = server.psql(&["-Atc", "SHOW server_version"]).unwrap();
    assert!(found.server == "PostgreSQL" && said.starts_with(&found.version), "{found:?} {said}");
    assert!(found.version.starts_with(|c: char| c.is_ascii_digit()), "{found:?}");
    // The server of these tests has fsync off.
    assert!(found.warns_of_lost_writes() && found.findings[0].text.contains("fsync"), "{found:?}");
    // One host, one clock.
    let clock = found.clock.unwrap();
    assert!(clock.ahead_ms.abs() <= clock.uncertainty_ms + 1_000, "{clock:?}");
    // A user who may not make tables gets a hint, and with fsync there is no warning.
    server
        .psql(&[
            "-c",
            "CREATE ROLE silo LOGIN PASSWORD 'pw'; REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        ])
        .unwrap();
    let store =
        open(&format!("postgres://silo:pw@127.0.0.1:{}/postgres?{PATIENT}", server.port())).await;
    let found = store.examine().await.unwrap();
    let told = |f: &&emmer_store::Finding| {
        f.subject == FindingSubject::Permission && f.level == FindingLevel::Note
    };
    assert!(found.findings.iter().any(|finding| told(&finding)), "{found:?}");
}
