//! The console over HTTP: strangers, forged requests, many pages, readers that do not read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use emmer::Silo;
use emmer::access::Access;
use emmer::admin::{Admin, Question};
use emmer::console::{Console, ConsoleError, ConsoleOptions, Serving};
use emmer::prelude::*;
use emmer::tables::{SiloEntry, SiloStatus, Timestamp};
use emmer_wire::codec::encode_into;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of every wait. Far beyond the usual time, for slow machines.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: &str = "a token of visitors";
const ACT: &str = "a token of operators";

#[grain_interface(key = String)]
trait Note {
    async fn set(&mut self, text: String);
    async fn hang(&mut self);
}

#[derive(Grain, Default)]
struct NoteGrain {
    text: String,
}

#[grain]
impl Note for NoteGrain {
    async fn set(&mut self, text: String) {
        self.text = text;
    }

    async fn hang(&mut self) {
        std::future::pending::<()>().await;
    }
}

struct Shown {
    silo: Silo,
    address: SocketAddr,
    _serving: Serving,
}

async fn shown(set: impl FnOnce(&mut ConsoleOptions)) -> Shown {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // A cluster of each test's own.
    let store = format!("memory://console-{}", LAST.fetch_add(1, Ordering::Relaxed));
    let silo = Silo::builder().store(store).host::<dyn Note, NoteGrain>();
    let silo = silo.authorize_admin(|_| Access::Allow).start().await.unwrap();
    let mut options = ConsoleOptions::default();
    set(&mut options);
    let console = Console::bind(options).await.unwrap();
    let address = console.address();
    let serving = console.serve(silo.admin());
    Shown { silo, address, _serving: serving }
}

impl Shown {
    /// Sends a request as it stands, with `HOST` replaced by the console's address. Returns the
    /// head and the body of the answer.
    async fn raw(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = request.replace("HOST", &self.address.to_string());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    async fn get(&self, path: &str, header: &str) -> (u16, Value) {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n{header}\r\n");
        let (status, _, body) = self.raw(&request).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, String, Value) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        let (status, head, body) = self.raw(&request).await;
        (status, head, serde_json::from_str(&body).unwrap_or(Value::Null))
    }
}

const MARK: &str = "x-emmer-console: 1\r\n";
const PATHS: [&str; 12] = [
    "/api/me",
    "/api/grain?type=note&key=a",
    "/api/grains",
    "/api/history",
    "/api/failures",
    "/api/connections",
    "/api/settings",
    "/api/metrics",
    "/api/log?level=info",
    "/api/trace?type=note&key=a",
    "/api/act",
    "/events",
];

#[tokio::test]
async fn a_stranger_sees_nothing_and_does_nothing() {
    let shown = shown(|options| options.token = Some(LOOK.to_owned())).await;
    for path in PATHS {
        for header in ["", "authorization: Bearer wrong\r\n", "cookie: emmer_console_1=x; a\r\n"] {
            let (status, body) = shown.get(path, header).await;
            assert_eq!(status, 401, "{path}: {body}");
        }
    }
    let order = json!({ "act": "deactivate", "type": "note", "key": "a", "drop_turns": true, "because": "" });
    assert_eq!(shown.post("/api/act", MARK, &order).await.0, 401);
    assert_eq!(shown.post("/login", MARK, &json!({ "token": "a token of visitor" })).await.0, 401);
    // The page itself says nothing about the cluster.
    let (status, head, body) =
        shown.raw("GET / HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n").await;
    assert!(status == 200 && !body.contains("127.0.0.1"), "{body}");
    assert!(head.contains("content-security-policy: default-src 'self'"), "{head}");
    assert!(!head.contains("access-control-allow-origin"), "{head}");
}

