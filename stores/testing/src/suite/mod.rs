//! Tests that every system store passes on its own server: the [conformance suite](conformance)
//! and faults. The server is killed, frozen and away. The connection is cut before and after every
//! message of a commit, of one row and of many; the process that commits is killed. Writers race,
//! snapshots are taken under load, partitions are large, addresses and passwords are wrong.
//!
//! A store's test program names its server and its way to open a store, and gets all tests:
//!
//! ```text
//! use emmer_test_servers::{PostgresServer, store, store_suite};
//!
//! store_suite!(PostgresServer::start_or_skip, store!(PostgresStore));
//! ```
//!
//! The parts are plain functions too, for a store that needs them otherwise, or whose server is
//! only where a variable names one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

pub mod between;
pub mod book;
pub mod conformance;
pub mod crosswise;
pub mod dying;
pub mod external;
pub mod faults;
pub mod forward;
pub mod lost;
pub mod members;
pub mod pages;
pub mod proxy;
pub mod refused;
pub mod rows;
pub mod switchover;
pub mod whole;
pub mod writers;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use emmer_store::SystemStore;
use emmer_store::{BoxFuture, Result, StoreErrorKind};

use crate::Trouble;

/// Opens a store by its URL.
pub type Open = fn(String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>>;

/// A server that belongs to one test, which may do anything to it. Dropping it ends it.
pub trait TestServer: Send + 'static {
    /// Its name and version, in its own words.
    fn version(&self) -> String;

    /// The port of 127.0.0.1 its clients connect to.
    fn port(&self) -> u16;

    /// The URL of an empty database, if the server were reached at this port of 127.0.0.1.
    fn url_at(&self, port: u16) -> String;

    /// The main process, for signals.
    fn pid(&self) -> u32;

    /// Kills it as a crash would (SIGKILL).
    fn kill(&mut self);

    /// Starts it again on the same data and port after [`kill`](Self::kill).
    ///
    /// # Errors
    /// It does not start.
    fn start_again(&mut self) -> std::result::Result<(), Trouble>;

    /// Number of deadlocks since the server was made; 0 for a server that knows of none.
    ///
    /// # Errors
    /// It cannot be asked.
    fn deadlocks(&self) -> std::result::Result<usize, Trouble> {
        Ok(0)
    }

    /// Returns true if the server locks the gaps between rows, where two commits that make rows may
    /// wait for each other. It detects that at once, and one of them is sent again.
    fn locks_gaps(&self) -> bool {
        false
    }

    /// The number of rows of a partition that it hands out in pages, each of another moment; none
    /// if every partition is one.
    fn paged_rows(&self) -> Option<usize> {
        None
    }

    /// Returns true if one of the first reads after a crash may show rows that are one commit too
    /// old, while the server takes back a commit that the crash cut off. A later read is right.
    fn recovers_behind_reads(&self) -> bool {
        false
    }

    /// Returns true if a commit whose answer was lost may be sent again, and then learns its
    /// outcome: it stays unknown only for want of time.
    fn knows_repeats(&self) -> bool {
        false
    }

    /// The URL of an empty database.
    fn url(&self) -> String {
        self.url_at(self.port())
    }
}

/// Time that a store that gives up soon may take to be opened.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// Way to open a store.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    /// Opens it.
    pub open: Open,
    /// The parameters of a URL for a store that waits long: the machine may run all tests at once.
    pub patient: &'static str,
    /// The parameters of a URL for a store that gives up within about a second.
    pub hasty: &'static str,
}

impl Store {
    /// Opens a store that waits long.
    ///
    /// # Panics
    /// It cannot be opened.
    pub async fn patient(&self, url: &str) -> Arc<dyn SystemStore> {
        (self.open)(with(url, self.patient)).await.unwrap()
    }

    /// Opens a store that gives up soon. Opening has no such limit, because the machine may be
    /// busy.
    ///
    /// # Panics
    /// It cannot be opened within `OPEN_LIMIT`.
    pub async fn hasty(&self, url: &str) -> Arc<dyn SystemStore> {
        let begun = Instant::now();
        loop {
            match (self.open)(with(url, self.hasty)).await {
                Err(error)
                    if error.kind == StoreErrorKind::Unavailable
                        && begun.elapsed() < OPEN_LIMIT => {}
                opened => return opened.unwrap(),
            }
        }
    }
}

/// `url` with more parameters.
pub fn with(url: &str, parameters: &str) -> String {
    match parameters {
        "" => url.to_owned(),
        _ if url.contains('?') => format!("{url}&{parameters}"),
        _ => format!("{url}?{parameters}"),
    }
}

/// The conformance suite, on an empty database.
///
/// # Panics
/// A case fails.
pub async fn conforms(url: &str, store: Store) {
    let url = with(url, store.patient);
    let report =
        conformance::run(&|| (store.open)(url.clone()), &mut |line| println!("{line}")).await;
    println!("{report}");
    assert!(report.is_success(), "{report}");
    let opened = (store.open)(url.clone()).await.unwrap();
    // A silo compares it with what the membership machine assumes.
    assert!(
        opened.request_timeout().is_some(),
        "the store does not say how long a request may take"
    );
    let found = opened.examine().await.unwrap();
    let scheme = url.split("://").next().unwrap_or_default();
    let version = format!("{} {}", found.server, found.version);
    crate::report::conformed(scheme, version.trim(), report.passed.len());
}

