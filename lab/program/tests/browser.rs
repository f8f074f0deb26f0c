//! The console in a real browser: five silos under load, one of them killed, a turn that hangs.
//!
//! It needs Chromium and its `chromedriver` (Debian: `apt install chromium-driver`):
//! `cargo test -p emmer-lab --test browser -- --ignored`. With `CONSOLE_PICTURES` set to a folder
//! it leaves screenshots there; the README's is `death.png`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use emmer::admin::{
    Admin, AdminError, ChangeLook, GrainName, HeldThread, MethodLook, Question, TurnLook,
};
use emmer::console::{Console, ConsoleOptions, payload};
use emmer::prelude::*;
use emmer::tables::{SiloAddress, SiloEntry, SiloStatus, Timestamp, Vote};
use emmer_browser::{Browser, Driver};
use emmer_example_flights::{Aircraft, Airport};
use emmer_wire::codec::encode_into;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// A silo process, killed with the test.
struct Started(Child);

impl Started {
    fn start(store: &str, name: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_emmer-lab"));
        command
            .args(["silo", "--store", store, "--cluster-id", "flights", "--name", name])
            .args(["--listen", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--log", "info"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("is active"), "{line}");
        Self(child)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls the grains of the flights without an end. Calls that fail are made again elsewhere.
fn load(client: &Client, from: u64) {
    let client = client.clone();
    tokio::spawn(async move {
        for n in from.. {
            let aircraft = client.grain::<dyn Aircraft>(format!("N{}", 100 + n % 800));
            let _ = aircraft.totals().timeout(secs(2)).await;
            if n % 4 == 0 {
                let airport = ["JFK", "LGA", "EWR", "ATL", "ORD", "LAX", "BOS"][(n % 7) as usize];
                let _ = client.grain::<dyn Airport>(airport).totals().timeout(secs(2)).await;
            }
            sleep(Duration::from_millis(2)).await;
        }
    });
}

async fn picture(page: &Browser<'_>, name: &str) {
    let Some(dir) = std::env::var_os("CONSOLE_PICTURES") else { return };
    // The next picture of the cluster is drawn.
    sleep(Duration::from_millis(1_500)).await;
    page.picture(&Path::new(&dir).join(format!("{name}.png"))).await;
}

/// A script that returns the status of the silo's row on the overview.
fn status_of(name: &str) -> String {
    format!(
        "const row = [...document.querySelectorAll('tbody tr')].find(row => \
         row.children[0].innerText === '{name}'); return row ? row.children[1].innerText : null"
    )
}

const THEME: &str = "document.getElementById('theme').click(); \
    return document.documentElement.dataset.theme";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs chromedriver"]
async fn an_operator_sees_a_death_and_frees_a_turn_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", dir.path().join("cluster.db").display());
    let names = ["amber", "beryl", "coral", "delta", "ember"];
    let mut silos: Vec<_> = names.iter().map(|name| Started::start(&store, name)).collect();
    let client = Client::connect(store.as_str(), "flights").await.unwrap();
    (0..16).for_each(|n| load(&client, n * 53));
    let hostile = "<img src=x onerror=window.hacked=1>'\"&\u{1b}[31m";
    client.grain::<dyn Aircraft>(hostile).totals().await.unwrap();

    let mut options = ConsoleOptions::default();
    options.acts = true;
    let console = Console::bind(options).await.unwrap();
    let origin = format!("http://{}/", console.address());
    let _serving = console.serve(client.admin());
    let driver = Driver::start().await;
    let page = driver.browser(1360, 900).await;
    page.open(&origin).await;
    let active = "return document.querySelector('.tile[data-name=silos] b').innerText";
    page.shows(active, &json!("5 of 5")).await;
    page.run("window.mine = 1; return null").await;
    let theme = page.run("return document.documentElement.dataset.theme").await;
    if theme != "dark" {
        assert_eq!(page.run(THEME).await, "dark");
    }
    sleep(secs(30)).await;
    picture(&page, "overview").await;
    assert_eq!(page.run(THEME).await, "light");
    picture(&page, "overview-light").await;
    page.run(THEME).await;

    // A silo is killed: the page shows it without a reload, and its grains elsewhere.
    let before = page.run("return document.querySelector('#cluster').innerText").await;
    silos[1].0.kill().unwrap();
    let killed = Instant::now();
    let admin = client.admin();
    loop {
        let members = admin.members(None).await.unwrap_or_default();
        let beryl = members.iter().find(|row| &*row.instance_name == "beryl");
        if beryl.is_some_and(|row| row.status == SiloStatus::Dead) {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    let declared = killed.elapsed();
    let shown = page.shows(&status_of("beryl"), &json!("dead")).await;
    println!("dead {declared:?} after the kill, on the page {shown:?} later");
    assert!(shown < secs(2), "{shown:?}");
    page.shows(active, &json!("4 of 4")).await;
    let events = "return [...document.querySelectorAll('.changes li')].map(li => li.innerText)\
        .filter(text => text.includes('beryl') && /suspected|dead/.test(text)).length > 1";
    page.shows(events, &json!(true)).await;
    let view = page.run("return document.querySelector('#cluster').innerText").await;
    assert_ne!(before, view);
    picture(&page, "death").await;
    // Its grains are on the others again.
    let grown = "return Number(document.querySelector('.tile[data-name=activations] b')\
        .innerText.replace(/,/g, '')) >= 807";
    page.shows(grown, &json!(true)).await;
    assert_eq!(page.run("return window.mine").await, 1, "the page was loaded again");

    // Scrubbed back to before the death, and to the evidence.
    page.run("location.hash = '#/timeline'; return null").await;
    let died = "return !!document.querySelector('[data-change=died] .more')";
    page.shows(died, &json!(true)).await;
    let state = "const row = [...document.querySelectorAll('tbody tr')].find(row => \
        row.children[0].innerText === 'beryl'); return row && row.children[2].innerText";
    page.shows(state, &json!("dead")).await;
    picture(&page, "timeline").await;
    for _ in 0..20 {
        page.click("button[title='Change before']").await;
        let gone = page.run("return !document.querySelector('[data-change=died]')").await;
        if gone == true {
            break;
        }
    }
    page.shows("return !document.querySelector('[data-change=died]')", &json!(true)).await;
    let then = page.run(state).await;
    assert!(then == "active" || then == "suspected", "{then}");
    picture(&page, "timeline-back").await;

    // A turn hangs, and a call of another grain waits for it.
    let hung = hang(&client).await;
    page.run("location.hash = '#/turns'; return null").await;
    let listed = "return [...document.querySelectorAll('tbody tr')].some(row => \
        row.innerText.includes('emmer-slow/7') && row.innerText.includes('Slow.work'))";
    let found = page.shows(listed, &json!(true)).await;
    println!("the turn that hangs is listed after {found:?}");
    picture(&page, "turns").await;
    page.run("location.hash = '#/grain/emmer-slow/7'; return null").await;
    let lead = "return /Slow.work has run for/.test(document.querySelector('main p').innerText)";
    page.shows(lead, &json!(true)).await;
    picture(&page, "grain").await;
    page.run(
        "[...document.querySelectorAll('button')].find(one => one.innerText.includes('drop'))\
         .click(); return null",
    )
    .await;
    page.types("dialog input", "ticket 12\u{e007}").await;
    let toast = "return document.querySelector('.toast')?.innerText";
    page.shows(toast, &json!("1 ended, 1 turns dropped")).await;
    let error = hung.await.unwrap().unwrap_err();
    assert!(error.contains("ticket 12"), "{error}");

    // By keys alone: to the methods, to the first row, to its page and to the help.
    page.types("body", "gm").await;
    page.shows("return location.hash", &json!("#/methods")).await;
    page.shows("return document.querySelectorAll('tbody tr').length > 3", &json!(true)).await;
    page.types("body", "gg").await;
    page.shows("return document.querySelectorAll('tbody tr').length > 3", &json!(true)).await;
    page.types("body", "jj").await;
    page.types("tr:focus", "\u{e007}").await;
    page.shows("return location.hash.startsWith('#/grain/')", &json!(true)).await;
    page.types("body", "?").await;
    page.shows("return !!document.querySelector('dialog[open]')", &json!(true)).await;
    page.run("document.querySelector('dialog[open]').close(); return null").await;

    // Every other page, in both themes and on a phone; and a key that would like to be HTML.
    // It may have been on the silo that died.
    client.grain::<dyn Aircraft>(hostile).totals().await.unwrap();
    page.run("location.hash = '#/grains/aircraft'; return null").await;
    page.types("main input[type=search]", "<img").await;
    let row = "return document.querySelectorAll('tbody tr').length";
    page.shows(row, &json!(1)).await;
    let title = "return document.querySelector('td.key').innerText.includes('<img src=x')";
    page.shows(title, &json!(true)).await;
    page.click("td.key a").await;
    let lead = "return document.querySelector('main p').innerText.startsWith('It is at rest')";
    page.shows(lead, &json!(true)).await;
    assert_eq!(page.run("return window.hacked ?? null").await, json!(null));
    assert_eq!(page.run("return document.querySelectorAll('main img').length").await, 0);
    let phone = driver.browser(390, 844).await;
    for name in [
        "",
        "timeline",
        "methods",
        "grains",
        "turns",
        "reminders",
        "streams",
        "stores",
        "settings",
        "log",
    ] {
        let label = if name.is_empty() { "home" } else { name };
        page.run(&format!("location.hash = '#/{name}'; return null")).await;
        picture(&page, &format!("{label}-dark")).await;
        page.run(THEME).await;
        picture(&page, &format!("{label}-light")).await;
        page.run(THEME).await;
        phone.open(&format!("{origin}#/{name}")).await;
        phone.refresh().await;
        phone.shows("return !!document.querySelector('main h1, main .tile')", &json!(true)).await;
        picture(&phone, &format!("{label}-phone")).await;
        let wide = "return document.documentElement.scrollWidth - innerWidth";
        phone.shows(wide, &json!(0)).await;
    }
    // A console with a token asks for it.
    let mut options = ConsoleOptions::default();
    options.token = Some("a token of visitors".to_owned());
    let guarded = Console::bind(options).await.unwrap();
    let address = guarded.address();
    let _guarded = guarded.serve(client.admin());
    phone.open(&format!("http://{address}/")).await;
    phone.shows("return !!document.querySelector('.login input')", &json!(true)).await;
    picture(&phone, "login-phone").await;
    phone.types(".login input", "a token of visitors\u{e007}").await;
    phone.shows(active, &json!("4 of 4")).await;
    let acts = "return [...document.querySelectorAll('button')].some(one => \
        /Drain|Free/.test(one.innerText))";
    assert_eq!(phone.run(acts).await, false);
    let lines = "return document.querySelectorAll('.log div').length > 0 || \
        document.querySelector('.bar .soft').innerText.startsWith('The silo writes')";
    page.shows(lines, &json!(true)).await;
    for errors in [page.errors().await, phone.errors().await] {
        // A visitor without a token is refused.
        let errors: Vec<_> = errors.iter().filter(|error| !error.contains(" 401 ")).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    page.close().await;
    phone.close().await;
}

/// Has a turn of `emmer-slow/7` hang, and a turn of `emmer-slow/8` wait for it.
async fn hang(client: &Client) -> tokio::task::JoinHandle<Result<(), String>> {
    let types = client.admin().types(None).await.unwrap();
    let slow = types.iter().find(|one| one.grain_type == "emmer-slow").unwrap();
    let method = |name: &str| -> MethodLook {
        slow.methods.iter().find(|method| method.name == name).unwrap().clone()
    };
    let call = |key: u64, method: MethodLook, arguments: serde_json::Value| {
        let (client, grain_type) = (client.clone(), "emmer-slow".to_owned());
        let grain = GrainName { grain_type, key: key.into() };
        tokio::spawn(async move {
            let arguments = payload::to_msgpack(&arguments).into();
            let called = client.call_by_name(&grain, &method, arguments, Some(secs(600)));
            called.await.map(drop).map_err(|error| error.to_string())
        })
    };
    let hung = call(7, method("work"), json!({ "steps": [600_000] }));
    sleep(Duration::from_millis(300)).await;
    drop(call(8, method("ask"), json!({ "other": 7, "steps": [1] })));
    hung
}

const SILOS: u16 = 1_000;

/// A cluster of a thousand silos with a million activations, which a function plays by the looks of
/// a real silo.
async fn thousand(real: &Silo) -> Admin {
    let own = real.admin();
    let look = own.silo(None).await.unwrap();
    let types = own.types(None).await.unwrap();
    let methods = own.methods(None).await.unwrap();
    let hot = own.hot(None, 10).await.unwrap();
    let address = |n: u16| -> SiloAddress {
        format!(
            "10.0.{}.{}:11111:{}",
            n / 250,
            n % 250 + 1,
            1_796_070_632_248_134_u64 + u64::from(n)
        )
        .parse()
        .unwrap()
    };
    let now = Timestamp::from_millis(1_796_070_632_000);
    let rows: Vec<SiloEntry> = (0..SILOS)
        .map(|n| {
            let mut row = SiloEntry::new(address(n), SiloStatus::Active, now);
            row.instance_name = format!("silo-{n}").into();
            row.role_name = "shop".into();
            if n == 77 {
                let voter = address(3);
                row.votes.push(Vote { voter, at: now, gone: false });
            }
            row
        })
        .collect();
    let asked = AtomicU64::new(0);
    Admin::answered_by(move |to, question| {
        let n = to
            .map_or(0, |to| rows.binary_search_by_key(&to, |row| row.address).unwrap_or_default());
        let n16 = u16::try_from(n).unwrap();
        let turn = asked.fetch_add(1, Ordering::Relaxed);
        let mut out = BytesMut::new();
        let encoded = match question {
            Question::Members => encode_into(&mut out, &rows),
            Question::Silo => {
                let mut look = look.clone();
                look.silo = address(n16);
                look.view = 4_000;
                look.statistics.activations = 1_000;
                look.statistics.turns = turn * 3;
                look.statistics.cpu_percent = Some(u8::try_from((turn + n as u64) % 100).unwrap());
                look.probes = (1..=3).map(|by| address((n16 + by * 7) % SILOS)).collect();
                encode_into(&mut out, &look)
            }
            Question::Types => {
                let mut types = types.clone();
                types.iter_mut().for_each(|one| one.activations = 500);
                encode_into(&mut out, &types)
            }
            Question::Methods => encode_into(&mut out, &methods),
            Question::Hot { .. } => encode_into(&mut out, &hot),
            Question::Turns { .. } => {
                let none: (Vec<TurnLook>, Vec<HeldThread>) = Default::default();
                encode_into(&mut out, &none)
            }
            Question::History { .. } => encode_into(&mut out, &Vec::<ChangeLook>::new()),
            _ => encode_into(&mut out, &[(); 0]),
        };
        encoded.map_err(|error| AdminError::Failed(error.to_string()))?;
        Ok(out.freeze())
    })
}

/// Processor time of this process.
fn used() -> Duration {
    let both = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(both.tv_sec.unsigned_abs(), u32::try_from(both.tv_nsec).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs chromedriver"]
async fn a_thousand_silos_are_shown_at_once() {
    let real = Silo::builder()
        .store("memory://")
        .host::<dyn Aircraft, emmer_example_flights::AircraftGrain>()
        .host::<dyn Airport, emmer_example_flights::AirportGrain>();
    let real = real.start().await.unwrap();
    for n in 0..200 {
        let aircraft = real.grain::<dyn Aircraft>(format!("N{}", n % 50));
        let _ = aircraft.totals().await;
    }
    let console = Console::bind(ConsoleOptions::default()).await.unwrap();
    let origin = format!("http://{}/", console.address());
    let _serving = console.serve(thousand(&real).await);
    let driver = Driver::start().await;
    let page = driver.browser(1360, 900).await;
    page.open("about:blank").await;
    page.command("Page.enable", json!({})).await;
    let script = "window.frames_ = []; let last = 0; requestAnimationFrame(function next(now) { \
        if (last) window.frames_.push(now - last); last = now; requestAnimationFrame(next); }); \
        window.shown_ = null; setInterval(() => { const tile = \
        document.querySelector('.tile[data-name=silos] b'); if (!window.shown_ && tile && \
        tile.innerText === '999 of 1000') window.shown_ = performance.now(); }, 5);";
    page.command("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script })).await;
    page.open(&origin).await;
    page.shows("return window.shown_ !== null", &json!(true)).await;
    let shown = page.run("return window.shown_").await.as_f64().unwrap();
    let bytes = page
        .run(
            "return performance.getEntriesByType('resource').concat(performance\
             .getEntriesByType('navigation')).reduce((sum, one) => sum + one.transferSize, 0)",
        )
        .await;
    let picture = first_picture(&origin).await;
    let (cpu, begin) = (used(), Instant::now());
    for path in ["", "methods", "grains", ""] {
        page.run(&format!("location.hash = '#/{path}'; return null")).await;
        sleep(secs(6)).await;
        self::picture(&page, &format!("thousand-{path}")).await;
    }
    let cpu = (used() - cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
    let frames = page.run("return window.frames_.toSorted((a, b) => a - b)").await;
    let frames: Vec<f64> =
        frames.as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect();
    let at = |share: f64| frames[((frames.len() - 1) as f64 * share) as usize];
    let files = bytes.as_u64().unwrap();
    println!(
        "1,000 silos: usable after {shown:.0} ms; {files} bytes of files and {picture} of the \
         first picture; frames: half {:.1} ms, 95 % {:.1} ms, longest {:.1} ms; {:.1} % of a core",
        at(0.5),
        at(0.95),
        at(1.0),
        cpu * 100.0
    );
    assert!(files + picture <= 300_000);
    assert!(at(0.95) < 50.0);
    page.close().await;
}

/// Length of the first picture that a page gets.
async fn first_picture(origin: &str) -> u64 {
    let address = origin.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /events HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut all, mut read) = (Vec::new(), vec![0; 64 << 10]);
    while !all.ends_with(b"\n\n\r\n") {
        let bytes = stream.read(&mut read).await.unwrap();
        all.extend_from_slice(&read[..bytes]);
    }
    all.len() as u64
}
