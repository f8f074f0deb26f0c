//! The table for programs. Field names are stable: docs/reminders.md lists them, and a test holds
//! both together.

use emmer::store::StoredReminder;
use emmer::tables::Timestamp;
use serde::Serialize;

use super::Reading;

/// One reading of the table.
#[derive(Serialize)]
pub(super) struct Document {
    service_id: String,
    store: String,
    read_at: String,
    count: usize,
    reminders: Vec<Reminder>,
    refused: Vec<String>,
}

#[derive(Serialize)]
struct Reminder {
    grain: String,
    grain_type: String,
    key: String,
    name: String,
    hash: String,
    start_at: String,
    period_ms: Option<u64>,
    end_at: Option<String>,
    missed_policy: &'static str,
    due_at: Option<String>,
    fired: u64,
    last_fired_at: Option<String>,
    missed_count: u64,
}

impl Document {
    pub(super) fn of(reading: &Reading) -> Self {
        Self {
            service_id: reading.service.clone(),
            store: reading.store.clone(),
            read_at: reading.at.to_string(),
            count: reading.count,
            reminders: reading.reminders.iter().map(reminder).collect(),
            refused: reading.refused.clone(),
        }
    }
}

fn reminder(one: &StoredReminder) -> Reminder {
    let reminder = &one.reminder;
    let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
    let period = reminder.schedule.period;
    Reminder {
        grain: one.reference(),
        grain_type: reminder.grain_type.to_string(),
        key: reminder.grain.key().to_string(),
        name: reminder.name.to_string(),
        hash: format!("{:08X}", reminder.hash()),
        start_at: reminder.schedule.start.to_string(),
        period_ms: period.map(|period| u64::try_from(period.as_millis()).unwrap_or(u64::MAX)),
        end_at: text(reminder.schedule.end),
        missed_policy: reminder.missed.name(),
        due_at: text(reminder.next().map(|(_, at)| at)),
        fired: reminder.fired,
        last_fired_at: text(reminder.last_fired),
        missed_count: reminder.missed_count,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn fields_are_those_of_the_page() {
        let value = serde_json::to_value(Document::of(&fixture::reading())).unwrap();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reminders.md");
        let page = std::fs::read_to_string(page).unwrap();
        for object in [&value, &value["reminders"][0]] {
            for name in object.as_object().unwrap().keys() {
                assert!(page.contains(&format!("| `{name}` |")), "{name}");
            }
        }
        let first = &value["reminders"][0];
        assert_eq!(first["grain"], "thermostat/s.attic");
        assert_eq!((first["period_ms"].as_u64(), first["fired"].as_u64()), (Some(60_000), Some(2)));
        assert!(value["reminders"][1]["period_ms"].is_null());
    }
}
