use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use emmer_store::silos::SILO_INSTANCES;

use super::*;
use crate::credentials::{CredentialSource, StoreCredentials};

/// A server that takes some passwords, and counts the stores that were opened.
#[derive(Default)]
struct Server {
    taken: Mutex<BTreeSet<String>>,
    /// True if only requests check passwords, not the opening of a store.
    is_late: bool,
    /// Time that a request takes.
    slow: Mutex<Duration>,
    /// Opening a store never ends.
    hangs: Mutex<bool>,
    opened: AtomicUsize,
}

/// A store that its server takes, or not.
struct Guest {
    server: Arc<Server>,
    password: String,
}

impl Server {
    fn takes(passwords: &[&str], is_late: bool) -> Arc<Self> {
        let server = Self { is_late, ..Self::default() };
        server.take(passwords);
        Arc::new(server)
    }

    fn take(&self, passwords: &[&str]) {
        *self.taken.lock().unwrap() = passwords.iter().map(|&one| one.to_owned()).collect();
    }

    fn check(&self, password: &str) -> Result<()> {
        let is_taken = self.taken.lock().unwrap().contains(password);
        let error = || refused("fake", "wrong password".to_owned());
        if is_taken { Ok(()) } else { Err(error()) }
    }

    fn open(self: &Arc<Self>) -> Open {
        let server = self.clone();
        Arc::new(move |url| {
            let server = server.clone();
            Box::pin(async move {
                if *server.hangs.lock().unwrap() {
                    std::future::pending::<()>().await;
                }
                server.opened.fetch_add(1, Ordering::Relaxed);
                assert!(url.contains("timeout_ms=4000"), "{url}");
                let password = url.split([':', '@']).nth(2).unwrap_or_default().to_owned();
                if !server.is_late {
                    server.check(&password)?;
                }
                Ok(Arc::new(Guest { server, password }) as Arc<dyn SystemStore>)
            })
        })
    }
}

macro_rules! unused {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name<'a>(&'a self, $($argument: $type),*) -> BoxFuture<'a, Result<$answer>> {
            let _ = ($($argument,)*);
            unimplemented!(stringify!($name))
        })*
    };
}

impl SystemStore for Guest {
    fn describe(&self) -> String {
        "fake".to_owned()
    }

    fn request_timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(4))
    }

    fn read_row<'a>(
        &'a self,
        _: &'static TableDecl,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(async {
            let slow = *self.server.slow.lock().unwrap();
            tokio::time::sleep(slow).await;
            self.server.check(&self.password).map(|()| None)
        })
    }

    unused! {
        ensure_tables(tables: &'a [&'static TableDecl]) -> ();
        read_partition(table: &'static TableDecl, partition: &'a str) -> Vec<StoredRow>;
        read_some(
            table: &'static TableDecl, partition: &'a str, from: &'a str, limit: usize
        ) -> Vec<StoredRow>;
        scan(
            table: &'static TableDecl, column: &'static str, range: RangeInclusive<i64>,
            limit: usize
        ) -> Vec<StoredRow>;
        commit(
            table: &'static TableDecl, partition: &'a str, mutations: Vec<Mutation>
        ) -> CommitOutcome;
        touch(
            table: &'static TableDecl, partition: &'a str, row_key: &'a str,
            column: &'static str, value: Value
        ) -> ();
        append(table: &'static TableDecl, partition: &'a str, rows: Vec<Row>) -> ();
        delete_older_than(
            table: &'static TableDecl, partition: &'a str, column: &'static str,
            cutoff: Timestamp
        ) -> u64;
    }
}

/// A file of a secret. Dropped, it is removed.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("emmer-renewed-{name}-{}", std::process::id());
        let secret = Self(std::env::temp_dir().join(name));
        secret.write(text);
        secret
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    async fn open(&self, server: &Arc<Server>) -> Renewed {
        let url = format!("redis://app@h?password_file={}", self.0.display());
        let url: StoreUrl = url.parse().unwrap();
        let origin = Origin::of(&url, None).unwrap();
        Renewed::open(&url, origin, server.open()).await.unwrap()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // One that is gone already is as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn read(store: &Renewed) -> Result<()> {
    store.read_row(&SILO_INSTANCES, "p", "r").await.map(drop)
}

/// Time in which the store looks at its files.
async fn look(store: &Renewed) {
    tokio::time::advance(LOOK_EVERY).await;
    // The look begins with a request and runs at the same time.
    let _ = read(store).await;
    let renewing = || store.shared.lock().is_renewing;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        tokio::task::spawn_blocking(|| {}).await.unwrap();
    }
    assert!(!renewing(), "a look does not end");
}

