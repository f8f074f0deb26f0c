//! Grain states on [`StateTable`].

use std::sync::Arc;

use emmer_core::{ClusterId, GrainKey, Timestamp};
use futures_util::future::join_all;

use super::bench::{Bench, Case, Failure, check, same, yield_now};
use emmer_store::contract::Etag;
use emmer_store::keys;
use emmer_store::silos::VERSION_ROW;
use emmer_store::state::{ClearOutcome, GRAIN_STATE, StateSlot, StateTable, WriteOutcome};

const NOW: Timestamp = Timestamp::from_millis(1_795_265_085_123);

pub(super) fn states(bench: &Bench, connection: usize) -> Result<StateTable, Failure> {
    let service = ClusterId::new("service").map_err(|e| Failure(e.to_string()))?;
    Ok(StateTable::new(bench.store(connection).clone(), service))
}

async fn write(
    slot: &StateSlot,
    expected: Option<&Etag>,
    payload: &[u8],
) -> Result<WriteOutcome, Failure> {
    Ok(slot.write(expected, "raw", payload.into(), NOW).await?)
}

/// Writes a state that no other writer changes. A write whose answer was lost is looked up, as the
/// contract asks of every caller: it happened, or it is tried once more.
async fn must_write(
    slot: &StateSlot,
    expected: Option<&Etag>,
    payload: &[u8],
) -> Result<Etag, Failure> {
    let mut outcome = write(slot, expected, payload).await?;
    if let WriteOutcome::Unknown(_) = outcome {
        match slot.read().await? {
            Some(found) if Some(&found.etag) != expected && *found.payload == *payload => {
                return Ok(found.etag);
            }
            _ => outcome = write(slot, expected, payload).await?,
        }
    }
    match outcome {
        WriteOutcome::Written(etag) => Ok(etag),
        other => Err(Failure(format!("a write that must happen: {other:?}"))),
    }
}

pub(super) async fn a_state_is_written_read_and_cleared(bench: &Bench) -> Case {
    let slot = states(bench, 0)?.slot("Airport", &"JFK".into(), "delays");
    let other = states(bench, 1)?.slot("Airport", &"JFK".into(), "delays");
    same!(other.read().await?, None, "a state never written");
    let big: Arc<[u8]> = (0..64 * 1024u32).map(|i| (i % 251) as u8).collect();
    let first = must_write(&slot, None, &big).await?;
    let found = other.read().await?.ok_or_else(|| Failure("the state is not there".into()))?;
    check!(found.payload == big, "the payload came back changed");
    same!(
        (&*found.format, found.modified, &found.etag),
        ("raw", NOW, &first),
        "format, time and etag"
    );
    let second = must_write(&other, Some(&found.etag), b"").await?;
    check!(first != second, "a write kept the etag");
    same!(slot.read().await?.map(|s| s.payload), Some(Arc::from(*b"")), "an empty payload");
    same!(slot.clear(&first).await?, ClearOutcome::EtagMismatch, "a clear with a stale etag");
    same!(slot.clear(&second).await?, ClearOutcome::Cleared, "a clear");
    same!(other.read().await?, None, "a state after its clear");
    same!(slot.clear(&second).await?, ClearOutcome::EtagMismatch, "a second clear");
    must_write(&slot, None, b"again").await?;
    Ok(())
}

pub(super) async fn a_stale_etag_writes_nothing(bench: &Bench) -> Case {
    let slot = states(bench, 0)?.slot("Airport", &"EWR".into(), "delays");
    let first = must_write(&slot, None, b"1").await?;
    same!(
        write(&slot, None, b"x").await?,
        WriteOutcome::EtagMismatch,
        "a first write of a state that is there"
    );
    let second = must_write(&slot, Some(&first), b"2").await?;
    same!(
        write(&slot, Some(&first), b"x").await?,
        WriteOutcome::EtagMismatch,
        "a write with a stale etag"
    );
    let found = slot.read().await?.map(|s| (s.payload, s.etag));
    same!(found, Some((Arc::from(*b"2"), second.clone())), "the state after refused writes");
    same!(slot.clear(&second).await?, ClearOutcome::Cleared, "a clear");
    same!(
        write(&slot, Some(&second), b"x").await?,
        WriteOutcome::EtagMismatch,
        "a write after a clear"
    );
    same!(slot.read().await?, None, "the state after it");
    Ok(())
}

