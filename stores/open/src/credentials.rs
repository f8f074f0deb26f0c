//! Credentials that change while a store is open: from files that its URL names, or from the
//! program itself.

use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use emmer_store::BoxFuture;
use emmer_store::url::{StoreUrl, percent_decode};
use tokio::task::AbortHandle;

/// The largest file of a secret, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Maximum secrets of one file: the new one and earlier ones.
const FILE_SECRETS_MAX: usize = 4;
/// Time in which the program has to give credentials.
const HOOK_WAIT: Duration = Duration::from_secs(5);

/// Parameters whose value this crate reads from a file, by scheme. Stores read every other file
/// themselves.
const SECRETS: [(&str, &[&str]); 15] = [
    ("postgres", &["password"]),
    ("mysql", &["password"]),
    ("mariadb", &["password"]),
    ("mssql", &["password"]),
    ("sqlserver", &["password"]),
    ("oracle", &["password"]),
    ("redis", &["password"]),
    ("rediss", &["password"]),
    ("zookeeper", &["password"]),
    ("etcd", &["password"]),
    ("cassandra", &["password"]),
    ("mongodb", &["password"]),
    ("consul", &["token"]),
    ("azure-table", &["account_key", "sas_token"]),
    ("cosmos", &["account_key"]),
];

/// Secrets that a store is opened with, in place of those in its URL. `Debug` shows none of them.
///
/// The program makes them each time a store asks ([`CredentialSource`]):
/// `StoreCredentials::password("s3cret").until(end)`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreCredentials {
    user: Option<String>,
    password: Option<String>,
    parameters: Vec<(String, String)>,
    until: Option<SystemTime>,
}

impl fmt::Debug for StoreCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreCredentials").field("until", &self.until).finish_non_exhaustive()
    }
}

impl StoreCredentials {
    /// The password of the user that the URL names.
    #[must_use]
    pub fn password(password: impl Into<String>) -> Self {
        Self { password: Some(password.into()), ..Self::default() }
    }

    /// The value of a parameter of the URL, as in `parameter("token", ...)`.
    #[must_use]
    pub fn parameter(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self::default().and_parameter(name, value)
    }

    /// Names another user than the URL does.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Gives one more parameter of the URL.
    #[must_use]
    pub fn and_parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// Says when they end: new ones are asked for before.
    #[must_use]
    pub const fn until(mut self, end: SystemTime) -> Self {
        self.until = Some(end);
        self
    }
}

/// An error of the program that was asked for credentials; its text must hold no secret.
pub type CredentialError = Box<dyn Error + Send + Sync>;

/// A function of the program that gives the credentials of a store.
#[derive(Clone)]
pub struct CredentialSource(Arc<Ask>);

type Ask = dyn Fn() -> BoxFuture<'static, Result<StoreCredentials, CredentialError>> + Send + Sync;

impl CredentialSource {
    /// Asks `source` for credentials: when a store is opened, when its server refuses, and before
    /// they expire. After five seconds without an answer there are none.
    pub fn new<F>(source: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<StoreCredentials, CredentialError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(source())))
    }
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialSource")
    }
}

/// A way to open a store: its URL with all secrets, and what tells it from another.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) url: String,
    /// The hash of the URL and of every file that the store reads itself.
    pub(crate) mark: u64,
    /// The end of its credentials, if it is known.
    pub(crate) until: Option<SystemTime>,
}

/// Source of the credentials of one store.
#[derive(Clone)]
pub(crate) struct Origin {
    url: StoreUrl,
    /// The parameters that are read from files here.
    secrets: Vec<(&'static str, PathBuf)>,
    /// The files that the store reads when it is opened.
    files: Vec<PathBuf>,
    source: Option<CredentialSource>,
    /// The last question to the program.
    asked: Arc<Mutex<Option<AbortHandle>>>,
}

/// The parameters of a scheme that this crate reads from a file.
fn secrets_of(scheme: &str) -> &'static [&'static str] {
    SECRETS.iter().find(|(known, _)| *known == scheme).map_or(&[], |(_, names)| names)
}

