//! Reminders on [`ReminderTable`]: the cases of the original's table tests, and searches by due
//! time.

use std::collections::BTreeSet;
use std::time::Duration;

use emmer_core::reminder::{MissedPolicy, Reminder, Schedule};
use emmer_core::rng::SeededRng;
use emmer_core::{ClusterId, GrainId, GrainKey, GrainTypeId, Timestamp};
use futures_util::future::join_all;

use super::CONNECTIONS;
use super::bench::{Bench, Case, Failure, check, same};
use emmer_store::contract::Etag;
use emmer_store::reminders::{ReminderRemoval, ReminderTable, ReminderWrite, Scanned};

const NOW: Timestamp = Timestamp::from_millis(1_795_265_085_123);
/// More than any case has.
const MANY: usize = 5_000;

fn table(bench: &Bench, connection: usize, service: &str) -> Result<ReminderTable, Failure> {
    let id = |text| ClusterId::new(text).map_err(|e| Failure(e.to_string()));
    Ok(ReminderTable::new(bench.store(connection).clone(), id(service)?, id("prod")?))
}

fn reminder(grain_type: &str, key: impl Into<GrainKey>, name: &str) -> Reminder {
    Reminder {
        grain: GrainId::new(GrainTypeId::of(grain_type), key),
        grain_type: grain_type.into(),
        name: name.into(),
        schedule: Schedule { start: NOW, period: Some(Duration::from_secs(60)), end: None },
        missed: MissedPolicy::Once,
        fired: 0,
        last_fired: None,
        missed_count: 0,
    }
}

async fn upsert(table: &ReminderTable, reminder: &Reminder) -> Result<Etag, Failure> {
    match table.upsert(reminder).await? {
        ReminderWrite::Written(etag) => Ok(etag),
        other => Err(Failure(format!("an upsert that must happen: {other:?}"))),
    }
}

/// Writes all of them, a few at a time.
async fn upsert_all(bench: &Bench, service: &str, all: &[Reminder]) -> Case {
    for some in all.chunks(CONNECTIONS * 4) {
        let written = some.iter().enumerate().map(|(i, reminder)| async move {
            upsert(&table(bench, i, service)?, reminder).await.map(|_| ())
        });
        join_all(written).await.into_iter().collect::<Case>()?;
    }
    Ok(())
}

fn keys_of(scanned: &Scanned) -> Result<BTreeSet<GrainId>, Failure> {
    check!(scanned.refused.is_empty(), "rows that cannot be understood: {:?}", scanned.refused);
    Ok(scanned.found.iter().map(|found| found.reminder.grain.clone()).collect())
}

pub(super) async fn upserts_of_one_row_have_an_etag_each(bench: &Bench) -> Case {
    for key in 0..5u64 {
        let wanted = reminder("Parallel", key, "tick");
        let upserts = (0..5).map(|i| {
            let wanted = &wanted;
            async move { upsert(&table(bench, i, "parallel")?, wanted).await }
        });
        let etags = join_all(upserts).await.into_iter().collect::<Result<BTreeSet<_>, _>>()?;
        same!(etags.len(), 5, "different etags of five upserts");
        let found = table(bench, 0, "parallel")?.read(&wanted.grain, "Parallel", "tick").await?;
        let found = found.ok_or_else(|| Failure("the reminder is not there".into()))?;
        check!(etags.contains(&found.etag), "the row has an etag that no upsert was given");
        same!(found.reminder, wanted, "the row after them");
    }
    Ok(())
}

pub(super) async fn a_reminder_comes_back_and_goes(bench: &Bench) -> Case {
    let (here, there) = (table(bench, 0, "simple")?, table(bench, 1, "simple")?);
    let mut wanted = reminder("Simple", "a/b", "due");
    let (grain, kind) = (wanted.grain.clone(), "Simple");
    same!(there.read(&grain, kind, "due").await?, None, "a reminder never written");
    let first = upsert(&here, &wanted).await?;
    wanted.schedule.period = None;
    wanted.schedule.end = Some(NOW + Duration::from_secs(9));
    (wanted.missed, wanted.fired, wanted.last_fired) = (MissedPolicy::All, 7, Some(NOW));
    wanted.missed_count = 3;
    let second = upsert(&there, &wanted).await?;
    check!(first != second, "an upsert kept the etag");
    let found = here.read(&grain, kind, "due").await?.map(|found| found.reminder);
    same!(found, Some(wanted.clone()), "every column after the second upsert");
    let stale = here.replace(&wanted, &first).await?;
    same!(stale, ReminderWrite::EtagMismatch, "a replace with a stale etag");
    same!(here.insert(&wanted).await?, ReminderWrite::EtagMismatch, "an insert of what is there");
    let ReminderWrite::Written(third) = here.replace(&wanted, &second).await? else {
        return Err(Failure("a replace with the right etag was refused".into()));
    };
    let remove = async |name: &str, etag| there.remove(&grain, kind, name, etag).await;
    same!(remove("due", Some(&second)).await?, ReminderRemoval::EtagMismatch, "a wrong etag");
    same!(remove("dew", Some(&third)).await?, ReminderRemoval::EtagMismatch, "a wrong name");
    check!(here.read(&grain, kind, "due").await?.is_some(), "a refused removal removed");
    same!(remove("due", Some(&third)).await?, ReminderRemoval::Removed, "the right etag");
    same!(remove("due", Some(&third)).await?, ReminderRemoval::EtagMismatch, "a second removal");
    same!(here.read(&grain, kind, "due").await?, None, "a removed reminder");
    Ok(())
}

