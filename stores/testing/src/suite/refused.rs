//! Addresses where there is no store: an error that names the store, in time, and never the
//! password.

use std::time::Duration;

use emmer_store::StoreErrorKind;
use futures_util::FutureExt;

use super::rows::{NUMBERS, all, must_commit, same_number};
use super::{Store, with};

/// Longer than anything here may take; a test must not hang. (A store gives up within 5 s; a loaded
/// machine may not.)
const FAR_TOO_LONG: Duration = Duration::from_secs(60);
/// The password that no error may hold.
pub const PASSWORD: &str = "s3cret";

/// Each URL is refused with an error of this kind that names the store and holds this word, and
/// neither [`PASSWORD`] nor the beginning of a test server's.
///
/// # Panics
/// It is otherwise.
pub async fn addresses(store: Store, cases: &[(String, StoreErrorKind, &str)]) {
    for (url, kind, word) in cases {
        let opened = tokio::time::timeout(FAR_TOO_LONG, (store.open)(url.clone())).await.unwrap();
        let Err(error) = opened else { panic!("{url} was opened") };
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind, *kind, "{text}");
        let scheme = url.split("://").next().unwrap();
        assert!(text.contains(word) && error.store.starts_with(scheme), "{url}: {text}");
        let is_secret = |word: &str| text.contains(word);
        assert!(
            ![PASSWORD, "only/for", "only%2Ffor", "only-for"].into_iter().any(is_secret),
            "{text}"
        );
    }
}

/// The store of `trusting`, a URL that names the authority of the server's certificate, works and
/// does not say that its connection is not encrypted; the `others` are refused as [`addresses`]
/// are.
///
/// # Panics
/// It is otherwise.
pub async fn untrusted(store: Store, trusting: &str, others: &[(String, StoreErrorKind, &str)]) {
    let opened = store.patient(trusting).await;
    opened.ensure_tables(&[&NUMBERS]).await.unwrap();
    must_commit(&opened, "p", all(3, 7)).await;
    assert_eq!(same_number(&opened.read_partition(&NUMBERS, "p").await.unwrap(), 3), 7);
    let found = opened.examine().await.unwrap();
    assert!(
        !found.findings.iter().any(|finding| finding.text.contains("not encrypted")),
        "{found:?}"
    );
    addresses(store, others).await;
}

/// A server that accepts connections and never says anything is unavailable. `url_at` gives the URL
/// for a port of 127.0.0.1.
///
/// # Panics
/// It is otherwise.
pub async fn silent(url_at: impl Fn(u16) -> String, store: Store) {
    // The kernel accepts; no process reads.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = with(&url_at(listener.local_addr().unwrap().port()), store.hasty);
    let opened = tokio::time::timeout(FAR_TOO_LONG, (store.open)(url)).await.unwrap();
    let Err(error) = opened else { panic!("a store was opened where there is none") };
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(!error.to_string().contains("only/for"), "{error}");
}

/// A dropped store leaves no task behind, even if a caller gave up in the middle of an operation.
///
/// # Panics
/// It leaves one for a minute.
pub async fn dropped(url: &str, store: Store) {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let store = store.patient(url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let requests = (0..20).map(|_| store.read_partition(&NUMBERS, "p"));
    for read in futures_util::future::join_all(requests).await {
        read.unwrap();
    }
    // One caller that gives up, most likely in the middle: a server this near may have answered
    // already.
    if let Some(read) = store.read_partition(&NUMBERS, "p").now_or_never() {
        read.unwrap();
    }
    drop(store);
    let wait = async {
        while alive() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FAR_TOO_LONG, wait).await.expect("tasks are left");
}
