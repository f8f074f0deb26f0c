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

/// The last lines show each silo that runs, with its grains: all grains together.
fn assert_bars(lines: &[String]) {
    let count = |word: Option<&str>| word.unwrap().replace(',', "").parse::<u64>().unwrap();
    let compared = lines.iter().find(|line| line.ends_with("compared, 0 differ")).unwrap();
    let mut words = compared.split_whitespace();
    let grains = count(words.next()) + count(words.nth(2));
    let title = "Grains by silo, placed by activation_count";
    let before = lines.iter().position(|line| line.starts_with("Grains by silo")).unwrap();
    assert!(lines[before].contains("; an equal share is "), "{lines:?}");
    let kill = lines.iter().position(|line| line.contains("(SIGKILL)")).unwrap();
    assert_eq!(before + 4, kill, "three bars, then the kill: {lines:?}");
    let at = lines.iter().position(|line| line == title).unwrap();
    let bars: Vec<_> = lines[at + 1..].iter().map(|l| l.split_whitespace()).collect();
    let names: Vec<_> = bars.iter().filter_map(|words| words.clone().next()).collect();
    assert_eq!(names, ["a", "b", "d"], "{lines:?}");
    assert_eq!(bars.into_iter().map(|mut words| count(words.nth(1))).sum::<u64>(), grains);
}

#[test]
fn a_small_replay_survives_a_kill_with_exact_totals() {
    let flags = ["demo", "--quick", "20000", "--seed", "2", "--placement", "activation_count"];
    let mut demo = Process::start(&flags);
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
    assert_bars(&lines);
    assert_all_gone(&silos);
}

#[test]
fn a_small_replay_survives_a_drain_with_exact_totals_and_without_a_failed_call() {
    let mut demo = Process::start(&["demo", "--quick", "20000", "--seed", "1", "--drain"]);
    let lines = demo.rest();
    let (status, said) = demo.end();
    let all = lines.join("\n");
    assert!(status.success(), "{status}: {said}\n{all}");
    for part in [
        "half way: silo b is drained",
        "silo b is empty, and stops",
        " answered, 0 failed and were repeated",
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
