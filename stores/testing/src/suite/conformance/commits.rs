//! Commits: conditions, atomicity, etags, limits.

use emmer_core::Timestamp;
use emmer_core::limits::COMMIT_MUTATIONS_MAX;

use super::bench::{Bench, Case, SCRATCH, check, number, numbered, refused, same};
use emmer_store::contract::{CommitOutcome, Mutation, StoreErrorKind};
use emmer_store::limits::StoreLimits;
use emmer_store::table::{Row, Value};
use emmer_store::validate::{PARTITION_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX};

fn insert(key: &str, number: i64) -> Mutation {
    Mutation::Insert { row: numbered(key, number) }
}

fn upsert(key: &str, number: i64) -> Mutation {
    Mutation::Upsert { row: numbered(key, number) }
}

pub(super) async fn insert_refuses_an_existing_row(bench: &Bench) -> Case {
    let part = "insert";
    let etags = bench.must_commit(part, vec![insert("r", 1)]).await?;
    let read = bench.row(part, "r").await?;
    same!(etags, vec![Some(read.etag.clone())], "the etag of an insert");
    same!(
        bench.commit(part, vec![insert("r", 2)]).await?,
        CommitOutcome::Conflict(0),
        "a second insert"
    );
    same!(bench.rows(part).await?, vec![read], "the rows after a second insert");
    Ok(())
}

pub(super) async fn replace_needs_the_row_and_its_etag(bench: &Bench) -> Case {
    let part = "replace";
    let replace = |number, etag| Mutation::Replace { row: numbered("r", number), etag };
    let made = bench.must_commit("replace-other", vec![insert("r", 0)]).await?;
    let foreign = made.into_iter().next().flatten().unwrap_or_else(|| "?".into());
    for etag in [foreign.clone(), "".into(), "no etag at all".into()] {
        let outcome = bench.commit(part, vec![replace(1, etag)]).await?;
        same!(outcome, CommitOutcome::Conflict(0), "replacing a missing row");
    }
    check!(bench.rows(part).await?.is_empty(), "replacing a missing row created it");

    bench
        .must_commit(
            part,
            vec![Mutation::Insert { row: numbered("r", 1).with("Name", Value::Text("n".into())) }],
        )
        .await?;
    let first = bench.row(part, "r").await?;
    bench.must_commit(part, vec![replace(2, first.etag.clone())]).await?;
    let second = bench.row(part, "r").await?;
    check!(first.etag != second.etag, "a replace kept the etag");
    same!(second.row, numbered("r", 2), "the row after a replace, columns left out being null");
    for etag in [first.etag, foreign, "".into(), "x".into()] {
        let outcome = bench.commit(part, vec![replace(3, etag)]).await?;
        same!(outcome, CommitOutcome::Conflict(0), "a replace with a stale etag");
    }
    same!(bench.row(part, "r").await?, second, "the row after stale replaces");
    Ok(())
}

pub(super) async fn upsert_writes_either_way(bench: &Bench) -> Case {
    let part = "upsert";
    let full = numbered("r", 1).with("Name", Value::Text("n".into()));
    bench.must_commit(part, vec![Mutation::Upsert { row: full.clone() }]).await?;
    let first = bench.row(part, "r").await?;
    same!(first.row, full, "an upsert of a new row");
    let etags = bench.must_commit(part, vec![upsert("r", 2)]).await?;
    let second = bench.row(part, "r").await?;
    same!(second.row, numbered("r", 2), "an upsert of an old row, columns left out being null");
    check!(first.etag != second.etag, "an upsert kept the etag");
    same!(etags, vec![Some(second.etag)], "the etag of an upsert");
    Ok(())
}

