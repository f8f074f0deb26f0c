//! A real browser for tests of pages: Chromium by the protocol of WebDriver.
//!
//! It needs Chromium and its `chromedriver` (Debian: `apt install chromium-driver`). Mistakes end
//! the test with words about them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "for tests alone")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
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

/// The longest wait for something that a page should show.
const PATIENCE: Duration = Duration::from_secs(60);

/// Chromium's driver, until it is dropped.
#[derive(Debug)]
pub struct Driver {
    origin: String,
    http: Client<HttpConnector, Full<Bytes>>,
    _process: Child,
}

impl Driver {
    /// Starts it on a free port.
    pub async fn start() -> Self {
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

    /// Opens a browser with a profile of its own and a window of this width and height.
    pub async fn browser(&self, width: u32, height: u32) -> Browser<'_> {
        let size = format!("--window-size={width},{height}");
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", &size];
        let options = json!({ "args": arguments });
        let logs = json!({ "browser": "ALL" });
        let wanted = json!({
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs,
        });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let session = self.ask("POST", "/session", &body).await;
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let browser = Browser { driver: self, session };
        // Windows are at least 500 wide: a phone is emulated.
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        browser.command("Emulation.setDeviceMetricsOverride", screen).await;
        browser
    }
}

/// A window of a browser.
#[derive(Debug)]
pub struct Browser<'a> {
    driver: &'a Driver,
    session: String,
}

impl Browser<'_> {
    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        self.driver.ask(method, &format!("/session/{}{path}", self.session), &body).await
    }

    /// A command of Chromium's own protocol.
    pub async fn command(&self, name: &str, with: Value) -> Value {
        self.ask("POST", "/goog/cdp/execute", json!({ "cmd": name, "params": with })).await
    }

    /// Opens a page.
    pub async fn open(&self, url: &str) {
        self.ask("POST", "/url", json!({ "url": url })).await;
    }

    /// Loads the page again.
    pub async fn refresh(&self) {
        self.ask("POST", "/refresh", json!({})).await;
    }

    /// Runs a script in the page. Returns what it returns.
    pub async fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// The first element that a CSS selector names.
    async fn find(&self, selector: &str) -> String {
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.ask("POST", "/element", wanted).await;
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Types into the element that `selector` names, as a person does. `\u{e007}` is the Enter key.
    pub async fn types(&self, selector: &str, text: &str) {
        let element = self.find(selector).await;
        self.ask("POST", &format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    /// Clicks on the element that `selector` names.
    pub async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        self.ask("POST", &format!("/element/{element}/click"), json!({})).await;
    }

    /// Waits until the script returns `wanted`. Returns the time that it took.
    pub async fn shows(&self, script: &str, wanted: &Value) -> Duration {
        let begin = Instant::now();
        loop {
            let shown = self.run(script).await;
            if shown == *wanted {
                return begin.elapsed();
            }
            assert!(begin.elapsed() < PATIENCE, "{script} is {shown}, and not {wanted}");
            sleep(Duration::from_millis(30)).await;
        }
    }

    /// Errors that the page has logged since the last time.
    pub async fn errors(&self) -> Vec<String> {
        let lines = self.ask("POST", "/se/log", json!({ "type": "browser" })).await;
        let lines = lines.as_array().unwrap().iter();
        let severe = lines.filter(|line| line["level"] == "SEVERE");
        severe.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Writes a picture of the page, as PNG.
    pub async fn picture(&self, file: &Path) {
        let picture = self.ask("GET", "/screenshot", Value::Null).await;
        let picture = base64::prelude::BASE64_STANDARD.decode(picture.as_str().unwrap()).unwrap();
        std::fs::write(file, picture).unwrap();
    }

    /// Closes the window.
    pub async fn close(self) {
        self.ask("DELETE", "", Value::Null).await;
    }
}