#[tokio::test(start_paused = true)]
async fn a_rotation_fails_no_request_whichever_side_begins() {
    for (is_late, name) in [(false, "soon"), (true, "late")] {
        let server = Server::takes(&["one"], is_late);
        let secret = Secret::new(&format!("begins-{name}"), "one");
        let store = secret.open(&server).await;
        read(&store).await.unwrap();
        // The server first.
        server.take(&["two"]);
        secret.write("two");
        read(&store).await.unwrap();
        // The file's new secret is tried first, and the accepted one stays in use.
        secret.write("three");
        for _ in 0..3 {
            look(&store).await;
            read(&store).await.unwrap();
        }
        tokio::time::advance(READ_AFTER).await;
        server.take(&["three"]);
        read(&store).await.unwrap();
        tokio::time::advance(READ_AFTER).await;
        // Back again, and the file never says so.
        server.take(&["two"]);
        read(&store).await.unwrap();
        assert_eq!(store.request_timeout(), Some(Duration::from_millis(4_800)));
    }
}

#[tokio::test(start_paused = true)]
async fn each_line_of_the_file_is_tried_in_turn() {
    let server = Server::takes(&["old"], false);
    let secret = Secret::new("lines", "new\nold\n");
    let store = secret.open(&server).await;
    read(&store).await.unwrap();
    server.take(&["new", "old"]);
    look(&store).await;
    server.take(&["new"]);
    assert_eq!(store.shared.current().1, 1, "the first line is taken once the server takes it");
    read(&store).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusals_that_no_credentials_mend_are_told_and_read_the_file_seldom() {
    let server = Server::takes(&["one"], true);
    let secret = Secret::new("refused", "one");
    let store = secret.open(&server).await;
    server.take(&[]);
    for _ in 0..50 {
        assert_eq!(read(&store).await.unwrap_err().kind, StoreErrorKind::Refused);
    }
    assert_eq!(server.opened.load(Ordering::Relaxed), 1, "the same password is tried again");
    std::fs::remove_file(&secret.0).unwrap();
    tokio::time::advance(LOOK_EVERY).await;
    assert_eq!(read(&store).await.unwrap_err().kind, StoreErrorKind::Refused);
    server.take(&["one"]);
    read(&store).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_when_it_is_opened_holds_up_no_request() {
    let server = Server::takes(&["one"], true);
    let secret = Secret::new("hangs", "one");
    let store = secret.open(&server).await;
    *server.hangs.lock().unwrap() = true;
    secret.write("two");
    tokio::time::advance(LOOK_EVERY).await;
    for _ in 0..10 {
        read(&store).await.unwrap();
        tokio::task::yield_now().await;
    }
    server.take(&["two"]);
    let begun = Instant::now();
    assert_eq!(read(&store).await.unwrap_err().kind, StoreErrorKind::Refused);
    assert!(begun.elapsed() <= Duration::from_millis(810), "{:?}", begun.elapsed());
}

/// A repeated request would end later than the first one may.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_late_is_not_repeated() {
    let server = Server::takes(&["one"], true);
    let secret = Secret::new("late-refusal", "one");
    let store = secret.open(&server).await;
    server.take(&["two"]);
    secret.write("two");
    *server.slow.lock().unwrap() = Duration::from_millis(900);
    let begun = Instant::now();
    assert_eq!(read(&store).await.unwrap_err().kind, StoreErrorKind::Refused);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // The next request has the new secret.
    *server.slow.lock().unwrap() = Duration::ZERO;
    look(&store).await;
    read(&store).await.unwrap();
    assert_eq!(store.shared.current().1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_program_is_asked_before_the_end_and_after_a_refusal() {
    let server = Server::takes(&["1", "2"], false);
    let asked = Arc::new(AtomicUsize::new(0));
    let source = CredentialSource::new({
        let asked = asked.clone();
        move || {
            let nth = asked.fetch_add(1, Ordering::Relaxed) + 1;
            let given = StoreCredentials::password(nth.to_string());
            // The first ones end at once, the others in an hour.
            let end = SystemTime::now() + Duration::from_secs(if nth == 1 { 0 } else { 3_600 });
            async move { Ok(given.until(end)) }
        }
    });
    let url: StoreUrl = "redis://app@h".parse().unwrap();
    let origin = Origin::of(&url, Some(source)).unwrap();
    let store = Renewed::open(&url, origin, server.open()).await.unwrap();
    for _ in 0..3 {
        look(&store).await;
    }
    assert_eq!((asked.load(Ordering::Relaxed), store.shared.current().1), (2, 1));
    server.take(&["3"]);
    read(&store).await.unwrap();
    // Refusals in a row ask once a second.
    server.take(&[]);
    for _ in 0..20 {
        read(&store).await.unwrap_err();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_gives_nothing_is_an_error_that_says_so() {
    let server = Server::takes(&[], false);
    let source = CredentialSource::new(|| async { Err("the vault is sealed".into()) });
    let url: StoreUrl = "redis://app:s3cret@h".parse().unwrap();
    let origin = Origin::of(&url, Some(source)).unwrap();
    let error = Renewed::open(&url, origin, server.open()).await.err().unwrap();
    let text = error.to_string();
    assert!(text.contains("the vault is sealed") && !text.contains("s3cret"), "{text}");
    assert_eq!(error.kind, StoreErrorKind::Refused);
}