pub(super) async fn delete_and_check_keep_their_conditions(bench: &Bench) -> Case {
    let part = "delete";
    let delete = |key: &str, etag| Mutation::Delete { row_key: key.into(), etag };
    let guard = |key: &str, etag| Mutation::Check { row_key: key.into(), etag };
    bench.must_commit(part, vec![insert("a", 1), insert("b", 2), insert("c", 3)]).await?;
    let (a, b) = (bench.row(part, "a").await?, bench.row(part, "b").await?);
    bench.must_commit(part, vec![upsert("a", 11)]).await?;
    let stale = a.etag;
    let a = bench.row(part, "a").await?;
    for (mutation, what) in [
        (delete("a", Some(stale.clone())), "a delete with a stale etag"),
        (delete("x", None), "a delete of a missing row"),
        (delete("x", Some(stale.clone())), "a delete of a missing row with an etag"),
        (guard("a", stale.clone()), "a check with a stale etag"),
        (guard("x", stale.clone()), "a check of a missing row"),
    ] {
        same!(bench.commit(part, vec![mutation]).await?, CommitOutcome::Conflict(0), what);
    }
    let etags = bench
        .must_commit(
            part,
            vec![guard("a", a.etag.clone()), delete("b", Some(b.etag)), delete("c", None)],
        )
        .await?;
    same!(etags, vec![None, None, None], "the etags of checks and deletes");
    same!(bench.rows(part).await?, vec![a], "what is left; a check must not change an etag");
    same!(bench.must_commit(part, vec![]).await?, vec![], "a commit of nothing");
    Ok(())
}

pub(super) async fn a_failed_commit_changes_nothing(bench: &Bench) -> Case {
    let part = "failed";
    bench.must_commit(part, vec![insert("a", 1), insert("b", 2)]).await?;
    let before = bench.rows(part).await?;
    let etag = before.first().map(|r| r.etag.clone()).unwrap_or_else(|| "?".into());
    let good = || {
        vec![
            Mutation::Replace { row: numbered("a", 9), etag: etag.clone() },
            insert("c", 9),
            Mutation::Delete { row_key: "b".into(), etag: None },
        ]
    };
    let bad = [
        insert("d", 0),
        Mutation::Replace { row: numbered("e", 0), etag: etag.clone() },
        Mutation::Check { row_key: "f".into(), etag: "x".into() },
    ];
    bench.must_commit(part, vec![insert("d", 4)]).await?;
    let before = [before, vec![bench.row(part, "d").await?]].concat();
    for mutation in bad {
        for at in 0..=3 {
            let mut mutations = good();
            mutations.insert(at, mutation.clone());
            let outcome = bench.commit(part, mutations).await?;
            same!(
                outcome,
                CommitOutcome::Conflict(at),
                format!("a commit that fails at {mutation:?}")
            );
            same!(bench.rows(part).await?, before, "the rows and etags after a failed commit");
        }
    }
    Ok(())
}

/// Rows written equally often, each by commits of its own, here and in another partition.
pub(super) async fn an_etag_of_another_row_is_a_conflict(bench: &Bench) -> Case {
    let (part, elsewhere) = ("whose", "whose-else");
    for number in 1..=3 {
        for (part, key) in [(part, "a"), (part, "b"), (elsewhere, "a")] {
            bench.must_commit(part, vec![upsert(key, number)]).await?;
        }
    }
    let before = bench.rows(part).await?;
    let (b, other) = (bench.row(part, "b").await?, bench.row(elsewhere, "a").await?);
    for etag in [b.etag, other.etag] {
        for mutation in [
            Mutation::Replace { row: numbered("a", 9), etag: etag.clone() },
            Mutation::Delete { row_key: "a".into(), etag: Some(etag.clone()) },
            Mutation::Check { row_key: "a".into(), etag: etag.clone() },
        ] {
            let outcome = bench.commit(part, vec![insert("c", 9), mutation.clone()]).await?;
            same!(
                outcome,
                CommitOutcome::Conflict(1),
                format!("the etag of another row in {mutation:?}")
            );
            same!(
                bench.rows(part).await?,
                before,
                "the rows after a commit with the etag of another row"
            );
        }
    }
    Ok(())
}

