//! `emmer reminders`: the reminders table as an operator wants to see it.

mod json;
mod table;

use emmer::config::ConfigArgs;
use emmer::store::{GrainRef, ReminderTable, Scanned, StoreErrorKind, StoredReminder};
use emmer::tables::{ClusterId, Timestamp};

use super::output::{Format, show};
use super::store::{self, ServiceArgs};
use crate::exit::{Failure, Result};
use crate::process::{now, runtime};

/// The flags of `emmer reminders`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// Only those of one grain, as the column GrainReference has it: thermostat/s.attic
    #[arg(long, value_name = "GRAIN", conflicts_with = "range")]
    grain: Option<GrainRef>,
    /// Only those in a range of the ring: after the first hash, up to and including the second, in
    /// hexadecimal digits, as in 7FFFFFFF..BFFFFFFF; around, where the first is the larger one
    #[arg(long, value_name = "HASH..HASH", value_parser = parse_range)]
    range: Option<(u32, u32)>,
    /// Maximum reminders to show, those that are due first
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// A table for people, or one JSON document (docs/reminders.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Maximum reminders to read.
const READ_MAX: usize = 1_000_000;

/// One reading of the table, with its time.
#[derive(Clone, Debug)]
struct Reading {
    service: String,
    store: String,
    /// Reminders, those that are due first at the front.
    reminders: Vec<StoredReminder>,
    /// The number of all that were found, those that are not shown included.
    count: usize,
    /// There are more than were read.
    is_cut: bool,
    /// Rows that cannot be understood, and why.
    refused: Vec<String>,
    at: Timestamp,
}

fn parse_range(text: &str) -> std::result::Result<(u32, u32), String> {
    let both = text.split_once("..").and_then(|(after, through)| {
        let hash = |text: &str| u32::from_str_radix(text, 16).ok();
        Some((hash(after)?, hash(through)?))
    });
    both.ok_or_else(|| {
        "expected two hashes of up to eight hexadecimal digits, as in 7FFFFFFF..BFFFFFFF".to_owned()
    })
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let (url, service) = args.service.settle(&args.config, log)?;
    let reading = runtime()?.block_on(async {
        let opened = store::open_existing(&url).await?;
        let place = opened.describe();
        let table = ReminderTable::new(opened, service.clone(), service.clone());
        read(&table, &service, place, args.grain.as_ref(), args.range, args.limit).await
    })?;
    show(args.format, || table::print(&reading), &json::Document::of(&reading))
}

async fn read(
    table: &ReminderTable,
    service: &ClusterId,
    store: String,
    grain: Option<&GrainRef>,
    range: Option<(u32, u32)>,
    limit: usize,
) -> Result<Reading> {
    let found = match grain {
        Some(grain) => {
            table.of_grain(grain.id()).await.map(|found| Scanned { found, ..Scanned::default() })
        }
        None => {
            let (after, through) = range.unwrap_or((0, 0));
            table.in_range(after, through, READ_MAX).await
        }
    };
    let mut found = match found {
        Ok(found) => found,
        // No silo ever used this store.
        Err(error) if error.kind == StoreErrorKind::NotFound => Scanned::default(),
        Err(error) => return Err(Failure::store(error)),
    };
    let count = found.found.len();
    found.found.sort_by_key(|one| one.reminder.next().map_or(i64::MAX, |(_, at)| at.as_millis()));
    found.found.truncate(limit);
    Ok(Reading {
        service: service.to_string(),
        store,
        reminders: found.found,
        count,
        is_cut: found.is_full,
        refused: found.refused.iter().map(ToString::to_string).collect(),
        at: now(),
    })
}

#[cfg(test)]
pub(super) mod fixture {
    //! One reminder of each kind.

    use std::time::Duration;

    use emmer::reminders::MissedPolicy;
    use emmer::store::{Reminder, Schedule};

    use super::*;

    pub(super) fn reading() -> Reading {
        let at = Timestamp::from_millis(1_795_265_085_000);
        let grain: GrainRef = "thermostat/s.attic".parse().unwrap();
        let reminder = |name: &str, schedule, fired| StoredReminder {
            reminder: Reminder {
                grain: grain.id().clone(),
                grain_type: "thermostat".into(),
                name: name.into(),
                schedule,
                missed: MissedPolicy::Once,
                fired,
                last_fired: (fired > 0).then_some(at - Duration::from_secs(30)),
                missed_count: fired / 2,
            },
            etag: "e".into(),
        };
        let minute = Some(Duration::from_secs(60));
        let start = at - Duration::from_secs(90);
        let hourly = Schedule { start, period: minute, end: None };
        let once = Schedule { start: at + Duration::from_secs(7_200), period: None, end: None };
        Reading {
            service: "dev".into(),
            store: "memory://".into(),
            reminders: vec![reminder("report", hourly, 2), reminder("once", once, 0)],
            count: 2,
            is_cut: false,
            refused: Vec::new(),
            at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_two_hashes() {
        assert_eq!(parse_range("0..FFFFFFFF"), Ok((0, u32::MAX)));
        assert_eq!(parse_range("c0000000..1"), Ok((0xc000_0000, 1)));
        for bad in ["", "..", "0", "0..100000000", "x..1", "-1..2"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
