//! A pooler before the server: one that keeps sessions will do, another is refused.

use emmer_store::StoreErrorKind::Refused;
use emmer_test_servers::postgres::Pooler;
use emmer_test_servers::suite::refused;
use emmer_test_servers::{PostgresServer, skip};

use crate::common::{STORE, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_without_sessions_is_refused() {
    const TEST: &str = "a_pooler_without_sessions_is_refused";
    let Some(server) = PostgresServer::start_or_skip(TEST) else { return };
    let pooler = |mode| Pooler::start(&server, mode);
    let (transactions, sessions) = match (pooler("transaction"), pooler("session")) {
        (Ok(transactions), Ok(sessions)) => (transactions, sessions),
        (Err(trouble), _) | (_, Err(trouble)) => return skip(TEST, &trouble),
    };
    refused::addresses(STORE, &[(transactions.url(), Refused, "pool_mode = session")]).await;
    drop(open(&sessions.url()).await);
}
