//! Messages and options from outside: sizes on the wire, round trips, files.

use std::sync::Arc;

use emmer_core::{Duty, SiloEntry, SiloStatus, TableVersion, Timestamp, Vote};

use crate::delta::Delta;
use crate::intent::Intent;
use crate::view::View;
use crate::world::address;
use crate::{Config, Message};

fn encode(message: &Message) -> Vec<u8> {
    rmp_serde::to_vec_named(message).unwrap()
}

fn round_trip(message: &Message) -> usize {
    let bytes = encode(message);
    assert_eq!(&rmp_serde::from_slice::<Message>(&bytes).unwrap(), message);
    bytes.len()
}

fn row(i: u16, status: SiloStatus) -> Arc<SiloEntry> {
    let start = Timestamp::from_millis(1_795_265_085_000);
    let mut row =
        SiloEntry::new(address(10_000 + i, 1_795_265_085_000_000 + u64::from(i)), status, start);
    row.host_name = format!("worker-{i:04}.eu-west.example").into();
    row.instance_name = format!("silo-{i:04}").into();
    row.role_name = "flights".into();
    row.proxy_port = 30_000;
    Arc::new(row)
}

fn table(number: u64) -> TableVersion {
    TableVersion {
        number,
        etag: format!("\"0x8DC{number:012}\"").into(),
        ..TableVersion::default()
    }
}

#[test]
fn probes_are_small() {
    let probe = Message::Probe { seq: 1 << 40, version: 1 << 20, misses: 0, echo: u64::MAX };
    let ack = Message::Ack { seq: 1 << 40, version: 1 << 20, stamp: u64::MAX };
    assert!(round_trip(&probe) <= 40 && round_trip(&ack) <= 40);
    // Ten probes a second each way, and their answers: well below 2 KB/s.
    assert!(20 * (round_trip(&probe) + round_trip(&ack)) < 1_600);
}

#[test]
fn the_largest_commit_travels_in_less_than_twenty_kilobytes() {
    let base = View::new(table(7), Vec::new());
    let rows: Vec<_> = (0..99).map(|i| row(i, SiloStatus::Joining)).collect();
    let (delta, view) = Delta::of_commit(&base, table(8), rows, Vec::new(), Vec::new());
    let tree = Message::Tree { root: address(1, 1), delta: Arc::new(delta) };
    let size = round_trip(&tree);
    assert!(size <= 12_000, "{size}");
    let size = round_trip(&Message::Snapshot { view, fading: None });
    assert!(size <= 12_000, "{size}");
}

#[test]
fn every_message_survives_the_wire() {
    let dead = {
        let mut dead = (*row(3, SiloStatus::Dead)).clone();
        dead.votes.push(Vote { voter: address(5, 5), at: Timestamp::from_millis(-1), gone: false });
        Arc::new(dead)
    };
    let base = View::new(table(1), vec![row(1, SiloStatus::Active), row(3, SiloStatus::Active)]);
    let skipped = vec![(address(1, 1), address(2, 2))];
    let (delta, _) = Delta::of_commit(
        &base,
        table(2),
        vec![dead],
        vec![row(1, SiloStatus::Dead).address],
        skipped,
    );
    let delta = Arc::new(delta);
    let (silo, other) = (address(1, 1), address(2, 2));
    let intents = vec![
        Intent::Join(row(9, SiloStatus::Joining)),
        Intent::Activate { silo, checked: 3, missing: vec![other] },
        Intent::Vote {
            target: silo,
            voter: other,
            at: Timestamp::from_millis(5),
            evidence: crate::intent::Evidence::Gone,
        },
        Intent::Withdraw { target: silo, voter: other },
        Intent::Retract { target: silo, voter: other },
        Intent::Status { silo, status: SiloStatus::ShuttingDown },
    ];
    for message in [
        Message::ProbeFor { seq: 1, target: silo, wait_ms: 100 },
        Message::ProbedFor { seq: 1, target: silo, answered: true, score: 2 },
        Message::Seen { stamp: 9 },
        Message::Superseded { by: other },
        Message::Yielded,
        Message::Hush { target: silo, by: other, stamp: 7 },
        Message::Hushed { target: silo, stamp: 7 },
        Message::Write { version: 4, intents, hops: 1 },
        Message::Noted { version: 4 },
        Message::Recheck { version: 4 },
        Message::Reach,
        Message::Reached { through: true },
        Message::Pull { have: 3 },
        Message::Hint { version: 9 },
        Message::Deltas(vec![delta.clone()]),
        Message::Tree { root: silo, delta },
        Message::Obituary { version: 5 },
    ] {
        round_trip(&message);
    }
}

