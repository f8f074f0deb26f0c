//! Event streams and sockets of a server, as browsers meet them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::IntoResponse;
use axum::response::sse::Event;
use axum::routing::get;
use emmer_axum::{Closed, Drain, LastEventId, Socket, events};
use futures_util::{SinkExt, StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite;

type Ends = Arc<Mutex<Vec<Closed>>>;

#[derive(Clone, Default)]
struct Server {
    drain: Drain,
    ends: Ends,
    /// What came in over sockets.
    heard: Arc<Mutex<Vec<String>>>,
}

async fn numbers(
    State(server): State<Server>,
    LastEventId(seen): LastEventId<u64>,
) -> impl IntoResponse {
    let first = seen.map_or(0, |seen| seen + 1);
    let three = stream::iter(first..first + 3).map(Ok::<_, Infallible>);
    let values = three.chain(stream::pending());
    events(values, &server.drain, |n| Event::default().id(n.to_string()).data(format!("no {n}")))
}

async fn fails(State(server): State<Server>) -> impl IntoResponse {
    let values = stream::iter([Ok("one"), Err("it broke\noff"), Ok("two")]);
    events(values, &server.drain, |text| Event::default().data(text))
}

/// Says `greeting`s, then what `how` says.
async fn socket(upgrade: WebSocketUpgrade, server: Server, how: &'static str) -> impl IntoResponse {
    upgrade.on_upgrade(async move |socket| {
        let greetings = stream::iter(0..3).map(|n| Ok(Message::text(format!("hello {n}"))));
        let rest = match how {
            "ends" => stream::empty().boxed(),
            "fails" => stream::iter([Err("no room for 1234567890 ".repeat(20))]).boxed(),
            _ => stream::pending().boxed(),
        };
        let heard = |message: Message| {
            let heard = server.heard.clone();
            async move {
                let text = message.to_text().unwrap_or("?").to_owned();
                if text == "bad" {
                    return Err("a bad word");
                }
                heard.lock().unwrap().push(text);
                Ok(())
            }
        };
        let socket = Socket::new(socket, &server.drain).ping_every(Duration::from_millis(200));
        let closed = socket.serve(greetings.chain(rest), heard).await;
        server.ends.lock().unwrap().push(closed);
    })
}

async fn start() -> (SocketAddr, Server) {
    let server = Server::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ws = |how: &'static str| {
        get(async move |upgrade: WebSocketUpgrade, State(server): State<Server>| {
            socket(upgrade, server, how).await
        })
    };
    let routes = Router::new()
        .route("/numbers", get(numbers))
        .route("/fails", get(fails))
        .route("/ws/stays", ws("stays"))
        .route("/ws/ends", ws("ends"))
        .route("/ws/fails", ws("fails"))
        .with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (address, server)
}

type Browser = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<TcpStream>>;

/// The frame that closes a socket.
async fn close_frame(ws: &mut Browser) -> tungstenite::protocol::CloseFrame {
    loop {
        if let tungstenite::Message::Close(frame) = ws.next().await.unwrap().unwrap() {
            return frame.unwrap();
        }
    }
}

/// Sends a request, and reads its response until it has `until`, or ends.
async fn get_until(address: SocketAddr, path: &str, header: &str, until: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{header}\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !String::from_utf8_lossy(&response).contains(until) {
        if connection.read_buf(&mut response).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn an_event_stream_resumes_behind_the_last_event() {
    let (address, server) = start().await;
    let first = get_until(address, "/numbers", "", "no 2").await;
    assert!(first.contains("id: 0\ndata: no 0"), "{first}");
    let second = get_until(address, "/numbers", "Last-Event-ID: 2\r\n", "no 5").await;
    assert!(second.contains("id: 3\ndata: no 3") && !second.contains("no 2"), "{second}");
    let bad = get_until(address, "/numbers", "Last-Event-ID: two\r\n", "\u{0}").await;
    assert!(bad.starts_with("HTTP/1.1 400") && bad.contains("\"two\""), "{bad}");
    assert!(!server.drain.has_begun());
}

#[tokio::test]
async fn a_failure_is_the_last_event() {
    let (address, _server) = start().await;
    let all = get_until(address, "/fails", "", "\u{0}").await;
    assert!(all.contains("data: one"), "{all}");
    assert!(all.contains("event: error\ndata: it broke off"), "{all}");
    assert!(!all.contains("two"), "{all}");
}

#[tokio::test]
async fn a_drain_ends_event_streams_and_sockets() {
    let (address, server) = start().await;
    let (mut ws, _) =
        tokio_tungstenite::connect_async(format!("ws://{address}/ws/stays")).await.unwrap();
    assert_eq!(ws.next().await.unwrap().unwrap().to_text().unwrap(), "hello 0");
    let stream = tokio::spawn(get_until(address, "/numbers", "", "\u{0}"));
    while server.drain.open() < 2 {
        tokio::task::yield_now().await;
    }
    server.drain.begin();
    let frame = close_frame(&mut ws).await;
    assert_eq!(u16::from(frame.code), 1001, "{frame:?}");
    assert!(stream.await.unwrap().contains("no 2"), "the stream has ended");
    while ws.next().await.is_some() {}
    assert!(server.drain.ended(Duration::from_secs(10)).await);
    assert_eq!(*server.ends.lock().unwrap(), [Closed::Drained]);
}

#[tokio::test]
async fn messages_come_in_and_values_go_out() {
    let (address, server) = start().await;
    let (mut ws, _) =
        tokio_tungstenite::connect_async(format!("ws://{address}/ws/stays")).await.unwrap();
    for n in 0..3 {
        ws.send(tungstenite::Message::text(format!("word {n}"))).await.unwrap();
        assert_eq!(ws.next().await.unwrap().unwrap().to_text().unwrap(), format!("hello {n}"));
    }
    ws.send(tungstenite::Message::text("bad")).await.unwrap();
    let frame = close_frame(&mut ws).await;
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1011, "a bad word"));
    assert_eq!(*server.heard.lock().unwrap(), ["word 0", "word 1", "word 2"]);
}

#[tokio::test]
async fn a_stream_that_ends_or_fails_closes_its_socket() {
    let (address, _server) = start().await;
    for (path, code, reason) in [("ends", 1000, ""), ("fails", 1011, "no room for 1234567890")] {
        let url = format!("ws://{address}/ws/{path}");
        let (mut ws, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let frame = close_frame(&mut ws).await;
        assert_eq!(u16::from(frame.code), code);
        assert!(frame.reason.as_str().starts_with(reason), "{frame:?}");
    }
}

/// A browser that is gone without a word, and one that says goodbye.
#[tokio::test]
async fn a_socket_without_a_peer_ends() {
    let (address, server) = start().await;
    let url = format!("ws://{address}/ws/stays");
    let (silent, _) = tokio_tungstenite::connect_async(url.clone()).await.unwrap();
    let (mut leaves, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    leaves.close(None).await.unwrap();
    while leaves.next().await.is_some() {}
    let both = async {
        while server.ends.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
    assert_eq!(*server.ends.lock().unwrap(), [Closed::Peer, Closed::Silent]);
    drop(silent);
}