pub(super) async fn kinds_of_keys_and_odd_keys_are_apart(bench: &Bench) -> Case {
    let keys: Vec<GrainKey> = vec![
        1u64.into(),
        1i64.into(),
        "1".into(),
        "".into(),
        "a/b".into(),
        "a%2Fb".into(),
        "a\0b".into(),
        "🛫 it's \"quoted\" \\".into(),
        "x".repeat(1_023).into(),
        "x".repeat(1_024).into(),
        "\0".repeat(1_024).into(),
    ];
    let table = states(bench, 0)?;
    let mut slots = Vec::new();
    for grain_type in ["Odd", "Odd/", "a type of quite another module::Odd"] {
        for key in &keys {
            slots.extend(["s", "", "/s"].map(|state| table.slot(grain_type, key, state)));
        }
    }
    for (n, slot) in (0u32..).zip(&slots) {
        must_write(slot, None, &n.to_le_bytes()).await?;
    }
    for (n, slot) in (0u32..).zip(&slots) {
        let found = slot.read().await?.map(|s| s.payload);
        same!(found, Some(Arc::from(n.to_le_bytes())), format!("the state of slot {n}"));
    }
    Ok(())
}

pub(super) async fn racing_writers_lose_nothing(bench: &Bench) -> Case {
    let workers = (0..10).map(|worker| async move {
        let slot = states(bench, worker)?.slot("Counter", &7u64.into(), "n");
        let mut done = 0;
        for _ in 0..10_000 {
            if done == 10 {
                return Ok(());
            }
            let now = slot.read().await?;
            yield_now().await;
            let count = now.as_ref().and_then(|s| s.payload.first().copied()).unwrap_or(0);
            match write(&slot, now.as_ref().map(|s| &s.etag), &[count + 1]).await? {
                WriteOutcome::Written(_) => done += 1,
                WriteOutcome::EtagMismatch => {}
                WriteOutcome::Unknown(error) => return Err(error.into()),
            }
        }
        Err(Failure(format!("worker {worker} wrote {done} times in 10000 rounds")))
    });
    for result in join_all(workers).await {
        result?;
    }
    let count = states(bench, 0)?.read("Counter", &7u64.into(), "n").await?.map(|s| s.payload);
    same!(count, Some(Arc::from([100u8])), "the count");
    Ok(())
}

/// Grains are spread: the states of many are written and read at once, and each grain's lie in a
/// partition of its own.
pub(super) async fn many_grains_at_once_have_a_partition_each(bench: &Bench) -> Case {
    const GRAINS: u64 = 48;
    // A state may be called as the row is where others keep their version.
    const STATES: [&str; 2] = [VERSION_ROW, "delays"];
    let service = ClusterId::new("service").map_err(|e| Failure(e.to_string()))?;
    let one = |connection: usize, grain: u64, name: &'static str| async move {
        let slot = states(bench, connection)?.slot("Flight", &grain.into(), name);
        let mut etag = None;
        for round in 0..3u64 {
            let payload = (grain * 100 + round).to_le_bytes();
            // No other process writes this state: no condition may fail.
            let written = must_write(&slot, etag.as_ref(), &payload).await?;
            let found = slot.read().await?.map(|s| (s.payload, s.etag));
            same!(found, Some((Arc::from(payload), written.clone())), "a state among many");
            etag = Some(written);
        }
        Ok(())
    };
    let grains = || (0..GRAINS).zip(0..);
    let all = grains().flat_map(|(grain, at)| STATES.map(|name| one(at, grain, name)));
    for written in join_all(all).await {
        written?;
    }
    for (grain, at) in grains() {
        let partition = keys::partition(&service, "Flight", &grain.into());
        let rows = bench.store(at).read_partition(&GRAIN_STATE, &partition).await?;
        let found: Vec<&str> = rows.iter().map(|row| row.row.key()).collect();
        same!(found, STATES, format!("the rows of partition {partition}"));
    }
    Ok(())
}
