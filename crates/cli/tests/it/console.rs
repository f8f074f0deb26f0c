//! The console as a process, and that of the demo.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Process, Silo, emmer, store_in, wait_for};

const FREE: &str = "127.0.0.1:0";

/// Sends a request to the console at `origin`. Returns the status and the body.
fn ask(origin: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let address = origin.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = body.map(Value::to_string);
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nx-emmer-console: \
         1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get(origin: &str, path: &str) -> Value {
    let (status, body) = ask(origin, path, None);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The address in the line of a console that has begun.
fn origin_in(lines: &[String]) -> String {
    let line = lines.last().unwrap();
    line[line.find("http://").unwrap()..].trim().to_owned()
}

#[test]
fn a_console_shows_settings_and_the_log_and_changes_its_filter_for_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let more =
        [["--name", "a", "--set", "balance=true"], ["--name", "b", "--set", "balance=false"]];
    let silos = more.map(|more| Silo::start(&store, FREE, &more));
    let started =
        ["console", "--store", &store, "--cluster-id", "test", "--listen", FREE, "--acts"];
    let mut console = Process::start(&started);
    let origin = origin_in(&console.lines_to("http://").unwrap());
    let (status, page) = ask(&origin, "/", None);
    assert!(status == 200 && page.contains("<title>Emmer</title>"), "{page}");

    let settings = get(&origin, "/api/settings");
    let find = |key: &str| {
        settings.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap()["values"].clone()
    };
    let balance = find("balance");
    assert_eq!(balance.as_array().unwrap().len(), 2, "{balance}");
    assert_eq!(balance[0]["place"], "--set");
    assert_eq!(find("cluster_id")[0]["value"], "test");
    assert_eq!(find("liveness_timeout")[0]["place"], Value::Null);

    let silo = &silos[0].address;
    let lines = |level: &str, after: u64| {
        get(&origin, &format!("/api/log?silo={silo}&level={level}&after={after}"))
    };
    let first = lines("info", 0);
    let before = first["filter"].as_str().unwrap().to_owned();
    let order = |filter: &str| {
        let order = json!({
            "act": "log", "silo": silo, "filter": filter, "for_ms": 60_000, "because": "ticket 5",
        });
        ask(&origin, "/api/act", Some(&order))
    };
    let (status, done) = order("loud");
    assert!(status == 400 && done.contains("is not a level"), "{done}");
    let (status, done) = order("debug");
    assert!(status == 200 && done.contains(&before), "{done}");
    // The order itself is a line.
    let told = wait_for("a line about the order", || {
        let page = lines("info", 0);
        let all = page["lines"].as_array().unwrap().clone();
        let is_it = |line: &Value| line["words"].as_str().unwrap().contains("ticket 5");
        all.into_iter().find(is_it).map(|line| (line, page["filter"].clone()))
    });
    assert_eq!((told.0["level"].as_str(), told.1.as_str()), (Some("info"), Some("debug")));
    assert_eq!(order("").0, 200);
    assert_eq!(lines("info", 0)["filter"], before.as_str());
    wait_for("the order in the history", || {
        let (_, history) = ask(&origin, "/api/history", None);
        history.contains("log-changed").then_some(())
    });

    console.signal("INT");
    assert!(console.end().0.success());
}

#[test]
fn the_demo_goes_on_for_its_console_until_enter() {
    let mut command = emmer(&["demo", "--quick", "300", "--silos", "2", "--console"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let (mut said, mut origin) = (String::new(), None);
    while !said.contains("Enter stops them") {
        let mut line = String::new();
        assert!(std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0, "{said}");
        if let Some(at) = line.find("http://") {
            origin = Some(line[at..].trim().to_owned());
        }
        said += &line;
    }
    let me = get(&origin.unwrap(), "/api/me");
    assert_eq!(me["acts"], true);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{said}{rest}");
    assert!(rest.contains("compared, 0 differ"), "{rest}");
}
