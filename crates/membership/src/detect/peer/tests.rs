//! Knowledge of one silo about another: probes, answers, patience.

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

#[test]
fn patience_is_the_sum_of_the_growing_timeouts() {
    let config = Config::default();
    let mut peer = Peer::new(at(0));
    let mut sum = Duration::ZERO;
    for _ in 0..config.num_missed_probes_limit {
        sum += peer.timeout(&config, 1);
        peer.on_sent(at(0), 1, Duration::ZERO);
        peer.on_miss();
    }
    assert_eq!(sum, config.patience());
    assert!((Duration::from_millis(4_100)..Duration::from_millis(4_200)).contains(&sum), "{sum:?}");
}

#[test]
fn slow_round_trips_lengthen_the_timeout_even_when_their_answers_come_late() {
    let config = Config::default();
    let mut peer = Peer::new(at(0));
    for i in 0..20 {
        peer.on_sent(at(i * 1000), i, Duration::from_millis(200));
        peer.on_miss();
        peer.on_sent(at(i * 1000 + 200), 100 + i, Duration::from_millis(300));
        let longest = peer.longest_sample(&config);
        let answer = peer.on_answer(at(i * 1000 + 400), i, Duration::from_secs(1), 1, longest);
        assert_eq!(answer, Answer::Lives);
    }
    let timeout = peer.timeout(&config, 1);
    assert!(
        timeout >= Duration::from_millis(400) && timeout < Duration::from_millis(600),
        "{timeout:?}"
    );
}

#[test]
fn an_answer_that_a_cut_held_up_hardly_lengthens_the_timeout() {
    let config = Config::default();
    let mut peer = Peer::new(at(0));
    let mut answer = |seq: u64, took: u64| {
        peer.on_sent(at(seq * 5_000), seq, Duration::from_millis(200));
        let longest = peer.longest_sample(&config);
        peer.on_answer(at(seq * 5_000 + took), seq, Duration::from_secs(1), 1, longest);
        peer.timeout(&config, 1)
    };
    assert!((0..20).map(|seq| answer(seq, 1)).all(|timeout| timeout <= config.probe_timeout));
    assert!(answer(20, 3_000) <= config.min_probe_timeout * 5 / 2);
    // A link that is slow from now on is learnt in a few answers.
    assert!((21..29).map(|seq| answer(seq, 3_000)).last() >= Some(Duration::from_secs(3)));
}

#[test]
fn an_unknown_answer_changes_nothing() {
    let mut peer = Peer::new(at(0));
    peer.on_sent(at(0), 1, Duration::from_millis(200));
    peer.on_miss();
    assert_eq!(
        peer.on_answer(at(300), 9, Duration::from_secs(1), 1, Duration::MAX),
        Answer::Unknown
    );
    assert_eq!(peer.misses, 1);
}

/// A peer that answers dials, and whose connections break under every probe, is missed at last.
#[test]
fn a_probe_that_went_with_its_connection_is_sent_again_three_times_in_a_row() {
    let mut peer = Peer::new(at(0));
    peer.on_sent(at(0), 1, Duration::from_millis(200));
    assert!(!peer.repeats_probe(), "its connection is there");
    for round in 0..2 {
        for n in 0..4 {
            let (now, seq) = (at(1_000 * round + 100 * n), 10 * round + n + 2);
            peer.lose_connection(now, false);
            assert_eq!(peer.repeats_probe(), n < 3, "{n}");
            peer.on_sent(now + Duration::from_millis(1), seq, Duration::from_millis(200));
            assert!(!peer.repeats_probe(), "this one is on another connection");
        }
        let answer = peer.on_answer(
            at(1_000 * round + 500),
            10 * round + 5,
            Duration::ZERO,
            1,
            Duration::MAX,
        );
        assert_eq!(answer, Answer::Lives);
        peer.on_sent(at(1_000 * round + 600), 10 * round + 8, Duration::from_millis(200));
    }
}

#[test]
fn after_misses_one_answer_is_not_enough() {
    let second = Duration::from_secs(1);
    let mut peer = Peer::new(at(0));
    for seq in 1..=3 {
        peer.on_sent(at(seq * 200), seq, Duration::from_millis(200));
        peer.on_miss();
    }
    peer.on_sent(at(800), 4, Duration::from_millis(700));
    // Late, and to an earlier probe: the probe in flight stays.
    assert_eq!(peer.on_answer(at(900), 2, second, 2, Duration::MAX), Answer::Counted);
    assert_eq!((peer.misses, peer.deadline), (3, Some(at(1_500))));
    assert_eq!(
        peer.on_answer(at(950), 2, second, 2, Duration::MAX),
        Answer::Unknown,
        "counts once"
    );
    assert_eq!(peer.on_answer(at(1_000), 4, second, 2, Duration::MAX), Answer::Lives);
    assert_eq!((peer.misses, peer.deadline), (0, None));
    // Without misses one answer is enough; after a single miss the next probe follows at once.
    peer.on_sent(at(2_000), 5, Duration::from_millis(200));
    peer.on_miss();
    peer.on_sent(at(2_200), 6, Duration::from_millis(300));
    assert_eq!(peer.on_answer(at(2_201), 6, second, 2, Duration::MAX), Answer::Counted);
    assert_eq!((peer.misses, peer.due()), (1, at(2_201)));
}