impl Origin {
    /// The origin of a URL's credentials; none if they cannot change.
    pub(crate) fn of(url: &StoreUrl, source: Option<CredentialSource>) -> Option<Self> {
        let known = secrets_of(url.scheme());
        let (mut secrets, mut files) = (Vec::new(), Vec::new());
        for (name, path) in parts(url).1 {
            let Some(secret) = name.strip_suffix("_file") else { continue };
            let path = percent_decode(&path).unwrap_or(path);
            match known.iter().find(|known| **known == secret) {
                Some(secret) => secrets.push((*secret, path.into())),
                None => files.push(path.into()),
            }
        }
        let is_fixed = secrets.is_empty() && files.is_empty() && source.is_none();
        let url = without_files(url);
        (!is_fixed).then(|| Self { url, secrets, files, source, asked: Arc::default() })
    }

    /// Returns true if the credentials come from the program.
    pub(crate) const fn asks_program(&self) -> bool {
        self.source.is_some()
    }

    /// Asks the program, reads the files, and returns the ways to open the store, the best first.
    ///
    /// # Errors
    /// In words, without secrets: the program gives no credentials, or a file cannot be read.
    pub(crate) async fn read(&self) -> Result<Vec<Way>, String> {
        let given = self.ask().await?;
        let origin = self.clone();
        let read = tokio::task::spawn_blocking(move || origin.ways(given.as_ref())).await;
        read.unwrap_or_else(|_| Err("the files cannot be read".to_owned()))
    }

    /// The ways to open the store, the best first: with the first secret of each file, then with
    /// the second ones. Blocks for the files. `given` are the program's credentials.
    ///
    /// # Errors
    /// In words, without secrets: a file cannot be read or holds no secret.
    fn ways(&self, given: Option<&StoreCredentials>) -> Result<Vec<Way>, String> {
        let mut files = Vec::new();
        for path in &self.files {
            // The store itself describes a missing file.
            files.push(read(path).ok());
        }
        let mut found = Vec::new();
        for (name, path) in &self.secrets {
            let text =
                read(path).map_err(|why| format!("{name}_file {}: {why}", path.display()))?;
            let text = String::from_utf8(text)
                .map_err(|_| format!("{name}_file {}: this is not UTF-8 text", path.display()))?;
            let lines = text.lines().map(str::to_owned).filter(|line| !line.is_empty());
            let lines: Vec<String> = lines.take(FILE_SECRETS_MAX).collect();
            if lines.is_empty() {
                return Err(format!("{name}_file {}: it is empty", path.display()));
            }
            found.push((*name, lines));
        }
        let most = found.iter().map(|(_, lines)| lines.len()).max().unwrap_or(1);
        let mut ways = Vec::new();
        for at in 0..most {
            let mut credentials = StoreCredentials::default();
            for (name, lines) in &found {
                let Some(secret) = lines.get(at).or_else(|| lines.last()) else { continue };
                if *name == "password" {
                    credentials.password = Some(secret.clone());
                } else {
                    credentials = credentials.and_parameter(*name, secret.clone());
                }
            }
            let mut url = with(&self.url, &credentials);
            if let Some(given) = given {
                url = url.parse().map_or(url, |url| with(&url, given));
            }
            let mut hasher = DefaultHasher::new();
            (&url, &files).hash(&mut hasher);
            let until = given.and_then(|given| given.until);
            ways.push(Way { url, mark: hasher.finish(), until });
        }
        Ok(ways)
    }

    /// The program's credentials; none if it is not asked.
    ///
    /// # Errors
    /// In words: it gives none.
    async fn ask(&self) -> Result<Option<StoreCredentials>, String> {
        let Some(CredentialSource(ask)) = self.source.clone() else { return Ok(None) };
        let (asked, stop) = {
            let mut last = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            // A program that blocks holds one thread, and not one more with each question.
            if last.as_ref().is_some_and(|last| !last.is_finished()) {
                return Err("the program still blocks on an earlier question".to_owned());
            }
            // In a task: the program may panic.
            let asked = tokio::spawn(async move { ask().await });
            let stop = asked.abort_handle();
            *last = Some(stop.clone());
            (asked, stop)
        };
        match tokio::time::timeout(HOOK_WAIT, asked).await {
            Ok(Ok(Ok(given))) => Ok(Some(given)),
            Ok(Ok(Err(error))) => Err(format!("the program gives no credentials: {error}")),
            Ok(Err(_)) => Err("the program panicked when it was asked for credentials".to_owned()),
            Err(_) => {
                stop.abort();
                let waited = HOOK_WAIT.as_secs();
                Err(format!("the program gives no credentials within {waited} s"))
            }
        }
    }
}