#[test]
fn garbage_is_an_error() {
    for bytes in [&b""[..], b"\xc1", b"\x81\xa1p\x80", b"\x81\xa1s\x81\xa1t\xc0", &[0x81; 4_000]] {
        assert!(rmp_serde::from_slice::<Message>(bytes).is_err());
    }
}

#[test]
fn options_are_written_with_units_and_unknown_ones_refused() {
    let config: Config =
        toml::from_str("probe_period = \"2s\"\nnum_probed_silos = 7\nnum_probe_rings = 7").unwrap();
    assert_eq!((config.probe_period.as_secs(), config.num_probed_silos), (2, 7));
    assert_eq!(config.fan_out, Config::default().fan_out);
    let error = toml::from_str::<Config>("probe_peroid = \"2s\"").unwrap_err().to_string();
    assert!(error.contains("probe_peroid"), "{error}");
    assert!(toml::from_str::<Config>("probe_period = 2").is_err());
    for config in [Config::default(), Config::classic(), Config::fast(), Config::orleans_2026()] {
        config.validate().unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), config);
    }
}

#[test]
fn contradicting_options_are_refused_by_name() {
    let refused = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config.validate().unwrap_err().option
    };
    use std::time::Duration;
    assert_eq!(
        refused(|c| c.num_votes_for_death_declaration = 11),
        "num_votes_for_death_declaration"
    );
    assert_eq!(
        refused(|c| c.num_votes_for_death_declaration = 0),
        "num_votes_for_death_declaration"
    );
    assert_eq!(refused(|c| c.probe_period = Duration::ZERO), "probe_period");
    assert_eq!(refused(|c| c.probe_timeout = Duration::ZERO), "probe_timeout");
    assert_eq!(refused(|c| c.min_probe_timeout = Duration::from_secs(1)), "min_probe_timeout");
    assert_eq!(refused(|c| c.max_probe_timeout = Duration::from_millis(1)), "probe_timeout");
    assert_eq!(refused(|c| c.num_probed_silos = 0), "num_probed_silos");
    assert_eq!(refused(|c| c.num_probe_rings = 99), "num_probe_rings");
    assert_eq!(refused(|c| c.fence_timeout = Duration::from_secs(60)), "fence_timeout");
    assert_eq!(refused(|c| c.table_retry_max = Duration::from_millis(1)), "table_retry_min");
    assert_eq!(
        refused(|c| c.death_vote_expiration_timeout = Duration::from_secs(1)),
        "death_vote_expiration_timeout"
    );
    assert_eq!(refused(|c| c.fan_out = 1), "fan_out");
}

#[test]
fn classic_has_the_numbers_of_the_description() {
    let config = Config::classic();
    assert_eq!((config.num_probed_silos, config.num_missed_probes_limit), (3, 3));
    assert_eq!(config.num_votes_for_death_declaration, 2);
    let secs = |n| std::time::Duration::from_secs(n);
    assert_eq!((config.probe_timeout, config.probe_period), (secs(10), secs(10)));
    assert_eq!(config.death_vote_expiration_timeout, secs(180));
    assert_eq!(config.table_refresh_timeout, secs(60));
    assert_eq!(
        (config.i_am_alive_table_publish_timeout, config.num_missed_table_i_am_alive_limit),
        (secs(300), 2)
    );
    assert_eq!(config.max_join_attempt_time, secs(300));
}

#[test]
fn a_duty_travels_and_costs_nothing_while_it_is_full() {
    let snapshot = |duty| {
        let mut silo = SiloEntry::clone(&row(1, SiloStatus::Active));
        silo.duty = duty;
        let view = Arc::new(View::new(table(7), vec![Arc::new(silo)]));
        (view.digest(), round_trip(&Message::Snapshot { view, fading: None }))
    };
    let (full, cordoned) = (snapshot(Duty::Full), snapshot(Duty::Cordoned));
    assert_ne!(full.0, cordoned.0);
    assert_eq!(full.1 + 1, cordoned.1);
}
