//! What the book says an administrator types is run as it stands there.

use std::process::{Command, Stdio};
use std::time::Duration;

use emmer_core::reminder::{MissedPolicy, Reminder, Schedule};
use emmer_core::{GrainId, GrainTypeId, Timestamp};
use emmer_store::SiloTable;
use emmer_store::history::{HistoryTable, Recorded};
use emmer_store::metrics::{MetricsTable, Shared, SiloMetrics};
use emmer_store::reminders::{ReminderTable, ReminderWrite};
use emmer_store::silos::SILO_INSTANCES;

use super::Store;
use super::rows::{cluster, silo_with_every_column};

/// The first block of shell commands on a page of the book.
///
/// # Panics
/// The page has none.
pub fn first_command(page: &str) -> &str {
    let (_, rest) = page.split_once("```sh\n").expect("the page has no block of shell commands");
    let (command, _) = rest.split_once("\n```").expect("the block does not end");
    command
}

/// The first command on the store's page lists the silos of the cluster `prod`, with every column
/// of the table description. `run` gets the command and returns its output at the server of `url`.
///
/// # Panics
/// It does not.
pub async fn lists_the_silos(
    store: Store,
    url: &str,
    page: &str,
    run: impl FnOnce(&str) -> String,
) {
    let table = SiloTable::new(store.patient(url).await, cluster("prod"));
    table.ensure().await.unwrap();
    let version = table.read_version().await.unwrap();
    table.commit(&version, vec![silo_with_every_column()], vec![]).await.unwrap();
    let shown = tokio::task::block_in_place(|| run(first_command(page)));
    let lower = shown.to_ascii_lowercase();
    let keys = [SILO_INSTANCES.partition_key, SILO_INSTANCES.row_key].into_iter();
    for name in keys.chain(SILO_INSTANCES.columns.iter().map(|column| column.name)) {
        assert!(
            lower.contains(&name.to_ascii_lowercase()),
            "no {name} in what the command prints:\n{shown}"
        );
    }
    for value in ["127.0.0.1-11111-1", "Active", "VersionRow", "1970-01-01"] {
        assert!(shown.contains(value), "no {value} in what the command prints:\n{shown}");
    }
}

/// The command on the page of reminders that begins with `tool` shows the reminder of a grain with
/// these columns. `run` gets the command and returns its output at the server of `url`.
///
/// # Panics
/// It does not.
pub async fn shows_the_reminders(
    store: Store,
    url: &str,
    tool: &str,
    run: impl FnOnce(&str) -> String,
) {
    let page = include_str!("../../../../docs/reminders.md");
    let mut blocks = page.split("```sh\n").skip(1);
    let block = blocks.find(|block| block.starts_with(tool)).expect("the page has the command");
    let (command, _) = block.split_once("\n```").expect("the block does not end");
    let (service, kind) = (cluster("prod"), "thermostat");
    let table = ReminderTable::new(store.patient(url).await, service.clone(), service);
    table.ensure().await.unwrap();
    let reminder = Reminder {
        grain: GrainId::new(GrainTypeId::of(kind), "attic"),
        grain_type: kind.into(),
        name: "it's \"due\"".into(),
        schedule: Schedule {
            start: Timestamp::from_millis(1_795_265_085_000),
            period: Some(Duration::from_secs(3_600)),
            end: None,
        },
        missed: MissedPolicy::Once,
        fired: 7,
        last_fired: Some(Timestamp::from_millis(1_795_286_685_000)),
        missed_count: 2,
    };
    let written = table.upsert(&reminder).await.unwrap();
    assert!(matches!(written, ReminderWrite::Written(_)), "{written:?}");
    let shown = tokio::task::block_in_place(|| run(command));
    let lower = shown.to_ascii_lowercase();
    let columns = [
        "DueAt",
        "GrainReference",
        "ReminderName",
        "Period",
        "Fired",
        "LastFiredAt",
        "MissedCount",
    ];
    for name in columns {
        let name = name.to_ascii_lowercase();
        assert!(lower.contains(&name), "no {name} in what the command prints:\n{shown}");
    }
    for value in ["thermostat/s.attic", "it's", "3600000", "2026-11-21"] {
        assert!(shown.contains(value), "no {value} in what the command prints:\n{shown}");
    }
}

/// The command on the page of observability that begins with `tool` shows a change of the
/// membership and the key figures of a silo. `run` gets the command and returns its output at the
/// server of `url`.
///
/// # Panics
/// It does not.
pub async fn shows_the_records(
    store: Store,
    url: &str,
    tool: &str,
    run: impl FnOnce(&str) -> String,
) {
    let page = include_str!("../../../../docs/records.md");
    let mut blocks = page.split("```sh\n").skip(1);
    let block = blocks.find(|block| block.starts_with(tool)).expect("the page has the command");
    let (command, _) = block.split_once("\n```").expect("the block does not end");
    let at = Timestamp::from_millis(1_795_265_085_000);
    let opened = store.patient(url).await;
    let history = HistoryTable::new(opened.clone(), cluster("prod"));
    history.ensure().await.unwrap();
    let recorded = Recorded {
        version: 7,
        number: 0,
        at,
        writer: "10.0.0.1:11111:7".into(),
        silo: "10.0.0.2:11111:8".into(),
        name: "it's \"b\"".into(),
        host: "host".into(),
        change: "died".into(),
        evidence: vec!["10.0.0.1:11111:7: it does not answer".into()],
    };
    history.append(&[recorded]).await.unwrap();
    let metrics = MetricsTable::new(opened, cluster("prod"));
    metrics.ensure().await.unwrap();
    let shared = Shared { memory_bytes: Some(123_456_789), at, ..Shared::default() };
    let silo = SiloMetrics { shared, name: "a".into(), activations: 4_711, ..Default::default() };
    metrics.write_silo(&silo).await.unwrap();
    let shown = tokio::task::block_in_place(|| run(command));
    let lower = shown.to_ascii_lowercase();
    for name in ["Change", "Evidence", "Writer", "MembershipVersion", "MemoryUsage", "Activations"]
    {
        let name = name.to_ascii_lowercase();
        assert!(lower.contains(&name), "no {name} in what the command prints:\n{shown}");
    }
    for value in ["died", "it's", "it does not answer", "123456789", "4711", "2026-11-21"] {
        assert!(shown.contains(value), "no {value} in what the command prints:\n{shown}");
    }
}

/// Output of a command.
///
/// # Panics
/// It fails.
pub fn output_of(command: &mut Command) -> String {
    let ended = command.stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8_lossy(&ended.stdout).into_owned()
}
