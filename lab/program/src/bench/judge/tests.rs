//! The judge, on small logs.

use super::*;

const MS: u64 = 1_000_000;

/// Books with lines of `activation turn part kind thread begin end`, times in milliseconds, of
/// grain 1.
fn book(silos: &[&[&str]]) -> (Book, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::default();
    for (number, lines) in silos.iter().enumerate() {
        let path = dir.path().join(format!("s{number}"));
        let lines: String = lines.iter().map(|line| format!("1 {line}000000\n")).collect();
        let lines = lines.replace("ms ", "000000 ");
        std::fs::write(&path, lines + "end 0\n").unwrap();
        book.open(&format!("s{number}"), path);
    }
    book.read().unwrap();
    (book, dir)
}

#[test]
fn one_after_the_other_is_clean() {
    let (mut book, _dir) = book(&[
        &["1 1 0 activate 0 10ms 11", "1 2 0 alone 0 20ms 21", "1 2 1 alone 0 30ms 31"],
        &["1 1 0 activate 0 40ms 41"],
    ]);
    book.silent(0, 35 * MS);
    let verdict = book.judge(1_000 * MS);
    assert_eq!((verdict.grains, verdict.pieces, verdict.stale(), verdict.early), (1, 4, 0, 0));
    assert_eq!(book.active(0, 35 * MS, Duration::from_millis(10)), [1]);
    assert_eq!(book.active(0, 45 * MS, Duration::from_millis(10)), [0; 0]);
    assert_eq!(book.moved(0, 35 * MS, &[1, 2]), [Duration::from_millis(5)]);
    assert_eq!((book.turns(0), book.turns_since(0, 25 * MS), book.lost(1)), (1, 1, Some(0)));
    assert_eq!(book.judge(1_000 * MS), Verdict::default(), "nothing is judged twice");
}

#[test]
fn a_turn_that_goes_on_is_stale_once() {
    let (mut book, _dir) = book(&[
        &[
            "1 1 0 activate 0 10ms 11",
            "1 2 0 alone 0 20ms 21",
            "1 2 1 alone 0 50ms 51",
            "1 2 2 alone 0 60ms 61",
        ],
        &["1 1 0 activate 0 40ms 41"],
    ]);
    let verdict = book.judge(u64::MAX);
    assert_eq!((verdict.stale_turns, verdict.stale_hooks, verdict.early), (1, 0, 1));
    assert_eq!(verdict.worst, Duration::from_millis(21));
    assert!(verdict.told[0].contains("went on"), "{:?}", verdict.told);
}

#[test]
fn a_hook_in_the_middle_and_a_twin_on_one_silo_are_stale() {
    let (mut book, _dir) = book(&[&[
        "1 1 0 activate 0 10ms 11",
        "1 1 1 activate 0 45ms 46",
        "2 5 0 activate 1 40ms 42",
    ]]);
    let verdict = book.judge(u64::MAX);
    assert_eq!((verdict.stale_turns, verdict.stale_hooks, verdict.early), (0, 1, 1));
}

#[test]
fn a_stopped_process_is_forgiven_one_turn_for_each_thread() {
    let lines: &[&[&str]] = &[
        &[
            "1 1 0 activate 0 10ms 11",
            "1 2 0 alone 0 20ms 101",
            "1 3 0 instant 1 101ms 102",
            "1 4 0 instant 1 103ms 104",
        ],
        &["1 1 0 activate 0 40ms 41"],
    ];
    let (mut woken, _dir) = book(lines);
    woken.silent(0, 30 * MS);
    woken.woken(0, 100 * MS);
    let verdict = woken.judge(u64::MAX);
    assert_eq!((verdict.caught, verdict.stale_turns), (2, 1));
    assert_eq!(book(lines).0.judge(u64::MAX).stale_turns, 3);
}

#[test]
fn an_activation_is_early_while_another_lives_though_nothing_ran_at_once() {
    let first = ["1 1 0 activate 0 10ms 11", "1 2 0 instant 0 20ms 21"];
    let second: &[&str] = &["1 1 0 activate 0 40ms 41"];
    let verdict = book(&[&first, second]).0.judge(u64::MAX);
    assert_eq!((verdict.stale(), verdict.early), (0, 1));
    let left = [first[0], first[1], "1 3 0 deactivate 0 30ms 31"];
    assert_eq!(book(&[&left, second]).0.judge(u64::MAX).early, 0);
}

#[test]
fn what_a_silent_silo_activates_is_stale_not_what_the_others_run() {
    let (mut book, _dir) = book(&[
        &["1 1 0 activate 0 10ms 11", "1 2 0 instant 0 50ms 51", "1 3 0 instant 0 60ms 61"],
        &["1 1 0 activate 0 40ms 41", "1 2 0 instant 0 55ms 56"],
    ]);
    book.silent(1, 5 * MS);
    let verdict = book.judge(u64::MAX);
    assert_eq!((verdict.stale_turns, verdict.stale_hooks, verdict.early), (1, 1, 1));
    assert_eq!(verdict.worst, Duration::from_millis(46));
}

#[test]
fn a_line_that_is_not_whole_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut book = Book::default();
    book.open("s", path.clone());
    book.read().unwrap();
    std::fs::write(&path, "1 1 1 0 activate 0 10 11\n1 1 2 0 al").unwrap();
    book.read().unwrap();
    assert_eq!((book.judge(u64::MAX).pieces, book.lost(0)), (1, None));
    std::fs::write(&path, "1 1 1 0 activate 0 10 11\n1 1 2 0 alone 0 12 13\nend 3\n").unwrap();
    book.read().unwrap();
    assert_eq!((book.judge(u64::MAX).pieces, book.lost(0)), (1, Some(3)));
    std::fs::write(&path, "what").unwrap();
    book.read().unwrap();
}