/// How a store with `async fn open(url: &str)` and the parameter `timeout_ms` is opened: a
/// [`Store`](crate::suite::Store), also for a constant.
#[macro_export]
macro_rules! store {
    ($store:ty) => {
        $crate::suite::Store {
            open: |url| {
                ::std::boxed::Box::pin(async move {
                    let store: ::std::sync::Arc<dyn $crate::suite::SystemStore> =
                        ::std::sync::Arc::new(<$store>::open(&url).await?);
                    Ok(store)
                })
            },
            patient: "timeout_ms=60000",
            hasty: "timeout_ms=1000",
        }
    };
}

/// Makes one test for each part of [`suite`](crate::suite). `$start` is
/// `fn(test: &str) -> Option<impl TestServer>`, with none where the server is not installed;
/// `$store` is a constant [`Store`](crate::suite::Store).
///
/// The calling crate needs tokio with `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! store_suite {
    ($start:expr, $store:expr) => {
        $crate::store_suite!(@each $start, $store;
            it_conforms: |server| {
                println!("SERVER {}", $crate::suite::TestServer::version(&server));
                $crate::suite::conforms(&$crate::suite::TestServer::url(&server), $store).await;
            },
            a_killed_server_keeps_every_acknowledged_commit: |server| {
                $crate::suite::faults::killed(server, $store).await;
            },
            a_server_that_is_away_is_unavailable_and_found_again: |server| {
                $crate::suite::faults::away(server, $store).await;
            },
            a_server_that_is_away_is_waited_for_as_long_as_every_store_does: |server| {
                $crate::suite::faults::nobody_listens(&server, $store).await;
            },
            a_connection_cut_around_a_commit_leaves_it_unknown: |server| {
                $crate::suite::faults::cut(&server, $store).await;
            },
            a_commit_whose_connection_is_cut_is_there_whole_or_not_at_all: |server| {
                $crate::suite::dying::cut(&server, $store).await;
            },
            a_commit_whose_server_stood_still_is_there_whole_or_not_at_all: |server| {
                $crate::suite::dying::stopped(&server, $store).await;
            },
            a_commit_whose_process_is_killed_is_there_whole_or_not_at_all: |server| {
                let url = $crate::suite::TestServer::url(&server);
                let writer = concat!(module_path!(), "::a_process_to_be_killed_that_commits");
                // A test's name does not begin with its program's.
                let writer = writer.split_once("::").map_or(writer, |(_, name)| name);
                $crate::suite::dying::killed(&url, $store, writer).await;
            },
            racing_writers_move_the_version_once_per_acknowledged_commit: |server| {
                $crate::suite::writers::race(&$crate::suite::TestServer::url(&server), $store).await;
            },
            ten_thousand_snapshots_under_writes_are_whole: |server| {
                $crate::suite::writers::snapshots(&$crate::suite::TestServer::url(&server), $store).await;
            },
            five_thousand_rows_are_read_whole: |server| {
                let url = $crate::suite::TestServer::url(&server);
                if $crate::suite::TestServer::paged_rows(&server).is_some() {
                    $crate::suite::pages::whole(&url, $store).await;
                } else {
                    $crate::suite::writers::large_partition(&url, $store).await;
                }
            },
            reads_of_several_pages_end_beside_sixteen_writers: |server| {
                if let Some(rows) = $crate::suite::TestServer::paged_rows(&server) {
                    let url = $crate::suite::TestServer::url(&server);
                    $crate::suite::pages::beside_writers(&url, $store, rows).await;
                }
            },
            many_connections_make_the_first_tables_at_once: |server| {
                $crate::suite::writers::first_tables(&$crate::suite::TestServer::url(&server), $store).await;
            },
            commits_that_lock_crosswise_all_happen: |server| {
                $crate::suite::crosswise::without_deadlocks(&server, $store).await;
            },
            commits_that_make_rows_crosswise_all_happen: |server| {
                $crate::suite::crosswise::new_rows_without_deadlocks(&server, $store).await;
            },
            a_server_that_accepts_and_says_nothing_is_unavailable: |server| {
                $crate::suite::refused::silent(|port| $crate::suite::TestServer::url_at(&server, port), $store).await;
            },
            a_dropped_store_leaves_no_task: |server| {
                $crate::suite::refused::dropped(&$crate::suite::TestServer::url(&server), $store).await;
            },
        );

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_process_to_be_killed_that_commits() {
            $crate::suite::dying::writer($store).await;
        }
    };
    (@each $start:expr, $store:expr; $($name:ident: |$server:ident| $body:block),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let Some($server) = ($start)(stringify!($name)) else { return };
                $body
            }
        )*
    };
}