/// The URL as a store understands it: without the files that are read here. Another URL than a
/// store's own is left as it is.
pub(crate) fn without_files(url: &StoreUrl) -> StoreUrl {
    let known = secrets_of(url.scheme());
    let is_read = |name: &str| name.strip_suffix("_file").is_some_and(|name| known.contains(&name));
    let (place, parameters) = parts(url);
    if !parameters.iter().any(|(name, _)| is_read(name)) {
        return url.clone();
    }
    let kept: Vec<String> =
        parameters.into_iter().filter(|(name, _)| !is_read(name)).map(joined).collect();
    rebuilt(&place, &kept).parse().unwrap_or_else(|_| url.clone())
}

/// The URL with credentials in the places of its own.
fn with(url: &StoreUrl, credentials: &StoreCredentials) -> String {
    let (mut place, mut parameters) = parts(url);
    if credentials.user.is_some() || credentials.password.is_some() {
        let (scheme, rest) = place.split_once("://").unwrap_or((&place, ""));
        let (own, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = own.split_once(':').unwrap_or((own, ""));
        let user = credentials.user.as_deref().map_or_else(|| user.to_owned(), encoded);
        let password = credentials.password.as_deref().map_or_else(|| password.to_owned(), encoded);
        place = format!("{scheme}://{user}:{password}@{hosts}");
    }
    for (name, value) in &credentials.parameters {
        parameters.retain(|(known, _)| known != name);
        parameters.push((name.clone(), encoded(value)));
    }
    let parameters: Vec<String> = parameters.into_iter().map(joined).collect();
    rebuilt(&place, &parameters)
}

/// The URL with another value of one parameter.
pub(crate) fn with_parameter(url: &str, name: &str, value: &str) -> String {
    let given = StoreCredentials::parameter(name, value);
    url.parse().map_or_else(|_| url.to_owned(), |url| with(&url, &given))
}

/// The URL up to its parameters, and these.
fn parts(url: &StoreUrl) -> (String, Vec<(String, String)>) {
    let place = format!("{}://{}", url.scheme(), url.place());
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    // A password that was not escaped may hold a question mark: the parameters are behind the rest.
    let parameters = url.expose().get(place.len() + 1..).unwrap_or_default().to_owned();
    let pairs = parameters.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| owned(pair.split_once('=').unwrap_or((pair, "")))).collect();
    (place, pairs)
}

fn joined((name, value): (String, String)) -> String {
    if value.is_empty() { name } else { format!("{name}={value}") }
}

fn rebuilt(place: &str, parameters: &[String]) -> String {
    match parameters {
        [] => place.to_owned(),
        some => format!("{place}?{}", some.join("&")),
    }
}

/// A text with everything but letters and digits as `%XX`.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

