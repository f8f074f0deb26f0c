//! Many writers and readers on several connections at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use emmer_core::Timestamp;
use futures_util::future::{join, join_all};

use super::bench::{
    Bench, Case, Failure, LOOSE, SCRATCH, check, number, numbered, same, yield_now,
};
use emmer_store::contract::{CommitOutcome, Mutation};
use emmer_store::table::Value;

/// More rounds than any fair race needs: every lost round is another writer's win.
const ROUNDS_MAX: usize = 10_000;

pub(super) async fn one_of_many_inserts_wins(bench: &Bench) -> Case {
    for round in 0..10 {
        let key = format!("r{round}");
        let insert = |i| vec![Mutation::Insert { row: numbered(key.as_str(), i) }];
        let racers =
            (0..20i64).zip(0..20).map(|(n, i)| bench.store(i).commit(&SCRATCH, "one", insert(n)));
        let mut winners = Vec::new();
        for (n, outcome) in (0i64..).zip(join_all(racers).await) {
            match outcome? {
                CommitOutcome::Committed(_) => winners.push(n),
                CommitOutcome::Conflict(0) => {}
                other => return Err(Failure(format!("a racing insert: {other:?}"))),
            }
        }
        check!(winners.len() == 1, "{} of 20 inserts won", winners.len());
        same!(vec![number(&bench.row("one", &key).await?)?], winners, "the row and the winner");
    }
    Ok(())
}

pub(super) async fn no_increment_is_lost(bench: &Bench) -> Case {
    const WORKERS: usize = 8;
    const EACH: usize = 25;
    bench.must_commit("count", vec![Mutation::Insert { row: numbered("r", 0) }]).await?;
    let workers = (0..WORKERS).map(|worker| async move {
        let store = bench.store(worker);
        let mut done = 0;
        for _ in 0..ROUNDS_MAX {
            if done == EACH {
                return Ok(());
            }
            let Some(now) = store.read_row(&SCRATCH, "count", "r").await? else {
                return Err(Failure("the row vanished".into()));
            };
            yield_now().await;
            let row = numbered("r", number(&now)? + 1);
            // A second row proves that nothing of a lost race stays.
            let log = Mutation::Insert { row: numbered(format!("w{worker}-{done:02}"), 0) };
            let both = vec![Mutation::Replace { row, etag: now.etag }, log];
            match store.commit(&SCRATCH, "count", both).await? {
                CommitOutcome::Committed(_) => done += 1,
                CommitOutcome::Conflict(0) => {}
                other => return Err(Failure(format!("a racing replace: {other:?}"))),
            }
        }
        Err(Failure(format!("worker {worker} did {done} increments in {ROUNDS_MAX} rounds")))
    });
    for result in join_all(workers).await {
        result?;
    }
    same!(number(&bench.row("count", "r").await?)?, (WORKERS * EACH) as i64, "the count");
    same!(bench.rows("count").await?.len(), 1 + WORKERS * EACH, "the rows that came with it");
    Ok(())
}

pub(super) async fn no_read_is_torn(bench: &Bench) -> Case {
    const ROWS: usize = 100;
    const WRITES: i64 = 60;
    const READS_AFTER: usize = 10;
    let all = |n| {
        let row = move |i| {
            numbered(format!("r{i:03}"), n).with("Name", Value::Text("x".repeat(200).into()))
        };
        (0..ROWS).map(move |i| Mutation::Upsert { row: row(i) }).collect::<Vec<_>>()
    };
    bench.must_commit("torn", all(0)).await?;
    // Readers continue for as long as the writer does, however slow the server is, and a little
    // longer.
    let finished = &AtomicBool::new(false);
    let writer = async {
        let mut written = Ok(());
        for n in 1..=WRITES {
            match bench.store(0).commit(&SCRATCH, "torn", all(n)).await {
                Ok(CommitOutcome::Committed(_)) => yield_now().await,
                Ok(other) => written = Err(Failure(format!("an upsert: {other:?}"))),
                Err(e) => written = Err(e.into()),
            }
            if written.is_err() {
                break;
            }
        }
        finished.store(true, Ordering::Release);
        written
    };
    let readers = join_all((1..7).map(|reader| async move {
        let mut newest = 0;
        let mut reads_after = 0;
        while reads_after < READS_AFTER {
            if finished.load(Ordering::Acquire) {
                reads_after += 1;
            }
            let rows = bench.store(reader).read_partition(&SCRATCH, "torn").await?;
            same!(rows.len(), ROWS, "rows of a read");
            let first = rows.first().map_or(Ok(-1), number)?;
            for row in &rows {
                same!(
                    number(row)?,
                    first,
                    format!("row {} of a read whose first row says {first}", row.row.key())
                );
            }
            check!(first >= newest, "a read went back from {newest} to {first}");
            newest = first;
            if newest == WRITES {
                return Ok(());
            }
            yield_now().await;
        }
        Err(Failure(format!(
            "reader {reader} saw {newest} of {WRITES} writes, all of them acknowledged"
        )))
    }));
    let (written, read) = join(writer, readers).await;
    written?;
    read.into_iter().collect()
}

