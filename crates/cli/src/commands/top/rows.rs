//! The views, and their rows.

use std::time::Duration;

use emmer::admin::GrainName;
use emmer::console::{
    HotRow, MethodRow, Picture, QueueRow, ReminderRow, SiloOwn, SiloRow, TurnRow, TypeRow, Wants,
};
use emmer::tables::{SiloAddress, SiloStatus, Timestamp};

use super::sort::Cell;
use crate::text::{self, plain};

/// A view of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Silos,
    Types,
    Methods,
    Hot,
    Turns,
    Queues,
    Reminders,
    Events,
}

impl View {
    pub(super) const ALL: [Self; 8] = [
        Self::Silos,
        Self::Types,
        Self::Methods,
        Self::Hot,
        Self::Turns,
        Self::Queues,
        Self::Reminders,
        Self::Events,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Silos => "Silos",
            Self::Types => "Types",
            Self::Methods => "Methods",
            Self::Hot => "Hot keys",
            Self::Turns => "Turns",
            Self::Queues => "Queues",
            Self::Reminders => "Reminders",
            Self::Events => "Events",
        }
    }

    /// The parts of the picture that it shows.
    pub(super) const fn wants(self) -> Wants {
        let mut wants = Wants {
            types: false,
            methods: false,
            hot: false,
            turns: false,
            queues: false,
            reminders: false,
        };
        match self {
            Self::Silos | Self::Events => {}
            Self::Types => wants.types = true,
            Self::Methods => wants.methods = true,
            Self::Hot => wants.hot = true,
            Self::Turns => wants.turns = true,
            Self::Queues => wants.queues = true,
            Self::Reminders => wants.reminders = true,
        }
        wants
    }

    pub(super) const fn head(self) -> &'static [&'static str] {
        match self {
            Self::Silos => &[
                "SILO",
                "NAME",
                "STATUS",
                "VIEW",
                "CPU",
                "MEM",
                "GRAINS",
                "TURNS/S",
                "WAIT",
                "SUSP",
                "HELD",
                "REFUSED/S",
                "UP",
            ],
            Self::Types => &["TYPE", "SILOS", "ACTIVE", "MOST", "BUSY", "NEW/S", "FAILED"],
            Self::Methods => {
                &["TYPE", "METHOD", "CALLS/S", "TIME", "P50", "P99", "ERRORS/S", "FAILED/S"]
            }
            Self::Hot => &["TYPE", "KEY", "SILO", "CALLS/S", "TIME"],
            Self::Turns => &["TYPE", "KEY", "METHOD", "SILO", "AGE", "CALLER", "WAITS FOR"],
            Self::Queues => &["TYPE", "KEY", "SILO", "WAITING"],
            Self::Reminders => &["TYPE", "KEY", "NAME", "SILO", "DUE", "FAILED", "FIRED", "MISSED"],
            Self::Events => &["TIME", "SILO", "NAME", "CHANGE"],
        }
    }

    /// The column that it is sorted by at first.
    pub(super) const fn first_sort(self) -> usize {
        match self {
            Self::Silos => 1,
            Self::Types | Self::Methods => 2,
            Self::Hot | Self::Queues => 3,
            Self::Turns | Self::Reminders => 4,
            Self::Events => 0,
        }
    }
}

/// The thing that a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Silo(SiloAddress),
    Grain(GrainName),
    Nothing,
}

/// How much a row matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Calm,
    /// It is over, or not there.
    Gone,
    /// It needs a look.
    Warning,
}

/// A row of a view.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) target: Target,
    pub(super) mood: Mood,
}

impl Row {
    /// Returns true if the row has the text, in any cell.
    pub(super) fn has(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.cells.iter().any(|cell| cell.text.to_lowercase().contains(&text))
    }
}

