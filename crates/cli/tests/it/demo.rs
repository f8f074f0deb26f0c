//! The demo itself, small.

use std::net::{SocketAddr, TcpStream};

use crate::harness::{Process, wait_for};

/// Where the silos of these lines listened: each line of the history names one as `ip:port:epoch`.
fn silos(lines: &[String]) -> Vec<SocketAddr> {
    let address = |line: &String| {
        let word = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:"))?;
        word.rsplit_once(':')?.0.parse().ok()
    };
    let mut found: Vec<_> =
        lines.iter().filter(|line| line.contains(" is ")).filter_map(address).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn assert_all_gone(silos: &[SocketAddr]) {
    for silo in silos {
        wait_for(&format!("{silo} to be gone"), || TcpStream::connect(silo).is_err().then_some(()));
    }
}

#[test]
fn a_small_replay_survives_a_kill_with_exact_totals() {
    let mut demo = Process::start(&["demo", "--quick", "20000", "--seed", "2"]);
    let lines = demo.rest();
    let (status, said) = demo.end();
    let all = lines.join("\n");
    assert!(status.success(), "{status}: {said}\n{all}");
    for part in [
        "(SIGKILL)",
        "is suspected by",
        "is Dead",
        "20,000 departures",
        " aircraft compared, 0 differ",
    ] {
        assert!(all.contains(part), "{part:?} is missing in\n{all}");
    }
    let silos = silos(&lines);
    assert_eq!(silos.len(), 4, "{all}");
    assert_all_gone(&silos);
}

#[test]
fn an_interrupted_demo_leaves_nothing_running() {
    let mut demo = Process::start(&["demo", "--silos", "2"]);
    let mut lines = demo.lines_to("the replay begins").unwrap();
    demo.signal("INT");
    lines.extend(demo.rest());
    let (status, said) = demo.end();
    assert!(status.code() == Some(130) && said.contains("interrupted"), "{status}: {said}");
    let silos = silos(&lines);
    assert_eq!(silos.len(), 2, "{lines:?}");
    assert_all_gone(&silos);
}