/// Of a table that needs no moment: while writers never rest every read is answered, with every
/// row, each whole and at least as new as it was seen before.
pub(super) async fn a_read_that_needs_no_moment_is_never_put_off(bench: &Bench) -> Case {
    const ROWS: usize = 300;
    const WRITES: i64 = 40;
    let key = |i: usize| format!("r{i:03}");
    let row = |i, n: i64| numbered(key(i), n).with("Name", Value::Text(n.to_string().into()));
    let write = |store: usize, mutations| async move {
        match bench.store(store).commit(&LOOSE, "loose", mutations).await? {
            CommitOutcome::Committed(_) => Ok(()),
            other => Err(Failure(format!("an upsert: {other:?}"))),
        }
    };
    for first in (0..ROWS).step_by(100) {
        let rows = (first..first + 100).map(|i| Mutation::Insert { row: row(i, 0) });
        write(0, rows.collect()).await?;
    }
    let finished = &AtomicBool::new(false);
    let writer = async {
        let mut written = Ok(());
        for n in 1..=WRITES {
            // Far apart, where a server with pages has them on several.
            let rows = [0, 101, 202].map(|far| (far + n as usize) % ROWS);
            let upserts = rows.map(|i| Mutation::Upsert { row: row(i, n) });
            written = write(0, upserts.to_vec()).await;
            if written.is_err() {
                break;
            }
            yield_now().await;
        }
        finished.store(true, Ordering::Release);
        written
    };
    let readers = join_all((1..4).map(|reader| async move {
        let mut seen: BTreeMap<String, i64> = BTreeMap::new();
        loop {
            let is_last = finished.load(Ordering::Acquire);
            let rows = bench.store(reader).read_partition(&LOOSE, "loose").await?;
            same!(rows.len(), ROWS, "rows of a read");
            for (i, found) in rows.iter().enumerate() {
                let n = number(found)?;
                same!(found.row, row(i, n), "a row, whole and in its place");
                let before = seen.insert(key(i), n).unwrap_or(0);
                check!(n >= before, "row {i} went back from {before} to {n}");
            }
            if is_last {
                same!(seen.values().max(), Some(&WRITES), "the newest row after the last write");
                return Ok(());
            }
            yield_now().await;
        }
    }));
    let (written, read) = join(writer, readers).await;
    written?;
    read.into_iter().collect()
}

pub(super) async fn heartbeats_never_cost_a_vote(bench: &Bench) -> Case {
    const BEATS: i64 = 100;
    let beat = |ms| Value::Time(Timestamp::from_millis(ms));
    bench
        .must_commit("beat", vec![Mutation::Insert { row: numbered("r", 0).with("Beat", beat(0)) }])
        .await?;
    let heart = async {
        for ms in 1..=BEATS {
            bench.store(0).touch(&SCRATCH, "beat", "r", "Beat", beat(ms)).await?;
            yield_now().await;
        }
        Ok::<(), Failure>(())
    };
    // One writer alone among the heartbeats: not one of its compare-and-sets may fail.
    let voter = async {
        let mut etag = bench.row("beat", "r").await?.etag;
        for n in 1..=50 {
            // The row as a voter holds it: with the heartbeat of long ago.
            let row = numbered("r", n).with("Beat", beat(0));
            let replace = vec![Mutation::Replace { row, etag }];
            match bench.store(1).commit(&SCRATCH, "beat", replace).await? {
                CommitOutcome::Committed(etags) => {
                    etag = etags.into_iter().flatten().next().unwrap_or_else(|| "".into());
                }
                other => return Err(Failure(format!("vote {n} beside heartbeats: {other:?}"))),
            }
            yield_now().await;
        }
        Ok(())
    };
    let (beaten, voted) = join(heart, voter).await;
    beaten?;
    voted?;
    let row = bench.row("beat", "r").await?.row;
    same!(row, numbered("r", 50).with("Beat", beat(BEATS)), "the row after votes and heartbeats");
    Ok(())
}

pub(super) async fn connections_see_each_other(bench: &Bench) -> Case {
    for n in 0..40usize {
        let row = numbered("r", n as i64);
        bench.store(n).commit(&SCRATCH, "see", vec![Mutation::Upsert { row: row.clone() }]).await?;
        for reader in 0..super::CONNECTIONS {
            let found = bench.store(reader).read_row(&SCRATCH, "see", "r").await?.map(|r| r.row);
            same!(found, Some(row.clone()), "a read after a commit over another connection");
        }
    }
    Ok(())
}