pub(super) async fn etags_never_come_back(bench: &Bench) -> Case {
    let part = "aba";
    let mut seen = Vec::new();
    for round in 0..20 {
        // The same content over two connections in turn, with a deletion in between.
        let commit = |m| bench.store(round).commit(&SCRATCH, part, vec![m]);
        check!(matches!(commit(insert("r", 1)).await?, CommitOutcome::Committed(_)), "an insert");
        let row = bench.row(part, "r").await?;
        check!(!seen.contains(&row.etag), "etag {} came back for a new row", row.etag);
        seen.push(row.etag);
        let gone = Mutation::Delete { row_key: "r".into(), etag: None };
        check!(matches!(commit(gone).await?, CommitOutcome::Committed(_)), "a delete");
    }
    Ok(())
}

pub(super) async fn volatile_columns_are_left_alone(bench: &Bench) -> Case {
    let part = "volatile";
    let time = |ms| Value::Time(Timestamp::from_millis(ms));
    let row = |n, beat| numbered("r", n).with("Beat", time(beat)).with("Beats", Value::Int(beat));
    bench
        .must_commit(
            part,
            vec![
                Mutation::Insert { row: row(1, 10) },
                Mutation::Upsert { row: numbered("u", 1).with("Beat", time(10)) },
            ],
        )
        .await?;
    same!(
        bench.row(part, "r").await?.row,
        row(1, 10),
        "an insert gives the volatile columns their first value"
    );
    same!(
        bench.row(part, "u").await?.row,
        numbered("u", 1).with("Beat", time(10)),
        "so does an upsert of a new row"
    );
    bench.store(2).touch(&SCRATCH, part, "r", "Beat", time(20)).await?;
    let wanted = |n| row(n, 10).with("Beat", time(20));
    bench.must_commit(part, vec![Mutation::Upsert { row: row(2, 5) }]).await?;
    same!(bench.row(part, "r").await?.row, wanted(2), "an upsert that gives volatile columns");
    bench.must_commit(part, vec![upsert("r", 3)]).await?;
    same!(bench.row(part, "r").await?.row, wanted(3), "an upsert that leaves volatile columns out");
    for (n, new) in [(4, row(4, 5)), (5, numbered("r", 5))] {
        let etag = bench.row(part, "r").await?.etag;
        bench.must_commit(part, vec![Mutation::Replace { row: new, etag }]).await?;
        same!(
            bench.row(part, "r").await?.row,
            wanted(n),
            "a replace, with and without volatile columns"
        );
    }
    bench.store(2).touch(&SCRATCH, part, "u", "Beats", Value::Int(1)).await?;
    let touched = numbered("u", 1).with("Beat", time(10)).with("Beats", Value::Int(1));
    same!(bench.row(part, "u").await?.row, touched, "a touch of a column that was null");
    Ok(())
}

pub(super) async fn a_hundred_mutations_and_no_more(bench: &Bench) -> Case {
    let part = "hundred";
    let all =
        |count: usize, n| (0..count).map(|i| upsert(&format!("r{i:03}"), n)).collect::<Vec<_>>();
    refused(
        bench.store(0),
        StoreErrorKind::Invalid,
        bench.store(0).commit(&SCRATCH, part, all(COMMIT_MUTATIONS_MAX + 1, 1)).await,
    )?;
    check!(bench.rows(part).await?.is_empty(), "a commit that is too large left something behind");
    let etags = bench.must_commit(part, all(COMMIT_MUTATIONS_MAX, 2)).await?;
    let rows = bench.rows(part).await?;
    same!(rows.len(), COMMIT_MUTATIONS_MAX, "rows");
    for (row, etag) in rows.iter().zip(etags) {
        same!((number(row)?, Some(row.etag.clone())), (2, etag), "a row of a full commit");
    }
    let mut last_fails = all(COMMIT_MUTATIONS_MAX - 1, 3);
    last_fails.push(insert("r000x", 3));
    bench.must_commit(part, vec![insert("r000x", 0)]).await?;
    let before = bench.rows(part).await?;
    let outcome = bench.commit(part, last_fails).await?;
    same!(
        outcome,
        CommitOutcome::Conflict(COMMIT_MUTATIONS_MAX - 1),
        "a full commit whose last condition fails"
    );
    same!(bench.rows(part).await?, before, "the rows after it");
    Ok(())
}

