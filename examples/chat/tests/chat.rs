//! The promises of the chat, in virtual time, through the routes that its page uses.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use emmer::prelude::*;
use emmer::test::World;
use emmer_axum::Drain;
use emmer_example_chat::chat;
use emmer_example_chat::doors::doors;
use emmer_example_chat::person::Person;
use emmer_example_chat::room::{Line, Room, SayError};
use emmer_example_chat::web::{Web, routes};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A web process.
#[derive(Clone)]
struct Server(Web);

impl Server {
    fn new(client: Client) -> Self {
        Self(Web { client, drain: Drain::new() })
    }

    async fn ask(&self, method: &str, path: &str, body: String) -> Response {
        let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
        TowerToHyperService::new(routes(self.0.clone())).call(request).await.unwrap()
    }

    /// Says a line, however often it takes.
    async fn say(&self, name: &str, text: &str) {
        let body = json!({ "text": text, "token": text }).to_string();
        let path = format!("/rooms/lobby/lines?name={name}");
        while self.ask("POST", &path, body.clone()).await.status() != StatusCode::OK {
            tokio::time::sleep(millis(10)).await;
        }
    }

    async fn open(&self, name: &str, after: usize) -> Page {
        let path = format!("/rooms/lobby/events?name={name}&after={after}");
        let answer = self.ask("GET", &path, String::new()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["access-control-allow-origin"], "*");
        Page { body: answer.into_body(), text: String::new() }
    }
}

/// A page that reads its events.
struct Page {
    body: Body,
    text: String,
}

