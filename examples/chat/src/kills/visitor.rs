//! A person with a page, over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::room::Line;

/// The pause between two lines of a person. All lines of a silence fit into what a room keeps.
const TALKS: Duration = Duration::from_millis(300);
/// The pause before a page asks again.
const AGAIN: Duration = Duration::from_millis(200);
/// The web server says within this time that it lives: its comments keep the stream alive.
const SILENCE: Duration = Duration::from_secs(20);

/// The addresses of the web servers.
pub(super) type Origins = Arc<[String]>;

/// A person in the room "lobby".
#[derive(Clone)]
pub(super) struct Visitor {
    number: usize,
    origins: Origins,
    /// True: the person says no further line.
    is_over: Arc<AtomicBool>,
    /// The number of lines at which the page is closed.
    wanted: Arc<AtomicUsize>,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// Lines and moves of a page.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) lines: Vec<String>,
    /// The number of times that it asked another web server.
    pub(super) moves: usize,
}

impl Visitor {
    pub(super) fn new(number: usize, origins: Origins, is_over: Arc<AtomicBool>) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        let wanted = Arc::new(AtomicUsize::new(usize::MAX));
        Self { number, origins, is_over, wanted, http }
    }

    /// The page is closed once it shows this many lines.
    pub(super) fn leaves_after(&self, lines: usize) {
        self.wanted.store(lines, Ordering::Relaxed);
    }

    /// Says lines, each however often it takes. Returns them.
    pub(super) async fn say(self) -> Vec<String> {
        let mut said = Vec::new();
        let mut at = self.number;
        while !self.is_over.load(Ordering::Relaxed) {
            let text = format!("{}-{}", self.number, said.len());
            let body = json!({ "text": text, "token": text }).to_string();
            loop {
                let answer = self.ask(at, "POST", "lines?", &body).await;
                if answer.is_some_and(|answer| answer.status() == StatusCode::OK) {
                    break;
                }
                at += 1;
                sleep(AGAIN).await;
            }
            said.push(text);
            sleep(TALKS).await;
        }
        said
    }

    /// Reads lines until the page is closed.
    ///
    /// # Errors
    /// A line that does not follow the one before it.
    pub(super) async fn read(self) -> Result<Shown, String> {
        let mut shown = Shown::default();
        let mut at = self.number;
        loop {
            let after = format!("events?after={}&", shown.lines.len());
            if let Some(answer) = self.ask(at, "GET", &after, "").await
                && self.show(answer, &mut shown).await?
            {
                return Ok(shown);
            }
            at += 1;
            shown.moves += 1;
            sleep(AGAIN).await;
        }
    }

    /// Shows the lines of one answer, to its end. True: the page is closed.
    async fn show(&self, answer: Response<Incoming>, shown: &mut Shown) -> Result<bool, String> {
        let mut body = answer.into_body();
        let (mut text, mut is_line) = (Vec::new(), false);
        while shown.lines.len() < self.wanted.load(Ordering::Relaxed) {
            // The number of lines to wait for may change meanwhile.
            let Ok(frame) = timeout(SILENCE, body.frame()).await else { return Ok(false) };
            let Some(Ok(frame)) = frame else { return Ok(false) };
            text.extend(frame.into_data().unwrap_or_default());
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let row: Vec<u8> = text.drain(..=end).collect();
                let row = String::from_utf8_lossy(&row);
                if let Some(event) = row.trim_end().strip_prefix("event: ") {
                    is_line = event == "line";
                }
                let Some(data) = row.strip_prefix("data: ").filter(|_| is_line) else { continue };
                let line: Line = serde_json::from_str(data).map_err(|e| format!("{e}: {data}"))?;
                let next = shown.lines.len() + 1;
                if line.number != next as u64 {
                    return Err(format!("line {} came where {next} was to come", line.number));
                }
                shown.lines.push(line.text);
            }
        }
        Ok(true)
    }

    async fn ask(
        &self,
        at: usize,
        method: &str,
        path: &str,
        body: &str,
    ) -> Option<Response<Incoming>> {
        let origin = &self.origins[at % self.origins.len()];
        let uri = format!("http://{origin}/rooms/lobby/{path}name=visitor-{}", self.number);
        let request = Request::builder().method(method).uri(uri);
        let request = request.body(Full::from(body.to_owned())).ok()?;
        self.http.request(request).await.ok()
    }
}
