//! TLS as the URL asks for it, and tables of an older program.

use crate::common::{PATIENT, STORE, open};
use emmer_store::StoreErrorKind;
use emmer_test_servers::suite::{forward, refused};
use emmer_test_servers::tls::Certificates;
use emmer_test_servers::{PostgresServer, postgres, skip};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_as_secure_as_asked_for() {
    use StoreErrorKind::Refused;
    let Some(server) = PostgresServer::start_or_skip("connections_are_as_secure") else { return };
    let url = |parameters: &str| format!("{}?{PATIENT}&{parameters}", server.url_of("postgres"));
    // A server without TLS: addresses that require it are refused, those that prefer it connect
    // without.
    refused::addresses(STORE, &[(url("sslmode=require"), Refused, "TLS")]).await;
    drop(open(&url("sslmode=prefer")).await);
    let certificates = match Certificates::make() {
        Ok(made) => made,
        Err(trouble) => return skip("connections_are_as_secure", &trouble),
    };
    certificates.install(&server.data(), postgres::USER).unwrap();
    server.psql(&["-c", "ALTER SYSTEM SET ssl = on"]).unwrap();
    let is_on = |application: &str| {
        let sql = format!(
            "SELECT DISTINCT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
             WHERE application_name = '{application}'"
        );
        server.psql(&["-Atc", &sql]).unwrap().trim().to_owned()
    };
    server.psql(&["-c", "SELECT pg_reload_conf()"]).unwrap();
    // The reload is a signal: it takes a moment.
    while server.psql(&["-Atc", "SHOW ssl"]).unwrap().trim() != "on" {}
    let root = certificates.root().display().to_string();
    let modes = [
        ("disable".to_owned(), "f"),
        ("prefer".to_owned(), "t"),
        ("require".to_owned(), "t"),
        (format!("verify-full&ca_file={root}"), "t"),
        // As the clients of PostgreSQL call it.
        (format!("verify-full&sslrootcert={root}"), "t"),
    ];
    for (n, (mode, wanted)) in modes.into_iter().enumerate() {
        let name = format!("mode_{n}");
        let store = open(&url(&format!("sslmode={mode}&application_name={name}"))).await;
        assert_eq!(is_on(&name), wanted, "{mode}");
        drop(store);
    }
    // A root that did not sign, and a name that is not the certificate's.
    let other = Certificates::make().unwrap();
    let unsigned = url(&format!("sslmode=verify-full&ca_file={}", other.root().display()));
    let misnamed =
        url(&format!("sslmode=verify-full&ca_file={root}")).replace("127.0.0.1", "localhost");
    refused::addresses(STORE, &[(unsigned, Refused, "TLS"), (misnamed, Refused, "TLS")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_an_older_program_is_brought_forward_by_many_at_once() {
    let Some(server) = PostgresServer::start_or_skip("a_table_of_an_older_program") else { return };
    forward::by_many_at_once(&server.url_of("postgres"), STORE).await;
}