/// The rows of a view.
pub(super) fn rows(view: View, picture: &Picture) -> Vec<Row> {
    let named = |silo: &SiloAddress| {
        let row = picture.silos.iter().find(|row| row.silo == *silo);
        match row.map(|row| row.name.as_str()).filter(|name| !name.is_empty()) {
            Some(name) => plain(name),
            None => silo.to_string(),
        }
    };
    match view {
        View::Silos => picture.silos.iter().map(|row| silo(row, picture.view)).collect(),
        View::Types => picture.types.iter().map(type_row).collect(),
        View::Methods => picture.methods.iter().map(method).collect(),
        View::Hot => hot(picture, &named),
        View::Turns => {
            let held = picture.threads.iter().map(|(at, held)| Row {
                cells: vec![
                    Cell::text("-"),
                    Cell::text(held.grain.as_deref().map_or_else(|| "?".to_owned(), plain)),
                    Cell::text(held.method.clone()),
                    Cell::text(named(at)),
                    span(held.held_ms),
                    Cell::text("-"),
                    Cell::text(format!("nothing: it holds thread {}", plain(&held.thread))),
                ],
                target: Target::Nothing,
                mood: Mood::Warning,
            });
            picture.turns.iter().map(|row| turn(row, &named)).chain(held).collect()
        }
        View::Queues => picture.queues.iter().map(|row| queue(row, &named)).collect(),
        View::Reminders => picture.reminders.iter().map(|row| reminder(row, &named)).collect(),
        View::Events => {
            let row = |event: &emmer::console::Event| Row {
                cells: vec![
                    Cell::number(clock(event.at_ms), number(event.at_ms.unsigned_abs())),
                    Cell::text(event.silo.to_string()),
                    Cell::text(plain(&event.name)),
                    Cell::text(event.words.clone()),
                ],
                target: Target::Silo(event.silo),
                mood: match event.words.as_str() {
                    "is dead" => Mood::Warning,
                    words if words.starts_with("is suspected") => Mood::Warning,
                    _ => Mood::Calm,
                },
            };
            picture.events.iter().map(row).collect()
        }
    }
}

fn silo(row: &SiloRow, newest: u64) -> Row {
    let suspects = row.suspected_by.len();
    let is_dead = row.status == SiloStatus::Dead;
    let mut status = row.status.to_string();
    if !row.duty.is_full() && !is_dead {
        status = format!("{status}, {}", row.duty.name().to_lowercase());
    }
    if suspects > 0 && !is_dead {
        status = format!("{status}, suspected by {suspects}");
    }
    let mut cells =
        vec![Cell::text(row.silo.to_string()), Cell::text(plain(&row.name)), Cell::text(status)];
    let mut mood = if is_dead { Mood::Gone } else { Mood::Calm };
    match &row.own {
        Some(own) => {
            cells.extend(own_cells(own));
            let is_ill = own.held_threads > 0 || own.refused_per_second > 0.0;
            let is_behind = own.view + 1 < newest;
            if suspects > 0 || is_ill || is_behind || own.readiness != "ready" {
                mood = Mood::Warning;
            }
        }
        None => {
            cells.extend((0..10).map(|_| Cell::number("-".to_owned(), -1.0)));
            if row.status == SiloStatus::Active {
                mood = Mood::Warning;
            }
        }
    }
    Row { cells, target: Target::Silo(row.silo), mood }
}

fn own_cells(own: &SiloOwn) -> [Cell; 10] {
    let percent = |value: Option<u8>| match value {
        Some(value) => Cell::number(format!("{value} %"), f64::from(value)),
        None => Cell::number("-".to_owned(), -1.0),
    };
    let memory = match own.memory_bytes {
        Some(bytes) => Cell::number(format!("{} MiB", bytes >> 20), number(bytes)),
        None => percent(own.memory_percent),
    };
    [
        count(own.view),
        percent(own.cpu_percent),
        memory,
        count(own.activations),
        rate(own.turns_per_second),
        count(own.waiting),
        count(own.suspended),
        count(u64::from(own.held_threads)),
        rate(own.refused_per_second),
        span(own.up_ms),
    ]
}

fn type_row(row: &TypeRow) -> Row {
    let cells = vec![
        Cell::text(row.grain_type.clone()),
        count(u64::from(row.silos)),
        count(row.activations),
        count(row.most),
        count(row.busy),
        rate(row.activated_per_second),
        count(row.failed),
    ];
    Row { cells, target: Target::Nothing, mood: Mood::Calm }
}

fn method(row: &MethodRow) -> Row {
    let latency = |ns: Option<u64>| match ns {
        Some(ns) => Cell::number(short(ns), number(ns)),
        None => Cell::number("-".to_owned(), -1.0),
    };
    let cells = vec![
        Cell::text(row.grain_type.clone()),
        Cell::text(row.method.clone()),
        rate(row.calls_per_second),
        Cell::number(format!("{:.0} %", row.share * 100.0), row.share),
        latency(row.p50_ns),
        latency(row.p99_ns),
        rate(row.own_errors_per_second),
        rate(row.failures_per_second),
    ];
    let mood = if row.failures_per_second > 0.0 { Mood::Warning } else { Mood::Calm };
    Row { cells, target: Target::Nothing, mood }
}