/// The limits above this are not tried out: it would take long, and the contract's own come first.
const TRIED_BYTES_MAX: usize = 2 << 20;
/// Half of this is written: a server may be set up to take less than its store can know (MariaDB's
/// `max_allowed_packet`).
const WRITTEN_BYTES_MAX: usize = 512 << 10;

pub(super) async fn a_commit_keeps_the_limits_that_the_store_names(bench: &Bench) -> Case {
    let (part, store) = ("limits", bench.store(0));
    let limits = store.limits();
    check!(limits.row_bytes <= limits.commit_bytes, "a row may be larger than a commit: {limits}");
    check!(
        limits
            .lack(&StoreLimits { commit_bytes: 0, row_bytes: 0, ..StoreLimits::default() })
            .is_none(),
        "{limits}"
    );
    let large = |bytes| {
        vec![Mutation::Upsert {
            row: numbered("r", 1).with("Name", Value::Text("x".repeat(bytes).into())),
        }]
    };
    bench.must_commit(part, large(limits.row_bytes.min(WRITTEN_BYTES_MAX) / 2)).await?;
    if limits.commit_bytes <= TRIED_BYTES_MAX {
        let before = bench.rows(part).await?;
        let beyond = store.commit(&SCRATCH, part, large(limits.commit_bytes + 1)).await;
        refused(store, StoreErrorKind::Invalid, beyond)?;
        same!(bench.rows(part).await?, before, "the rows after a commit that is too large");
    }
    Ok(())
}

pub(super) async fn requests_against_the_rules_are_invalid(bench: &Bench) -> Case {
    let (part, store) = ("invalid", bench.store(0));
    let upsert_of = |row| vec![Mutation::Upsert { row }];
    let long = "k".repeat(ROW_KEY_BYTES_MAX + 1);
    for mutations in [
        vec![insert("a", 1), insert("a", 2)],
        vec![insert("a", 1), Mutation::Delete { row_key: "a".into(), etag: None }],
        upsert_of(Row::new("a").with("Nothing", Value::Int(1))),
        upsert_of(Row::new("a").with("Number", Value::Text("1".into()))),
        upsert_of(Row::new("a").with("At", Value::Int(1))),
        upsert_of(Row::new("a").with("Name", Value::Text("a\0b".into()))),
        upsert_of(numbered("", 1)),
        upsert_of(numbered("a\nb", 1)),
        upsert_of(numbered(long, 1)),
    ] {
        refused(store, StoreErrorKind::Invalid, store.commit(&SCRATCH, part, mutations).await)?;
    }
    let too_long = "p".repeat(PARTITION_KEY_BYTES_MAX + 1);
    for bad in ["", too_long.as_str()] {
        refused(
            store,
            StoreErrorKind::Invalid,
            store.commit(&SCRATCH, bad, vec![insert("a", 1)]).await,
        )?;
        refused(store, StoreErrorKind::Invalid, store.read_partition(&SCRATCH, bad).await)?;
    }
    let touched = store.touch(&SCRATCH, part, "a", "Number", Value::Int(1)).await;
    refused(store, StoreErrorKind::Invalid, touched)?;
    refused(store, StoreErrorKind::Invalid, store.scan(&SCRATCH, "Beats", 0..=1, 10).await)?;
    let cleaned =
        store.delete_older_than(&SCRATCH, part, "Number", Timestamp::from_millis(1)).await;
    refused(store, StoreErrorKind::Invalid, cleaned)?;
    check!(bench.rows(part).await?.is_empty(), "an invalid request left something behind");
    Ok(())
}