impl Page {
    /// The next event and its data; None if the server has ended them.
    async fn event(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let row = |name: &str| {
                    event.lines().find_map(|row| row.strip_prefix(name)).map(str::to_owned)
                };
                let (name, data) = (row("event: "), row("data: "));
                self.text = rest.to_owned();
                let Some((name, data)) = name.zip(data) else { continue };
                return Some((name, serde_json::from_str(&data).unwrap()));
            }
            let frame = self.body.frame().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    /// The data of the next event with this name.
    async fn next(&mut self, name: &str) -> Value {
        let wanted = async {
            loop {
                match self.event().await.unwrap() {
                    (event, data) if event == name => return data,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(secs(60), wanted).await.unwrap()
    }

    /// Waits until it shows these people.
    async fn here(&mut self, names: Value) {
        while self.next("here").await != names {}
    }

    async fn line(&mut self) -> Line {
        serde_json::from_value(self.next("line").await).unwrap()
    }
}

#[emmer::test(seeds = 4)]
async fn two_people_talk(world: World) {
    let cluster = world.cluster(2, chat).await;
    let (one, two) = (Server::new(cluster.client().await), Server::new(cluster.client().await));
    let mut ann = one.open("ann", 0).await;
    ann.here(json!(["ann"])).await;
    let mut bob = two.open("bob", 0).await;
    bob.here(json!(["ann", "bob"])).await;
    ann.here(json!(["ann", "bob"])).await;
    two.ask("POST", "/rooms/lobby/typing?name=bob", String::new()).await;
    assert_eq!(ann.next("types").await, "bob");
    two.say("bob", "hello").await;
    for page in [&mut ann, &mut bob] {
        let line = page.line().await;
        assert_eq!((line.number, line.name.as_str(), line.text.as_str()), (1, "bob", "hello"));
    }
    // Bob's browser is gone without a word.
    drop(bob);
    ann.here(json!(["ann"])).await;
    // A reload shows the room again, a reconnection what is new.
    one.say("ann", "bye").await;
    assert_eq!(one.open("ann", 0).await.line().await.number, 1);
    assert_eq!(two.open("bob", 1).await.line().await.number, 2);
    let header = Request::builder().uri("/rooms/lobby/events?name=bob&after=0");
    let again = header.header("last-event-id", "1").body(Body::empty()).unwrap();
    let again = TowerToHyperService::new(routes(two.0.clone())).call(again).await.unwrap();
    let mut again = Page { body: again.into_body(), text: String::new() };
    assert_eq!(again.line().await.number, 2);
    // The process stops: its pages end, and go elsewhere.
    one.0.drain.begin();
    while ann.event().await.is_some() {}
}

#[emmer::test]
async fn a_token_is_one_line_and_mistakes_are_none(world: World) {
    let cluster = world.cluster(2, chat).await;
    let client = cluster.client().await;
    let room = client.grain::<dyn Room>("lobby");
    let say = async |text: &str| room.say("ann".to_owned(), text.to_owned(), "1".to_owned()).await;
    assert_eq!(say("hello").await.unwrap(), 1);
    assert_eq!(say("hello").await.unwrap(), 1);
    assert_eq!(room.last().await.unwrap(), 1);
    for wrong in [String::new(), "x".repeat(2_001)] {
        let answer = say(&wrong).await;
        assert!(matches!(answer, Err(CallError::App(SayError::Length(_)))), "{answer:?}");
    }
    let server = Server::new(client.clone());
    let name = "n".repeat(41);
    for (path, body, says) in [
        ("/rooms/lobby/lines?name=ann", "{", "EOF"),
        (
            "/rooms/lobby/lines?name=ann",
            r#"{"text": "", "token": "2"}"#,
            "a line has 1 to 2000 bytes",
        ),
        ("/rooms/lobby/lines?name=", r#"{"text": "hello", "token": "2"}"#, "1 to 40 bytes"),
        (&format!("/rooms/{name}/lines?name=ann"), "{}", "the name of a room"),
        ("/rooms/lobby/lines", "{}", "name"),
    ] {
        let answer = server.ask("POST", path, body.to_owned()).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
        let text = to_bytes(answer.into_body(), 1_000).await.unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(says), "{path}: {text}");
    }
    assert_eq!(room.last().await.unwrap(), 1);
}

#[emmer::test]
async fn a_person_knows_what_is_unread_and_a_page_knows_the_doors(world: World) {
    let cluster = world.cluster(2, chat).await;
    let client = cluster.client().await;
    let room = client.grain::<dyn Room>("lobby");
    let server = Server::new(client.clone());
    let person = client.grain::<dyn Person>("ann");
    for n in 0..3 {
        server.say("bob", &n.to_string()).await;
    }
    person.reads("lobby".to_owned(), 1).await.unwrap();
    person.reads("cellar".to_owned(), 0).await.unwrap();
    let rooms = || async { person.rooms().await.unwrap() };
    assert_eq!(rooms().await, [("cellar".to_owned(), 0), ("lobby".to_owned(), 2)]);
    assert_eq!(room.read(0).await.unwrap().1, ["ann"]);
    doors(&client).open("http://127.0.0.1:80".to_owned()).await.unwrap();
    let mut page = server.open("ann", 0).await;
    for n in 1..=3 {
        assert_eq!(page.line().await.number, n);
    }
    assert_eq!(page.next("doors").await, json!(["http://127.0.0.1:80"]));
    // The page says what it shows at its next sign.
    assert_eq!(page.next("rooms").await, json!([["cellar", 0], ["lobby", 0]]));
    drop(page);
    world.advance(secs(15)).await;
    assert!(doors(&client).all().await.unwrap().is_empty());
    // As many as there may be: each of them stays open by its signs, and no other opens.
    let origin = |n: usize| format!("http://127.0.0.1:{n}");
    for _ in 0..2 {
        for n in 0..110 {
            doors(&client).open(origin(n)).await.unwrap();
        }
        world.advance(secs(10)).await;
        assert_eq!(doors(&client).all().await.unwrap().len(), 100);
    }
    assert!(doors(&client).all().await.unwrap().contains(&origin(0)));
}

/// A person whose browser shows the room.
struct Reader {
    name: &'static str,
    shown: Arc<Mutex<Vec<Line>>>,
    browser: JoinHandle<()>,
}

impl Reader {
    fn new(name: &'static str, server: &Server) -> Self {
        let mut reader = Self { name, shown: Arc::default(), browser: tokio::spawn(async {}) };
        reader.goes_to(server);
        reader
    }

    /// The browser asks this web process for what follows.
    fn goes_to(&mut self, server: &Server) {
        self.browser.abort();
        let (server, name, shown) = (server.clone(), self.name, Arc::clone(&self.shown));
        self.browser = tokio::spawn(async move {
            let after = shown.lock().unwrap().len();
            let mut page = server.open(name, after).await;
            while let Some((event, data)) = page.event().await {
                if event == "line" {
                    shown.lock().unwrap().push(serde_json::from_value(data).unwrap());
                }
            }
        });
    }
}

/// Silos and web processes die under people at work. A page whose web process has died asks the
/// other for what follows its last line.
#[emmer::test(seeds = 8)]
async fn no_line_is_lost_or_doubled(world: World) {
    const LINES: usize = 12;
    let mut cluster = world.cluster(3, chat).await;
    let mut servers = [Server::new(cluster.client().await), Server::new(cluster.client().await)];
    let mut readers = [Reader::new("ann", &servers[0]), Reader::new("bob", &servers[1])];
    for n in 0..LINES {
        match n % 4 {
            0 => {
                let which = n / 4 % 2;
                servers[which] = Server::new(cluster.client().await);
                readers[which].goes_to(&servers[1 - which]);
            }
            2 => world.advance(secs(1)).await,
            3 => cluster.kill(n / 4),
            _ => {}
        }
        servers[n % 2].say("ann", &n.to_string()).await;
        if n % 4 == 3 && n / 4 < 2 {
            cluster.restart(n / 4).await;
        }
    }
    world.advance(secs(30)).await;
    for reader in &readers {
        let shown = reader.shown.lock().unwrap();
        let shown: Vec<_> = shown.iter().map(|line| (line.number, line.text.clone())).collect();
        let wanted: Vec<_> = (0..LINES).map(|n| (n as u64 + 1, n.to_string())).collect();
        assert_eq!(shown, wanted);
    }
}
