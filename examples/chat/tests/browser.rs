//! The page in a real browser: two people, silos and a web process that are killed, a reload.
//!
//! It needs Chromium and its `chromedriver` (Debian: `apt install chromium-driver`):
//! `cargo test -p emmer-example-chat --test browser -- --ignored`. With `CHAT_PICTURES` set to a
//! folder it leaves screenshots there.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use emmer_example_chat::processes::{Kind, Process};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// The longest wait for something that the page should show.
const PATIENCE: Duration = Duration::from_secs(60);

/// Chromium, by the protocol of WebDriver.
struct Driver {
    origin: String,
    http: Client<HttpConnector, Full<Bytes>>,
    _process: Child,
}

impl Driver {
    async fn start() -> Self {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("chromedriver is not installed");
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = loop {
            let line = said.next_line().await.unwrap().expect("chromedriver has ended");
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { origin: format!("http://127.0.0.1:{port}"), http, _process: process }
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let request = Request::builder().method(method).uri(format!("{}{path}", self.origin));
        let answer = self.http.request(request.body(Full::from(body)).unwrap()).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["value"]["error"], Value::Null, "{method} {path}: {answer}");
        answer["value"].take()
    }

    /// Opens a browser with a profile of its own.
    async fn browser(&self, size: &str) -> Browser<'_> {
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", size];
        let options = json!({ "args": arguments });
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": options });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let session = self.ask("POST", "/session", &body).await;
        let session = session["sessionId"].as_str().unwrap().to_owned();
        Browser { driver: self, session }
    }
}

struct Browser<'a> {
    driver: &'a Driver,
    session: String,
}

impl Browser<'_> {
    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        self.driver.ask(method, &format!("/session/{}{path}", self.session), &body).await
    }

    async fn open(&self, url: &str) {
        self.ask("POST", "/url", json!({ "url": url })).await;
    }

    async fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Types into the page's field, as a person does. `\u{e007}` is the Enter key.
    async fn types(&self, text: &str) {
        let found = json!({ "using": "css selector", "value": "#text" });
        let field = self.ask("POST", "/element", found).await;
        let field = field.as_object().unwrap().values().next().unwrap().as_str().unwrap();
        self.ask("POST", &format!("/element/{field}/value"), json!({ "text": text })).await;
    }

    async fn says(&self, text: &str) {
        self.types(&format!("{text}\u{e007}")).await;
    }

    /// Waits until the script returns `wanted`.
    async fn shows(&self, script: &str, wanted: &Value) {
        let end = Instant::now() + PATIENCE;
        loop {
            let shown = self.run(script).await;
            if shown == *wanted {
                return;
            }
            assert!(Instant::now() < end, "{script} is {shown}, and not {wanted}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the page shows these lines, in this order and no other.
    async fn lines(&self, wanted: &[String]) {
        let script = "return [...document.querySelectorAll('#lines li')].map(li => li.innerText)";
        self.shows(script, &json!(wanted)).await;
        let numbers: Vec<String> = (1..=wanted.len()).map(|n| n.to_string()).collect();
        let script =
            "return [...document.querySelectorAll('#lines li')].map(li => li.dataset.number)";
        self.shows(script, &json!(numbers)).await;
    }

    async fn picture(&self, name: &str) {
        let Some(dir) = std::env::var_os("CHAT_PICTURES") else { return };
        let picture = self.ask("GET", "/screenshot", Value::Null).await;
        let picture = base64::prelude::BASE64_STANDARD.decode(picture.as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&dir).join(name), picture).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs chromedriver"]
async fn two_people_talk_while_processes_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_emmer-example-chat"));
    let start = async |kind| Process::start(kind, program, dir.path()).await.unwrap();
    let mut silos = [start(Kind::Silo).await, start(Kind::Silo).await, start(Kind::Silo).await];
    let mut webs = [start(Kind::Web).await, start(Kind::Web).await];
    let driver = Driver::start().await;
    let ann = driver.browser("--window-size=900,700").await;
    let bob = driver.browser("--window-size=420,800").await;
    ann.open(&format!("http://{}/?name=ann", webs[0].address())).await;
    bob.open(&format!("http://{}/?name=bob", webs[1].address())).await;
    let here = "return document.getElementById('here').innerText";
    for page in [&ann, &bob] {
        page.shows(here, &json!("Here: ann, bob")).await;
    }

    // Both talk, and each sees the other type.
    let mut said = Vec::new();
    ann.types("Good morning ").await;
    let state = "return document.getElementById('state').innerText";
    bob.shows(state, &json!("ann is typing")).await;
    bob.picture("1-ann-types.png").await;
    ann.says("<b>Bob</b> & co.").await;
    said.push("ann Good morning <b>Bob</b> & co.".to_owned());
    bob.lines(&said).await;

    // Every silo is killed once, and each says a line meanwhile.
    for (n, silo) in silos.iter_mut().enumerate() {
        silo.kill_and_start().await.unwrap();
        let (page, name) = if n % 2 == 0 { (&ann, "ann") } else { (&bob, "bob") };
        page.says(&format!("line {n}")).await;
        said.push(format!("{name} line {n}"));
        ann.lines(&said).await;
        bob.lines(&said).await;
    }

    // Ann's web process is killed, and not started again. Her page goes to the other one.
    ann.shows("return origins.length", &json!(2)).await;
    webs[0].kill().await.unwrap();
    ann.says("is my server dead?").await;
    said.push("ann is my server dead?".to_owned());
    ann.lines(&said).await;
    bob.says("mine is not").await;
    said.push("bob mine is not".to_owned());
    ann.lines(&said).await;
    bob.lines(&said).await;
    ann.shows(state, &json!("")).await;
    ann.picture("2-ann-after-the-kills.png").await;

    // A reload shows the same.
    bob.ask("POST", "/refresh", json!({})).await;
    bob.lines(&said).await;
    bob.shows("return document.querySelector('#rooms a').innerText", &json!("lobby")).await;
    bob.picture("3-bob-after-a-reload.png").await;
    ann.shows(here, &json!("Here: ann, bob")).await;
    for page in [ann, bob] {
        page.ask("DELETE", "", Value::Null).await;
    }
}