#[tokio::test]
async fn a_visitor_that_may_look_does_nothing_and_an_operator_acts() {
    let shown = shown(|options| {
        options.token = Some(LOOK.to_owned());
        options.act_token = Some(ACT.to_owned());
    })
    .await;
    let note = shown.silo.grain::<dyn Note>("a/b <i>");
    note.set("x".to_owned()).await.unwrap();
    let order = json!({
        "act": "deactivate", "type": "note", "key": "a/b <i>", "drop_turns": false, "because": "",
    });
    let mut cookies = Vec::new();
    for token in [LOOK, ACT] {
        let (status, head, _) = shown.post("/login", MARK, &json!({ "token": token })).await;
        assert_eq!(status, 200);
        let cookie = head.lines().find(|line| line.starts_with("set-cookie: ")).unwrap();
        assert!(cookie.contains("httponly; samesite=strict; path=/"), "{cookie}");
        let pair = cookie.trim_start_matches("set-cookie: ").split(';').next().unwrap();
        cookies.push(format!("cookie: other=1; {pair}\r\n"));
    }
    let path = "/api/grain?type=note&key=a%2Fb%20%3Ci%3E";
    let (status, grain) = shown.get(path, &cookies[0]).await;
    assert_eq!((status, &grain["key"]), (200, &json!("a/b <i>")));
    assert_eq!(shown.get("/api/me", &cookies[0]).await.1["acts"], json!(false));
    assert_eq!(shown.get("/api/me", &cookies[1]).await.1["acts"], json!(true));
    let headers = format!("{MARK}{}", cookies[0]);
    let (status, _, refused) = shown.post("/api/act", &headers, &order).await;
    assert!(status == 403 && refused["error"].as_str().unwrap().contains("for looking"));
    let headers = format!("{MARK}{}", cookies[1]);
    let (status, _, done) = shown.post("/api/act", &headers, &order).await;
    assert_eq!((status, &done["done"]), (200, &json!("1 ended, 0 turns dropped")));
    // A program shows the token itself.
    let bearer = format!("{MARK}authorization: Bearer {ACT}\r\n");
    let (status, _, done) = shown.post("/api/act", &bearer, &order).await;
    assert_eq!((status, &done["done"]), (200, &json!("0 ended, 0 turns dropped")));
}