/// The content of a small file.
fn read(path: &PathBuf) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> StoreUrl {
        text.parse().unwrap()
    }

    #[test]
    fn secrets_take_the_places_of_the_urls_own() {
        let password = || StoreCredentials::password("a/b@c");
        for (before, given, after) in [
            ("postgres://app@h/db", password(), "postgres://app:a%2Fb%40c@h/db"),
            ("postgres://app:o?ld@h/db?x=1", password(), "postgres://app:a%2Fb%40c@h/db?x=1"),
            ("redis://h", password(), "redis://:a%2Fb%40c@h"),
            ("etcd://h", password().user("bob"), "etcd://bob:a%2Fb%40c@h"),
            (
                "consul://h?token=x&tls",
                StoreCredentials::parameter("token", "y=z"),
                "consul://h?tls&token=y%3Dz",
            ),
        ] {
            assert_eq!(with(&url(before), &given), after, "{before}");
        }
        let shown = format!("{:?}", password().user("bob").and_parameter("token", "s3cret"));
        assert!(!shown.contains("a/b") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn a_url_without_files_has_credentials_that_stay() {
        for fixed in ["postgres://a:b@h/db", "memory://x", "sqlite://x.db", "redis://h"] {
            assert!(Origin::of(&url(fixed), None).is_none(), "{fixed}");
        }
        let source = CredentialSource::new(|| async { Ok(StoreCredentials::password("x")) });
        assert!(Origin::of(&url("redis://h"), Some(source)).is_some_and(|o| o.asks_program()));
    }

    #[test]
    fn each_line_of_a_file_is_a_way() {
        let file = std::env::temp_dir().join(format!("emmer-credentials-{}", std::process::id()));
        let path = file.to_str().unwrap();
        let text = format!("postgres://app@h/db?password_file={path}&pool_max=2&ca_file=/none");
        let origin = Origin::of(&url(&text), None).unwrap();
        let error = origin.ways(None).err().unwrap();
        assert!(error.contains("password_file") && error.contains(path), "{error}");
        std::fs::write(&file, "\n").unwrap();
        assert!(origin.ways(None).err().unwrap().contains("empty"));
        std::fs::write(&file, "new\r\n\nold\n").unwrap();
        let ways = origin.ways(None).unwrap();
        let urls: Vec<&str> = ways.iter().map(|way| way.url.as_str()).collect();
        let expected = ["new", "old"]
            .map(|secret| format!("postgres://app:{secret}@h/db?pool_max=2&ca_file=/none"));
        assert_eq!(urls, expected);
        assert_ne!(ways[0].mark, ways[1].mark);
        assert_eq!(origin.ways(None).unwrap()[0].mark, ways[0].mark);
        std::fs::write(&file, vec![b'x'; 70_000]).unwrap();
        assert!(origin.ways(None).err().unwrap().contains("larger"));
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_file_that_the_store_reads_marks_the_way() {
        let file = std::env::temp_dir().join(format!("emmer-watched-{}", std::process::id()));
        let path = file.to_str().unwrap();
        let text = format!("cosmos://acct/db?token_file={path}");
        let origin = Origin::of(&url(&text), None).unwrap();
        let missing = origin.ways(None).unwrap();
        assert_eq!(missing[0].url, text, "the store says itself that its file is missing");
        std::fs::write(&file, "one").unwrap();
        let one = origin.ways(None).unwrap();
        std::fs::write(&file, "two").unwrap();
        let two = origin.ways(None).unwrap();
        std::fs::remove_file(file).unwrap();
        let marks = [missing[0].mark, one[0].mark, two[0].mark];
        assert!(marks[0] != marks[1] && marks[1] != marks[2] && marks[0] != marks[2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_gives_none_is_told_apart() {
        let ask = |source: CredentialSource| async {
            Origin::of(&url("redis://h"), Some(source)).unwrap().ask().await
        };
        let never = ask(CredentialSource::new(std::future::pending)).await.unwrap_err();
        assert!(never.contains("within 5 s"), "{never}");
        let panics = ask(CredentialSource::new(|| async { panic!("s3cret") })).await.unwrap_err();
        assert!(panics.contains("panicked") && !panics.contains("s3cret"), "{panics}");
        let fails = ask(CredentialSource::new(|| async { Err("the vault is sealed".into()) }));
        assert!(fails.await.unwrap_err().contains("the vault is sealed"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_program_that_blocks_is_asked_once() {
        let (go, blocked) = std::sync::mpsc::sync_channel::<()>(1);
        let blocked = Mutex::new(blocked);
        let begun = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let source = CredentialSource::new({
            let begun = begun.clone();
            move || {
                begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                // Ends when the test does.
                let _ = blocked.lock().map(|blocked| blocked.recv());
                async { Ok(StoreCredentials::password("x")) }
            }
        });
        let origin = Origin::of(&url("redis://h"), Some(source)).unwrap();
        let first = tokio::spawn({
            let origin = origin.clone();
            async move { origin.ask().await }
        });
        while begun.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            assert!(origin.ask().await.unwrap_err().contains("still blocks"));
        }
        drop(go);
        first.await.unwrap().unwrap();
        assert_eq!(begun.load(std::sync::atomic::Ordering::Relaxed), 1);
        origin.ask().await.unwrap();
    }
}
