//! Journals of grains on [`StateTable`](emmer_store::state::StateTable).

use std::ops::Range;
use std::sync::Arc;

use emmer_core::Timestamp;

use super::bench::{Bench, Case, Failure, check, same};
use super::states::states;
use emmer_store::contract::Etag;
use emmer_store::journal::{Change, Head, JournalSlot, Stored};
use emmer_store::state::{ClearOutcome, WriteOutcome};

const NOW: Timestamp = Timestamp::from_millis(1_795_265_085_123);

/// No row.
const NONE: Range<u64> = 0..0;

fn stored(payload: &[u8]) -> Stored {
    Stored { format: "raw".to_owned(), payload: Arc::from(payload) }
}

/// Appends one event to a journal of `head`.
async fn append(
    slot: &JournalSlot,
    (head, etag): &mut (Head, Option<Etag>),
    payload: &[u8],
    remove: Range<u64>,
) -> Case {
    let next = Head {
        events: head.events + 1,
        appends: head.appends + 1,
        removed: head.removed + remove.clone().count() as u64,
        ..*head
    };
    let change = Change::Append(stored(payload));
    match slot.write(etag.as_ref(), &next, change, remove, NOW).await? {
        WriteOutcome::Written(new) => (*head, *etag) = (next, Some(new)),
        other => return Err(Failure(format!("an append that must happen: {other:?}"))),
    }
    Ok(())
}

pub(super) async fn a_journal_grows_is_cut_and_keeps_stale_writers_out(bench: &Bench) -> Case {
    let [slot, other] = [states(bench, 0)?, states(bench, 1)?]
        .map(|states| states.journal("Account", &"a/b".into(), "booked"));
    same!(other.head().await?, None, "a journal that nobody wrote");
    let mut at = (Head::default(), None);
    for n in 1..=5u8 {
        append(&slot, &mut at, &[n], NONE).await?;
    }
    let found = other.head().await?.ok_or_else(|| Failure("there is no head".into()))?;
    same!(&(found.0, Some(found.1.clone())), &at, "the head");
    for n in 1..=5u8 {
        let row = other.append(n.into()).await?;
        same!(row.map(|row| row.payload), Some(Arc::from([n])), "the events of an append");
    }
    same!(other.append(6).await?, None, "an append that never was");

    // A stale writer adds nothing, and no row of its own stays.
    let mut stale = at.clone();
    append(&other, &mut stale, &[6], NONE).await?;
    let change = Change::Append(stored(&[66]));
    let next = Head { events: 6, appends: 6, ..at.0 };
    let outcome = slot.write(at.1.as_ref(), &next, change, NONE, NOW).await?;
    same!(outcome, WriteOutcome::EtagMismatch, "an append of a stale writer");
    let row = slot.append(6).await?;
    same!(row.map(|row| row.payload), Some(Arc::from([6])), "the append of the other one");

    // Two snapshots; the second replaces the first.
    let mut at = stale;
    for before in [0, 6] {
        let next = Head { snapshot: at.0.appends, ..at.0 };
        let change = Change::Snapshot(stored(b"sum"), before);
        let outcome = slot.write(at.1.as_ref(), &next, change, NONE, NOW).await?;
        let WriteOutcome::Written(etag) = outcome else {
            return Err(Failure(format!("a snapshot that must be written: {outcome:?}")));
        };
        at = (next, Some(etag));
        append(&slot, &mut at, b"one more", NONE).await?;
    }
    same!(other.snapshot(6).await?, None, "a snapshot that was replaced");
    check!(other.snapshot(7).await?.is_some(), "the newest snapshot is not there");
    append(&slot, &mut at, b"and two go", 1..3).await?;
    same!(other.append(2).await?, None, "an append that was removed");
    check!(other.append(3).await?.is_some(), "an append that was to stay is gone");

    let Some(etag) = &at.1 else { return Err(Failure("no etag".into())) };
    let rest = Head { removed: at.0.appends, snapshot: at.0.appends, ..at.0 };
    let contradicts = Head { removed: 9, snapshot: 7, ..at.0 };
    let outcome = slot.write(Some(etag), &contradicts, Change::Nothing, 3..10, NOW).await?;
    let WriteOutcome::Written(etag) = outcome else {
        return Err(Failure(format!("a removal that must happen: {outcome:?}")));
    };
    check!(slot.head().await.is_err(), "a head that contradicts itself was read");
    same!(
        slot.delete(&Arc::from("stale"), &rest).await?,
        ClearOutcome::EtagMismatch,
        "a stale end"
    );
    same!(
        slot.delete(&etag, &Head { snapshot: 7, ..rest }).await?,
        ClearOutcome::Cleared,
        "an end"
    );
    same!(other.head().await?, None, "a journal after its end");
    same!(other.snapshot(7).await?, None, "a snapshot after the end");
    Ok(())
}