/// The grains of both lists, each once.
fn hot(picture: &Picture, named: &impl Fn(&SiloAddress) -> String) -> Vec<Row> {
    let same =
        |a: &HotRow, b: &HotRow| a.silo == b.silo && a.grain_type == b.grain_type && a.key == b.key;
    let find = |list: &[HotRow], row: &HotRow| {
        list.iter().find(|other| same(other, row)).map(|other| other.per_second)
    };
    let only_busy = picture.busy.iter().filter(|row| find(&picture.called, row).is_none());
    let all = picture.called.iter().chain(only_busy);
    let row = |row: &HotRow| {
        let calls = find(&picture.called, row);
        let busy = find(&picture.busy, row);
        let cells = vec![
            Cell::text(row.grain_type.clone()),
            Cell::text(plain(&row.key)),
            Cell::text(named(&row.silo)),
            calls.map_or_else(none, rate),
            // Nanoseconds of turns in a second, as a share of one processor.
            busy.map_or_else(none, |busy| Cell::number(format!("{:.1} %", busy / 1e7), busy)),
        ];
        Row { cells, target: grain(&row.grain_type, &row.id), mood: Mood::Calm }
    };
    all.map(row).collect()
}

fn turn(row: &TurnRow, named: &impl Fn(&SiloAddress) -> String) -> Row {
    let turn = &row.turn;
    let waits: Vec<_> = turn.waits_for.iter().map(|title| plain(title)).collect();
    let cells = vec![
        Cell::text(turn.grain_type.clone()),
        Cell::text(plain(&turn.key.to_string())),
        Cell::text(turn.method.clone()),
        Cell::text(named(&row.silo)),
        span(turn.age_ms),
        Cell::text(turn.caller.as_deref().map_or_else(|| "a client".to_owned(), plain)),
        Cell::text(waits.join(", ")),
    ];
    let mood = if turn.age_ms >= 30_000 { Mood::Warning } else { Mood::Calm };
    Row { cells, target: grain(&turn.grain_type, &turn.key), mood }
}

fn queue(row: &QueueRow, named: &impl Fn(&SiloAddress) -> String) -> Row {
    let cells = vec![
        Cell::text(row.grain_type.clone()),
        Cell::text(plain(&row.key)),
        Cell::text(named(&row.silo)),
        count(u64::from(row.waiting)),
    ];
    Row { cells, target: grain(&row.grain_type, &row.id), mood: Mood::Calm }
}

fn reminder(row: &ReminderRow, named: &impl Fn(&SiloAddress) -> String) -> Row {
    let due = &row.due;
    let late = due.in_ms.is_some_and(|ms| ms < -1_000);
    let when = match due.in_ms {
        None => none(),
        Some(ms) => {
            let span = text::span(Duration::from_millis(ms.unsigned_abs()));
            let words = if ms < 0 { format!("{span} late") } else { format!("in {span}") };
            // The latest first.
            let ahead = number(ms.unsigned_abs());
            Cell::number(words, if ms < 0 { ahead } else { -ahead })
        }
    };
    let cells = vec![
        Cell::text(due.grain_type.clone()),
        Cell::text(plain(&due.key.to_string())),
        Cell::text(plain(&due.name)),
        Cell::text(named(&row.silo)),
        when,
        count(u64::from(due.failed)),
        count(due.fired),
        count(due.missed),
    ];
    let mood = if late || due.failed > 0 { Mood::Warning } else { Mood::Calm };
    Row { cells, target: grain(&due.grain_type, &due.key), mood }
}

fn grain(grain_type: &str, key: &emmer::GrainKey) -> Target {
    Target::Grain(GrainName { grain_type: grain_type.to_owned(), key: key.clone() })
}

fn none() -> Cell {
    Cell::number("-".to_owned(), -1.0)
}

fn count(count: u64) -> Cell {
    Cell::number(text::grouped(count), number(count))
}

fn span(ms: u64) -> Cell {
    Cell::number(text::span(Duration::from_millis(ms)), number(ms))
}

/// A rate with three digits that count.
fn rate(rate: f64) -> Cell {
    let shown = match rate {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{small:.1}"),
        large => text::grouped(whole(large)),
    };
    Cell::number(shown, rate)
}

/// Nanoseconds in the unit that fits.
fn short(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.1} s", number(ns) / 1e9),
    }
}

/// `14:03:07`, in UTC.
fn clock(at_ms: i64) -> String {
    let text = Timestamp::from_millis(at_ms).to_string();
    text.split_once('T').map_or_else(|| text.clone(), |(_, time)| time.chars().take(8).collect())
}

#[expect(clippy::cast_precision_loss, reason = "for people, who read three digits")]
fn number(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is not negative")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}