#[tokio::test]
async fn requests_that_another_page_makes_are_refused() {
    let shown = shown(|options| options.acts = true).await;
    let order = json!({ "act": "duty", "silo": "", "duty": "leaving", "because": "" });
    for headers in [
        "",
        "origin: http://example.org\r\nx-emmer-console: 1\r\n",
        "origin: null\r\nx-emmer-console: 1\r\n",
        "origin: http://127.0.0.1\r\nx-emmer-console: 1\r\n",
    ] {
        let (status, _, body) = shown.post("/api/act", headers, &order).await;
        assert_eq!(status, 403, "{headers}: {body}");
    }
    // A name that leads to this host is not a name of the console.
    for host in ["example.org", "example.org:80", "127.0.0.1.example.org", "127.0.0.1", ""] {
        let request = format!("GET /api/me HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(shown.raw(&request).await.0, 421, "{host}");
    }
    let (port, path) = (shown.address.port(), "/api/me");
    let local =
        format!("GET {path} HTTP/1.1\r\nhost: LocalHost:{port}\r\nconnection: close\r\n\r\n");
    assert_eq!(shown.raw(&local).await.0, 200);
}

#[tokio::test]
async fn a_console_is_not_opened_to_others_by_accident() {
    let refused = async |set: fn(&mut ConsoleOptions)| {
        let mut options = ConsoleOptions::default();
        options.address = SocketAddr::from(([0, 0, 0, 0], 0));
        set(&mut options);
        Console::bind(options).await.unwrap_err()
    };
    assert!(matches!(refused(|_| {}).await, ConsoleError::Open(_)));
    assert!(matches!(refused(|options| options.acts = true).await, ConsoleError::Open(_)));
    let token = |options: &mut ConsoleOptions| options.token = Some(LOOK.to_owned());
    assert!(matches!(refused(token).await, ConsoleError::Plain(_)));
    let short = |options: &mut ConsoleOptions| {
        options.plain = true;
        options.token = Some("short".to_owned());
    };
    assert!(matches!(refused(short).await, ConsoleError::Token));
    let proxied = |options: &mut ConsoleOptions| {
        options.address = SocketAddr::from(([127, 0, 0, 1], 0));
        options.names = vec!["console.example".to_owned()];
    };
    assert!(matches!(refused(proxied).await, ConsoleError::Open(_)));
}

#[tokio::test]
async fn bad_questions_get_errors_with_words() {
    let shown = shown(|options| options.acts = true).await;
    for (path, status, words) in [
        ("/api/grain?type=nothing&key=a", 404, "nothing"),
        ("/api/grain?type=note", 400, ""),
        ("/api/grains?after=x", 400, "place"),
        ("/api/grains?type=nothing", 404, "nothing"),
        ("/api/connections?silo=here", 400, "ip:port:epoch"),
        ("/api/connections?silo=1.2.3.4:5:6", 404, "1.2.3.4"),
        ("/api/log?level=info", 400, "show_log"),
        ("/nothing", 404, ""),
    ] {
        let (got, body) = shown.get(path, "").await;
        let told = body["error"].as_str().unwrap_or_default();
        assert!(got == status && told.contains(words), "{path}: {got} {body}");
    }
    for order in [
        json!({ "act": "explode" }),
        json!({ "act": "move", "type": "note" }),
        json!({ "act": "duty", "silo": "", "duty": "lazy", "because": "" }),
        json!({ "act": "duty", "silo": "here", "duty": "full", "because": "" }),
        json!([1]),
        json!({ "act": "log", "silo": "", "filter": "x".repeat(100_000), "for_ms": 1, "because": "" }),
    ] {
        let (status, _, body) = shown.post("/api/act", MARK, &order).await;
        assert!(status == 400 && body["error"].is_string(), "{order}: {status} {body}");
    }
    let long = format!("/api/grain?type=note&key={}", "k".repeat(60_000));
    let (status, _) = shown.get(&long, "").await;
    assert!(status >= 400, "{status}");
}

/// Five hundred pages are open, and none reads a byte. The others see the cluster all the same.
#[tokio::test(flavor = "multi_thread")]
async fn pages_that_do_not_read_hold_up_nothing() {
    let shown = shown(|options| options.connections_max = 1_400).await;
    let note = shown.silo.grain::<dyn Note>("<script>alert(1)</script>");
    note.set("x".to_owned()).await.unwrap();
    let open = async || {
        let mut stream = TcpStream::connect(shown.address).await.unwrap();
        let request = format!(
            "GET /events?see=types,methods,hot,turns,queues,reminders HTTP/1.1\r\nhost: {}\r\n\r\n",
            shown.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    };
    let mut idle = Vec::new();
    for _ in 0..500 {
        idle.push(open().await);
    }
    let mut page = open().await;
    let (mut read, mut seen) = (vec![0; 64 << 10], String::new());
    // Two pictures, so that it is not one that was there before.
    while seen.matches("event: base").count() < 2 || seen.matches("event: queues").count() < 2 {
        let bytes = timeout(PATIENCE, page.read(&mut read)).await.unwrap().unwrap();
        assert!(bytes > 0);
        seen.push_str(&String::from_utf8_lossy(&read[..bytes]));
    }
    assert!(seen.contains("event: methods"), "{seen}");
    let (status, body) = shown.get("/api/grains", "").await;
    assert_eq!((status, &body["rows"][0][2]), (200, &json!("<script>alert(1)</script>")));
    // Pages beyond the limit are refused in words, and a page that closes makes room.
    for _ in 0..190 {
        idle.push(open().await);
    }
    let begin = tokio::time::Instant::now();
    loop {
        let mut one = open().await;
        let bytes = timeout(PATIENCE, one.read(&mut read)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&read[..bytes]);
        if answer.starts_with("HTTP/1.1 503") {
            assert!(answer.contains("pages are open"), "{answer}");
            break;
        }
        idle.push(one);
        assert!(begin.elapsed() < PATIENCE);
    }
    idle.clear();
    let mut page = open().await;
    let bytes = timeout(PATIENCE, page.read(&mut read)).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&read[..bytes]).starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_serves_its_console_until_it_ends() {
    let console = Console::bind(ConsoleOptions::default()).await.unwrap();
    let address = console.address();
    let silo = Silo::builder().store("memory://console-inside").observer(console);
    let silo = silo.start().await.unwrap();
    let ask = async || {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET /api/settings HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = ask().await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("liveness_timeout"), "{answer}");
    silo.stop().await.unwrap();
    drop(silo);
    let begin = tokio::time::Instant::now();
    while ask().await.is_ok() {
        assert!(begin.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }
}

/// A hundred visitors ask for the same lists: the silos are asked now and then.
#[tokio::test(flavor = "multi_thread")]
async fn many_visitors_ask_the_silos_once() {
    let asked = Arc::new(AtomicU64::new(0));
    let counts = asked.clone();
    let row = SiloEntry::new(
        "127.0.0.1:1:1".parse().unwrap(),
        SiloStatus::Active,
        Timestamp::from_millis(1),
    );
    let admin = Admin::answered_by(move |_, question| {
        let mut answer = BytesMut::new();
        let encoded = match question {
            Question::Members => encode_into(&mut answer, &[&row]),
            _ => {
                counts.fetch_add(1, Ordering::Relaxed);
                encode_into(&mut answer, &[(); 0])
            }
        };
        encoded.unwrap();
        Ok(answer.freeze())
    });
    let console = Console::bind(ConsoleOptions::default()).await.unwrap();
    let address = console.address();
    let _serving = console.serve(admin);
    let visitors = (0..100).map(|n| {
        let path = ["history", "settings", "failures", "metrics"][n % 4];
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request =
                format!("GET /api/{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        })
    });
    for visitor in visitors.collect::<Vec<_>>() {
        visitor.await.unwrap();
    }
    let asked = asked.load(Ordering::Relaxed);
    assert!((4..=40).contains(&asked), "{asked}");
}
