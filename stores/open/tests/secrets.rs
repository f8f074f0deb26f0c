//! Addresses with secrets in every place: no error, no description and no line of a log shows one,
//! whatever the drivers say. No server is needed, for none answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use emmer_store::{StoreError, TABLES};
use emmer_stores::{SCHEMES, open};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The secret, and the same in base 64: some servers have keys of that form.
const SECRETS: [&str; 2] = ["s3cr3tS3CR3Tkey0", "czNjcjN0UzNDUjNUa2V5MA=="];

/// Addresses of a scheme, each with `SECRET` as its secret. Nothing listens at port 1.
fn addresses(scheme: &str) -> Vec<String> {
    let ends: &[&str] = match scheme {
        "memory" => &["a?password=SECRET"],
        "sqlite" => &["/nowhere/at/all.db?key=SECRET", "/nowhere/at/all.db?password=SECRET"],
        "consul" => &[
            "SECRET@127.0.0.1:1?timeout_ms=1000",
            "127.0.0.1:1?token=SECRET&timeout_ms=1000",
            "127.0.0.1:1?token=SECRET&nonsense=1",
        ],
        "azure-table" => &[
            "account:SECRET@127.0.0.1:1?timeout_ms=1000&tls=false",
            "account:SECRET@127.0.0.1:1?timeout_ms=1000",
            "account?account_key=SECRET&timeout_ms=1000&nonsense=1",
            "account?sas_token=SECRET&timeout_ms=1000",
            "account?sas=SECRET&timeout_ms=1000",
        ],
        "cosmos" => &[
            "account:SECRET@127.0.0.1:1/emmer?timeout_ms=1000&tls=false",
            "account:SECRET@127.0.0.1:1/emmer?timeout_ms=1000",
            "account/emmer?account_key=SECRET&nonsense=1",
        ],
        "dynamodb" => &[
            "AKIA:SECRET@eu-west-1?endpoint=http://127.0.0.1:1&timeout_ms=1000",
            "AKIA:SECRET@eu-west-1?session_token=SECRET&endpoint=http://127.0.0.1:1&nonsense=1",
        ],
        _ => &[
            "bob:SECRET@127.0.0.1:1/emmer?timeout_ms=1000",
            "bob:SECRET@127.0.0.1:1/emmer?timeout_ms=1000&nonsense=1",
            "bob:SECRET@127.0.0.1:1/emmer?timeout_ms=nonsense",
            "bob:SECRET@127.0.0.1:notaport/emmer",
            "bob:SECRET@/emmer",
            "bob:SECRET",
            "bob:SECRET/emmer?timeout_ms=1000",
            "bob@127.0.0.1:1/emmer?password=SECRET&timeout_ms=1000",
        ],
    };
    ends.iter().map(|end| format!("{scheme}://{end}")).collect()
}

/// All that a program could show of a failure.
fn shown(error: &StoreError) -> String {
    format!("{error} {error:?} {error:#?}")
}

/// Opens a store and uses it: everything that is said.
async fn said(url: &str) -> String {
    let store = match open(url).await {
        Ok(store) => store,
        Err(error) => return shown(&error),
    };
    let mut said = store.describe();
    let results = [
        store.ensure_tables(&TABLES).await,
        store.read_partition(TABLES[0], "a").await.map(drop),
        store.read_row(TABLES[0], "a", "b").await.map(drop),
        store.read_some(TABLES[0], "a", "b", 1).await.map(drop),
        store.examine().await.map(drop),
    ];
    for error in results.into_iter().filter_map(Result::err) {
        said += &shown(&error);
    }
    said
}

/// Keeps log lines of every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.0.lock().unwrap(), "{field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn no_text_of_any_store_shows_a_secret() {
    let log = Log::default();
    let _default = tracing::subscriber::set_default(log.clone());
    for scheme in SCHEMES {
        for (address, secret) in
            addresses(scheme).iter().flat_map(|address| SECRETS.map(|secret| (address, secret)))
        {
            let url = address.replace("SECRET", secret);
            let said = said(&url).await;
            assert!(!said.contains(secret), "{address}: {said}");
            let logged = std::mem::take(&mut *log.0.lock().unwrap());
            assert!(!logged.contains(secret), "{address}: the log says {logged}");
        }
    }
}
