//! `emmer top` in a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::harness::{PATIENCE, Silo, emmer, failure, run, store_in, wait_for};

const FREE: &str = "127.0.0.1:0";
const SIZE: (u16, u16) = (40, 180);

/// The bytes that the program has written so far, and the screen that they make.
struct Screen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

/// The command with a terminal of its own.
struct Top {
    child: Child,
    keys: File,
    screen: Arc<Mutex<Screen>>,
}

impl Top {
    fn start(store: &str) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let (ws_row, ws_col) = SIZE;
        tcsetwinsize(&terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let path = name.to_str().unwrap();
        let end = || File::options().read(true).write(true).open(path).unwrap();
        let mut command =
            emmer(&["top", "--store", store, "--cluster-id", "test", "--every", "300ms"]);
        let child =
            command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keys = File::from(terminal);
        let parser = vt100::Parser::new(SIZE.0, SIZE.1, 0);
        let screen = Arc::new(Mutex::new(Screen { parser, bytes: Vec::new() }));
        let (mut from, to) = (keys.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut some = [0; 4_096];
            while let Ok(count @ 1..) = from.read(&mut some) {
                let mut to = to.lock().unwrap();
                to.parser.process(&some[..count]);
                to.bytes.extend_from_slice(&some[..count]);
            }
        });
        Self { child, keys, screen }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a screen that `is_it`, and returns it.
    fn wait_for(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.screen.lock().unwrap().parser.screen().contents();
            if is_it(&shown) {
                return shown;
            }
            assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}:\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns true if the program has written these bytes.
    fn has_said(&self, bytes: &[u8]) -> bool {
        let said = &self.screen.lock().unwrap().bytes;
        said.windows(bytes.len()).any(|part| part == bytes)
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_shows_a_cluster_acts_after_a_question_and_sees_a_death() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(dir.path());
    let silos: Vec<_> =
        ["left", "right", "third"].map(|name| Silo::start(&store, FREE, &["--name", name])).into();
    let hostile = "\u{1b}]0;mine\u{7}<b>";
    let call = |key: &str| {
        let base = ["call", "airport", key, "totals", "--store", &store, "--cluster-id", "test"];
        assert!(run(&base).status.success());
    };
    ["JFK", "EWR", hostile].iter().for_each(|key| call(key));

    let mut top = Top::start(&store);
    top.wait_for("all silos", |shown| shown.contains("3 active") && shown.contains("right"));
    top.press("2");
    top.wait_for("the types", |shown| shown.contains("airport") && shown.contains("MOST"));
    // The keys of calls, once they are sampled.
    top.press("4");
    top.wait_for("the hot keys", |shown| {
        (0..20).for_each(|_| call(hostile));
        shown.contains("mine")
    });
    assert!(!top.has_said(b"\x1b]0;mine"));
    top.press("/EWR\r");
    top.wait_for("the filter", |shown| !shown.contains("mine") && shown.contains("/EWR"));
    top.press("\x1b");
    top.wait_for("no filter", |shown| shown.contains("mine"));

    // An order asks first, and a key that is no yes gives none.
    top.press("1c");
    top.wait_for("a question", |shown| shown.contains("take no new grains? [y/N]"));
    top.press("n");
    top.wait_for("no order", |shown| shown.contains("nothing was done"));
    top.press("cy");
    top.wait_for("an order", |shown| shown.contains("Active, cordoned"));

    silos[2].process.signal("KILL");
    top.press("8");
    top.wait_for("the death", |shown| shown.contains("is dead") && shown.contains("2 active"));
    top.press("q");
    let status = wait_for("the end", || top.child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn top_draws_on_a_terminal_alone() {
    let (code, said) = failure(&run(&["top", "--store", "sqlite://x.db", "--cluster-id", "test"]));
    assert!(code == 2 && said.contains("terminal"), "{said}");
}
