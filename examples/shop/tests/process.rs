//! The shop as a process: its settings, and its end.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use emmer::Client;
use emmer_example_shop_api::{Article, Stock};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_emmer-example-shop"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EMMER_"))
    {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(child: Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_until_it_is_asked_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("emmer.toml");
    let text = "cluster_id = \"shop\"\nlisten = \"127.0.0.1:0\"\ngateway = \"127.0.0.1:0\"\n";
    std::fs::write(&file, text).unwrap();
    let store = format!("sqlite://{}/shop.db", dir.path().display());
    let mut shop = command()
        .args(["--config", file.to_str().unwrap(), "--name", "first"])
        .env("EMMER_STORE", format!("{store}?mode=rwc"))
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(shop.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "the shop is open\n", "{:?}", ended(shop));
    let client = Client::connect(store.as_str(), "shop").await.unwrap();
    let tea = client.grain::<dyn Stock>(Article("tea".to_owned()));
    tea.deliver(3).await.unwrap();
    let asked = Command::new("kill").args(["-TERM", &shop.id().to_string()]).status().unwrap();
    assert!(asked.success());
    assert_eq!(ended(shop), (Some(0), String::new()));
}

/// What systemd hears from a service of `Type=notify` with `WatchdogSec`.
#[cfg(target_os = "linux")]
#[test]
fn systemd_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let systemd = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let store = format!("sqlite://{}/shop.db?mode=rwc", dir.path().display());
    let shop = command()
        .args(["--store", &store, "--cluster-id", "shop", "--listen", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "500000")
        .spawn()
        .unwrap();
    let until = |wanted: &str| {
        let mut heard = Vec::new();
        let mut buffer = [0; 1_024];
        loop {
            let length = systemd.recv(&mut buffer).unwrap();
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let is_wanted = text.lines().any(|line| line == wanted);
            heard.push(text);
            if is_wanted {
                return heard.concat();
            }
        }
    };
    let heard = until("READY=1");
    assert!(heard.contains("STATUS=ready"), "{heard}");
    until("WATCHDOG=1");
    Command::new("kill").args(["-TERM", &shop.id().to_string()]).status().unwrap();
    let heard = until("STOPPING=1");
    assert!(!heard.contains("READY=1"), "{heard}");
    assert_eq!(ended(shop).0, Some(0));
}

#[test]
fn wrong_settings_are_told_all_at_once_with_their_exit_code() {
    let child = command().args(["--listen", "localhost:1", "--set", "limits.x=1"]).spawn().unwrap();
    let (code, said) = ended(child);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--set: unknown key \"limits.x\""), "{said}");
    let child = command().args(["--listen", "localhost:1"]).spawn().unwrap();
    let (code, said) = ended(child);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--listen: listen: \"localhost:1\" is not an address: names"), "{said}");
    assert!(said.contains("cluster_id is not set: give --cluster-id"), "{said}");
    let loud = ["--store", "memory://", "--cluster-id", "a", "--listen", "127.0.0.1:0"];
    let child = command().args(loud).args(["--set", "log=loud"]).spawn().unwrap();
    let (code, said) = ended(child);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--set: log: \"loud\" is not a log filter"), "{said}");
    let given = ["--store", "memory://", "--cluster-id", "a", "--listen", "127.0.0.1:0"];
    let child = command().args(given).args(["--set", "traces=0.5"]).spawn().unwrap();
    let (code, said) = ended(child);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("sends no traces by its settings"), "{said}");
}