pub(super) async fn ranges_of_the_ring_are_found(bench: &Bench) -> Case {
    let all: Vec<_> = (0..1_000u64).map(|key| reminder("Ranged", key, "r")).collect();
    upsert_all(bench, "ranged", &all).await?;
    let (table, mut rng) = (table(bench, 0, "ranged")?, SeededRng::new(33));
    let mut ranges = vec![(0, u32::MAX), (0, 0), (u32::MAX, 0)];
    // From a thousandth of the ring to all of it, most of them small.
    ranges.extend((0..1_000).map(|i| {
        let after = (rng.bits() >> 32) as u32;
        let width = (rng.bits() >> 32) as u32 >> if i % 50 == 0 { 0 } else { 6 + i % 5 };
        (after, after.wrapping_add(width))
    }));
    for (after, through) in ranges {
        let is_in = |hash: u32| match after.cmp(&through) {
            std::cmp::Ordering::Less => after < hash && hash <= through,
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => hash > after || hash <= through,
        };
        let wanted: BTreeSet<_> =
            all.iter().filter(|one| is_in(one.hash())).map(|one| one.grain.clone()).collect();
        let found = table.in_range(after, through, MANY).await?;
        check!(!found.is_full, "the scan was cut off");
        check!(keys_of(&found)? == wanted, "the reminders after {after} through {through}");
    }
    Ok(())
}

pub(super) async fn what_is_due_is_found_without_the_rest(bench: &Bench) -> Case {
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for key in 0..200u64 {
        let mut one = reminder("Due", key, "d");
        one.schedule.start = NOW + Duration::from_secs(key);
        others.push(one.clone());
        // The second occurrence is the next one of every second reminder.
        one.fired = key % 2;
        all.push(one);
    }
    upsert_all(bench, "due", &all).await?;
    upsert_all(bench, "due-other", &others).await?;
    let table = table(bench, 2, "due")?;
    let due = |one: &Reminder| one.next().map_or(NOW, |(_, at)| at);
    let of = |wanted: &dyn Fn(&Reminder) -> bool| -> BTreeSet<GrainId> {
        all.iter().filter(|one| wanted(one)).map(|one| one.grain.clone()).collect()
    };
    let everything = table.due((0, u16::MAX >> 4), None, MANY).await?;
    same!(keys_of(&everything)?.len(), all.len(), "all of the ring");
    for bucket in all.iter().map(Reminder::bucket).take(20) {
        for secs in [0, 30, 100, 300] {
            let by = NOW + Duration::from_secs(secs);
            let found = keys_of(&table.due((bucket, bucket), Some(by), MANY).await?)?;
            // Whole seconds: reminders that are due within the second of `by` may be found too.
            let second = by.as_millis().div_euclid(1_000);
            let wanted = of(&|one| {
                one.bucket() == bucket && due(one).as_millis().div_euclid(1_000) <= second
            });
            check!(found == wanted, "due by {secs} s in bucket {bucket}");
        }
        let (low, high) = (bucket.saturating_sub(300), bucket.saturating_add(300).min(4_095));
        let found = keys_of(&table.due((low, high), None, MANY).await?)?;
        let wanted = of(&|one| (low..=high).contains(&one.bucket()));
        check!(found == wanted, "all of the buckets {low} to {high}");
    }
    let few = table.due((0, 4_095), None, 10).await?;
    check!(few.is_full && few.found.len() <= 10, "a scan of at most ten rows: {few:?}");
    Ok(())
}

pub(super) async fn difficult_names_and_keys_are_apart(bench: &Bench) -> Case {
    let table = table(bench, 0, "difficult")?;
    let names = [
        "a", "A", "a-b", "b", "a/b", "\\", "#?_", "it's", "\"", "%2F", "a%", "~", " ", "é", "🛫",
        "\u{1}", "..", "{}",
    ];
    let keys: Vec<GrainKey> =
        vec![1u64.into(), "".into(), "x-a".into(), "x".repeat(1_024).into(), "é/🛫\"'".into()];
    let mut all = Vec::new();
    for key in &keys {
        for (n, name) in (0u64..).zip(names) {
            let mut one = reminder("Odd/ type", key.clone(), name);
            one.missed_count = n;
            all.push(one);
        }
    }
    upsert_all(bench, "difficult", &all).await?;
    for one in &all {
        let found = table.read(&one.grain, &one.grain_type, &one.name).await?;
        same!(found.map(|found| found.reminder), Some(one.clone()), "a difficult reminder");
    }
    for key in &keys {
        let grain = GrainId::new(GrainTypeId::of("Odd/ type"), key.clone());
        let found = table.of_grain(&grain).await?;
        let found: Vec<_> =
            found.into_iter().map(|found| found.reminder.name.to_string()).collect();
        let mut wanted = names.map(str::to_owned).to_vec();
        wanted.sort();
        same!(found, wanted, "the reminders of one grain");
    }
    Ok(())
}
