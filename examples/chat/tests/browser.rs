//! The page in a real browser: two people, silos and a web process that are killed, a reload.
//!
//! It needs Chromium and its `chromedriver` (Debian: `apt install chromium-driver`):
//! `cargo test -p emmer-example-chat --test browser -- --ignored`. With `CHAT_PICTURES` set to a
//! folder it leaves screenshots there.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;

use emmer_browser::{Browser, Driver};
use emmer_example_chat::processes::{Kind, Process};
use serde_json::json;

/// The chat as the test uses it.
trait Chat {
    /// Types into the page's field.
    async fn types_text(&self, text: &str);
    async fn says(&self, text: &str);
    /// Waits until the page shows these lines, in this order and no other.
    async fn lines(&self, wanted: &[String]);
    async fn shot(&self, name: &str);
}

impl Chat for Browser<'_> {
    async fn types_text(&self, text: &str) {
        self.types("#text", text).await;
    }

    async fn says(&self, text: &str) {
        self.types_text(&format!("{text}\u{e007}")).await;
    }

    async fn lines(&self, wanted: &[String]) {
        let script = "return [...document.querySelectorAll('#lines li')].map(li => li.innerText)";
        self.shows(script, &json!(wanted)).await;
        let numbers: Vec<String> = (1..=wanted.len()).map(|n| n.to_string()).collect();
        let script =
            "return [...document.querySelectorAll('#lines li')].map(li => li.dataset.number)";
        self.shows(script, &json!(numbers)).await;
    }

    async fn shot(&self, name: &str) {
        let Some(dir) = std::env::var_os("CHAT_PICTURES") else { return };
        self.picture(&Path::new(&dir).join(name)).await;
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
    let ann = driver.browser(900, 700).await;
    let bob = driver.browser(420, 800).await;
    ann.open(&format!("http://{}/?name=ann", webs[0].address())).await;
    bob.open(&format!("http://{}/?name=bob", webs[1].address())).await;
    let here = "return document.getElementById('here').innerText";
    for page in [&ann, &bob] {
        page.shows(here, &json!("Here: ann, bob")).await;
    }

    // Both talk, and each sees the other type.
    let mut said = Vec::new();
    ann.types_text("Good morning ").await;
    let state = "return document.getElementById('state').innerText";
    bob.shows(state, &json!("ann is typing")).await;
    bob.shot("1-ann-types.png").await;
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
    ann.shot("2-ann-after-the-kills.png").await;

    // A reload shows the same.
    bob.refresh().await;
    bob.lines(&said).await;
    bob.shows("return document.querySelector('#rooms a').innerText", &json!("lobby")).await;
    bob.shot("3-bob-after-a-reload.png").await;
    ann.shows(here, &json!("Here: ann, bob")).await;
    for page in [ann, bob] {
        page.close().await;
    }
}
