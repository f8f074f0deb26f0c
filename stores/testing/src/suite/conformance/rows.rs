//! Tables, values, keys, scans, appends, clean-up, touches.

use std::sync::Arc;

use emmer_core::Timestamp;
use futures_util::future::join_all;

use super::CONNECTIONS;
use super::bench::{Bench, Case, SCRATCH, check, numbered, refused, same};
use emmer_store::contract::{Mutation, StoreErrorKind};
use emmer_store::table::{Column, ColumnType, Row, TableDecl, Value};
use emmer_store::validate::{PARTITION_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX, SAMPLE_ROWS_MAX};

const fn decl(name: &'static str, columns: &'static [Column], schema_version: u32) -> TableDecl {
    TableDecl {
        name,
        partition_key: "Part",
        row_key: "Id",
        columns,
        schema_version,
        one_moment: true,
    }
}

static FRESH: TableDecl =
    decl("conformance_fresh", &[Column::new("Number", ColumnType::Int).indexed()], 1);
static WIDER: TableDecl = decl(
    "conformance_fresh",
    &[Column::new("Number", ColumnType::Int).indexed(), Column::new("Name", ColumnType::Text)],
    1,
);
static OLDER: TableDecl =
    decl("conformance_fresh", &[Column::new("Number", ColumnType::Int).indexed()], 0);
static ILLEGAL: TableDecl = decl("conformance illegal", &[], 1);
static ABSENT: TableDecl =
    decl("conformance_absent", &[Column::new("At", ColumnType::Time).volatile()], 1);
static SCANNED: TableDecl = decl(
    "conformance_scan",
    &[Column::new("Number", ColumnType::Int).indexed(), Column::new("Name", ColumnType::Text)],
    1,
);

fn time(ms: i64) -> Value {
    Value::Time(Timestamp::from_millis(ms))
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

pub(super) async fn tables_are_made_by_many_at_once(bench: &Bench) -> Case {
    let tables: &[&'static TableDecl] = &[&FRESH, &SCRATCH];
    let made = join_all((0..CONNECTIONS * 3).map(|i| bench.store(i).ensure_tables(tables))).await;
    for result in made {
        result?;
    }
    let insert = vec![Mutation::Insert { row: numbered("r", 1) }];
    bench.store(0).commit(&FRESH, "p", insert).await?;
    bench.store(1).ensure_tables(tables).await?;
    same!(
        bench.store(2).read_partition(&FRESH, "p").await?.len(),
        1,
        "rows after making the table again"
    );
    Ok(())
}

pub(super) async fn another_shape_is_refused(bench: &Bench) -> Case {
    let store = bench.store(0);
    store.ensure_tables(&[&FRESH]).await?;
    refused(store, StoreErrorKind::Corrupt, store.ensure_tables(&[&WIDER]).await)?;
    // The table was made by a newer program. (A newer declaration may upgrade it.)
    refused(store, StoreErrorKind::Corrupt, store.ensure_tables(&[&OLDER]).await)?;
    refused(store, StoreErrorKind::Invalid, store.ensure_tables(&[&ILLEGAL]).await)
}

pub(super) async fn a_table_never_made_is_not_found(bench: &Bench) -> Case {
    let (store, kind) = (bench.store(0), StoreErrorKind::NotFound);
    refused(store, kind, store.read_partition(&ABSENT, "p").await)?;
    refused(store, kind, store.read_row(&ABSENT, "p", "r").await)?;
    refused(store, kind, store.read_some(&ABSENT, "p", "r", 1).await)?;
    let upsert = vec![Mutation::Upsert { row: Row::new("r") }];
    refused(store, kind, store.commit(&ABSENT, "p", upsert).await)?;
    refused(store, kind, store.touch(&ABSENT, "p", "r", "At", time(1)).await)?;
    refused(store, kind, store.append(&ABSENT, "p", vec![Row::new("r")]).await)
}

pub(super) async fn every_value_comes_back(bench: &Bench) -> Case {
    let list = |items: &[&str]| Value::List(items.iter().map(|i| Arc::from(*i)).collect());
    let rows = vec![
        Row::new("all null"),
        numbered("min", i64::MIN).with("At", time(-1)).with("Beats", Value::Int(0)),
        numbered("max", i64::MAX).with("At", time(253_402_300_799_999)).with("Beat", time(0)),
        Row::new("empty")
            .with("Name", text(""))
            .with("Blob", Value::Bytes([].into()))
            .with("Items", list(&[])),
        Row::new("texts")
            .with("Name", text("it's \"quoted\" \\ % _ ; -- /* */ $1 ?1 {x} \t\r\n 🛫 ä \u{feff}")),
        Row::new("bytes").with("Blob", Value::Bytes((0..=255).collect())),
        Row::new("lists")
            .with("Items", list(&["", "a,b", "\"", "[]", "🛫", "'", "\\", "null", "a\nb"])),
        Row::new("one").with("Items", list(&[""])),
    ];
    let upserts = rows.iter().map(|row| Mutation::Upsert { row: row.clone() }).collect();
    bench.must_commit("values", upserts).await?;
    for row in rows {
        same!(bench.row("values", row.key()).await?.row, row, "a row as read alone");
        let all = bench.rows("values").await?;
        let found = all.into_iter().find(|r| r.row.key() == row.key()).map(|r| r.row);
        same!(found, Some(row), "a row as read with its partition");
    }
    Ok(())
}

/// Texts that servers, their formats and their clients are known to stumble over.
fn difficult_texts() -> Vec<String> {
    let controls = (1..0x20).chain(0x7f..0xa0).filter_map(char::from_u32);
    let mut texts: Vec<String> = [
        // Line ends for JavaScript, and for Unicode.
        "\u{2028}",
        "\u{2029}",
        "a\u{2028}\u{2029}b\r\nc\rd\u{85}e",
        // The edges of the planes, and noncharacters.
        "\u{d7ff}\u{e000}\u{fdd0}\u{fffe}\u{ffff}\u{10000}\u{1fffe}\u{10ffff}",
        // A mark of the byte order in front, in the middle, at the end.
        "\u{feff}a\u{feff}b\u{feff}",
        // Composed and not, which are two texts.
        "\u{e9}",
        "e\u{301}",
        // Joined, turned round, of no width.
        "👩\u{200d}👩\u{200d}👧 \u{202e}abc\u{202c} \u{200b}\u{200f}\u{2060}",
        // Escapes of other languages, which mean nothing here.
        "\\u2028 \\ud800 \\x00 \\0 %00 %u2028 &#0; &amp; <![CDATA[]]> ${x} {{x}}",
        " ",
        "  leading and trailing  ",
        "\t",
        "NULL",
        "null",
        "\"\"",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.push(controls.collect());
    texts.push("\u{2028}".repeat(10_000));
    texts.push("\u{10ffff}".repeat(8_000));
    texts
}

pub(super) async fn difficult_texts_come_back(bench: &Bench) -> Case {
    let texts = difficult_texts();
    for (n, difficult) in texts.iter().enumerate() {
        let item = |of: &str| Arc::from(of);
        let row = Row::new(format!("t{n}"))
            .with("Name", text(difficult))
            .with("Items", Value::List([item("a"), item(difficult), item("")].into()));
        bench.must_commit("texts", vec![Mutation::Insert { row: row.clone() }]).await?;
        let found = bench.row("texts", row.key()).await?.row;
        check!(found == row, "text {n} came back changed: {:?}", difficult.get(..40));
    }
    let rows = bench.rows("texts").await?;
    same!(rows.len(), texts.len(), "rows with difficult texts");
    for (n, difficult) in texts.iter().enumerate() {
        let found = rows.iter().find(|row| row.row.key() == format!("t{n}"));
        let name = found.and_then(|row| row.row.get("Name"));
        check!(name == Some(&text(difficult)), "text {n} is another one in its partition");
    }
    // Not every server can keep a NUL: so all stores refuse it.
    let store = bench.store(0);
    for broken in [text("a\0b"), Value::List([Arc::from("\0")].into())] {
        let column = if matches!(broken, Value::Text(_)) { "Name" } else { "Items" };
        let insert = Mutation::Insert { row: Row::new("nul").with(column, broken) };
        let answer = store.commit(&SCRATCH, "texts", vec![insert]).await;
        refused(store, StoreErrorKind::Invalid, answer)?;
    }
    same!(store.read_row(&SCRATCH, "texts", "nul").await?, None, "a refused row");
    Ok(())
}

pub(super) async fn odd_keys_come_back_in_order(bench: &Bench) -> Case {
    let mut keys: Vec<String> = [
        "it's",
        "\"q\"",
        "a/b",
        "a\\b",
        "a?b",
        "a#b",
        "a%b",
        "a%2Fb",
        "a_b",
        "a b",
        " lead",
        "trail ",
        "🛫",
        "ä",
        "Ä",
        "a",
        "A",
        "aa",
        "a:b",
        "a*",
        "[a]",
        "{a}",
        ".",
        "..",
        "null",
        "1",
        "01",
        "-",
        "\u{10ffff}",
        "\u{ffff}",
        "é",
        "e\u{301}",
        "\u{2028}a",
        "\u{2029}",
        "\u{feff}",
        "\u{200b}",
    ]
    .map(str::to_owned)
    .to_vec();
    keys.push("k".repeat(ROW_KEY_BYTES_MAX));
    keys.push("🛫".repeat(ROW_KEY_BYTES_MAX / 4));
    let longest = "p".repeat(PARTITION_KEY_BYTES_MAX);
    for partition in ["odd", "o'd/d?#%\\ \"🛫", longest.as_str()] {
        let inserts = keys
            .iter()
            .map(|k| Mutation::Insert { row: Row::new(k).with("Name", text(k)) })
            .collect();
        bench.must_commit(partition, inserts).await?;
        let mut wanted = keys.clone();
        wanted.sort_unstable();
        let found = bench.rows(partition).await?;
        let found: Vec<String> = found.iter().map(|r| r.row.key().to_owned()).collect();
        same!(found, wanted, "the row keys of a partition, by their bytes");
        for key in &keys {
            same!(
                bench.row(partition, key).await?.row.get("Name"),
                Some(&text(key)),
                "the row of an odd key"
            );
        }
    }
    Ok(())
}

pub(super) async fn large_values_come_back(bench: &Bench) -> Case {
    let blob: Vec<u8> =
        (0..64 * 1024u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let row = |key: &str, n: u8| {
        let mut blob = blob.clone();
        blob.push(n);
        Row::new(key)
            .with("Blob", Value::Bytes(blob.into()))
            .with("Name", text(&"ä".repeat(16 * 1024)))
    };
    bench
        .must_commit(
            "large",
            vec![Mutation::Insert { row: row("a", 1) }, Mutation::Insert { row: row("b", 2) }],
        )
        .await?;
    let etag = bench.row("large", "a").await?.etag;
    bench.must_commit("large", vec![Mutation::Replace { row: row("a", 3), etag }]).await?;
    let found: Vec<Row> = bench.rows("large").await?.into_iter().map(|r| r.row).collect();
    check!(found == [row("a", 3), row("b", 2)], "64 KiB came back changed");
    Ok(())
}

pub(super) async fn scan_takes_ranges_and_wraps_around(bench: &Bench) -> Case {
    let store = bench.store(0);
    store.ensure_tables(&[&SCANNED]).await?;
    for (partition, numbers) in [("s1", [i64::MIN, -5, 0]), ("s2", [3, 7, i64::MAX])] {
        let inserts =
            numbers.iter().map(|n| Mutation::Insert { row: numbered(format!("n{n}"), *n) });
        let nothing = Mutation::Insert { row: Row::new("null") };
        store.commit(&SCANNED, partition, inserts.chain([nothing]).collect()).await?;
    }
    let (min, max) = (i64::MIN, i64::MAX);
    #[allow(
        clippy::reversed_empty_ranges,
        reason = "a reversed range is the contract's way to wrap around"
    )]
    let cases = [
        (0..=3, 10, vec![0, 3]),
        (-4..=-1, 10, vec![]),
        (min..=max, 10, vec![-5, min, 0, 3, 7, max]),
        (7..=-5, 10, vec![-5, min, 7, max]),
        (max..=min, 10, vec![min, max]),
        (7..=7, 10, vec![7]),
        (min..=max, 4, vec![-5, min, 0, 3]),
        (min..=max, 0, vec![]),
    ];
    for (range, limit, wanted) in cases {
        let found = bench.store(1).scan(&SCANNED, "Number", range.clone(), limit).await?;
        let found: Vec<String> = found.iter().map(|r| r.row.key().to_owned()).collect();
        let wanted: Vec<String> = wanted.iter().map(|n| format!("n{n}")).collect();
        same!(found, wanted, format!("scan of {range:?}, at most {limit}"));
    }
    Ok(())
}

pub(super) async fn a_sample_is_a_few_of_the_rows(bench: &Bench) -> Case {
    const ROWS: usize = 120;
    let store = bench.store(0);
    store.ensure_tables(&[&SCRATCH]).await?;
    let key = |n: usize| format!("a-{n:03}/é");
    same!(
        store.read_some(&SCRATCH, "sample", "x", 5).await?.len(),
        0,
        "rows of an empty partition"
    );
    // A neighbour whose rows must not be among them.
    store.commit(&SCRATCH, "sample2", vec![Mutation::Insert { row: numbered("a-000", 1) }]).await?;
    for numbers in (0..ROWS).collect::<Vec<_>>().chunks(60) {
        let row =
            |n: &usize| numbered(key(*n), i64::try_from(*n).unwrap_or(0)).with("Beat", time(7));
        let inserts = numbers.iter().map(|n| Mutation::Insert { row: row(n) }).collect();
        store.commit(&SCRATCH, "sample", inserts).await?;
    }
    let all = store.read_partition(&SCRATCH, "sample").await?;
    let mut seen = std::collections::BTreeSet::new();
    for from in ["a", &key(40), &key(118), "z"] {
        for limit in [1, 5, SAMPLE_ROWS_MAX] {
            let some = bench.store(1).read_some(&SCRATCH, "sample", from, limit).await?;
            same!(some.len(), limit, "rows of a sample from {from:?}");
            check!(
                some.iter().all(|row| all.contains(row)),
                "a sample from {from:?} has other rows"
            );
            check!(
                some.windows(2).all(|pair| pair[0].row.key() < pair[1].row.key()),
                "out of order"
            );
            seen.extend(some.into_iter().map(|row| row.row.key().to_owned()));
        }
    }
    if store.keeps_order() {
        let next = store.read_some(&SCRATCH, "sample", &key(40), 5).await?;
        same!(next, all.iter().skip(40).take(5).cloned().collect::<Vec<_>>(), "the next rows");
    }
    check!(
        seen.len() > SAMPLE_ROWS_MAX,
        "{} rows in all samples: always the same ones",
        seen.len()
    );
    let few = bench.store(2).read_some(&SCRATCH, "sample2", "z", 5).await?;
    same!(few, store.read_partition(&SCRATCH, "sample2").await?, "a sample of a small partition");
    let too_many = store.read_some(&SCRATCH, "sample", "a", SAMPLE_ROWS_MAX + 1).await;
    refused(store, StoreErrorKind::Invalid, too_many)
}

pub(super) async fn append_keeps_what_is_there(bench: &Bench) -> Case {
    let rows = |n: i64, keys: std::ops::Range<i64>| {
        keys.map(|k| numbered(format!("{k:03}"), n)).collect::<Vec<_>>()
    };
    bench.store(0).append(&SCRATCH, "append", rows(1, 0..150)).await?;
    let before = bench.rows("append").await?;
    same!(before.len(), 150, "appended rows");
    bench.store(1).append(&SCRATCH, "append", rows(1, 0..150)).await?;
    same!(bench.rows("append").await?, before, "rows and etags after the same append again");
    bench.store(2).append(&SCRATCH, "append", rows(2, 100..200)).await?;
    let after = bench.rows("append").await?;
    check!(
        after.len() == 200 && after.starts_with(&before),
        "an overlapping append: {} rows",
        after.len()
    );
    bench.store(0).append(&SCRATCH, "append", vec![]).await?;
    Ok(())
}

pub(super) async fn clean_up_deletes_what_is_older(bench: &Bench) -> Case {
    let rows = [("a", 999), ("b", 1_000), ("c", 1_001), ("d", -7)]
        .map(|(k, ms)| Row::new(k).with("At", time(ms)));
    let all = [rows.to_vec(), vec![Row::new("null")]].concat();
    bench.store(0).append(&SCRATCH, "old", all.clone()).await?;
    bench.store(0).append(&SCRATCH, "old-other", all).await?;
    let cutoff = Timestamp::from_millis(1_000);
    same!(
        bench.store(0).delete_older_than(&SCRATCH, "old", "At", cutoff).await?,
        2,
        "deleted rows"
    );
    same!(
        bench.store(0).delete_older_than(&SCRATCH, "old", "At", cutoff).await?,
        0,
        "deleted rows, again"
    );
    let left: Vec<String> =
        bench.rows("old").await?.iter().map(|r| r.row.key().to_owned()).collect();
    same!(left, ["b", "c", "null"], "what is left");
    same!(bench.rows("old-other").await?.len(), 5, "rows of the other partition");
    Ok(())
}

pub(super) async fn touch_changes_one_column_only(bench: &Bench) -> Case {
    let full = numbered("r", 1).with("Name", text("n")).with("At", time(1)).with("Beat", time(1));
    let other = numbered("other", 1).with("Beat", time(1));
    bench
        .must_commit(
            "touch",
            vec![Mutation::Insert { row: full.clone() }, Mutation::Insert { row: other }],
        )
        .await?;
    let before = bench.rows("touch").await?;
    for ms in [2, 1, 1_795_265_085_123] {
        bench.store(3).touch(&SCRATCH, "touch", "r", "Beat", time(ms)).await?;
        let mut wanted = before.clone();
        wanted.iter_mut().filter(|r| r.row.key() == "r").for_each(|r| r.row.set("Beat", time(ms)));
        same!(bench.rows("touch").await?, wanted, "rows and etags after a touch");
    }
    Ok(())
}

pub(super) async fn touch_of_a_missing_row_creates_nothing(bench: &Bench) -> Case {
    let store = bench.store(0);
    let touched = store.touch(&SCRATCH, "touch-missing", "r", "Beat", time(1)).await;
    refused(store, StoreErrorKind::NotFound, touched)?;
    same!(bench.rows("touch-missing").await?, vec![], "rows after a touch of a missing row");
    Ok(())
}

pub(super) async fn partitions_with_a_common_prefix_are_apart(bench: &Bench) -> Case {
    let names = ["pre", "pref", "pre/f", "pre-", "PRE", "pre ", "pre%"];
    for (n, name) in (1..).zip(names) {
        bench.must_commit(name, vec![Mutation::Insert { row: numbered("r", n) }]).await?;
    }
    for (n, name) in (1..).zip(names) {
        let rows: Vec<Row> = bench.rows(name).await?.into_iter().map(|r| r.row).collect();
        same!(rows, vec![numbered("r", n)], format!("partition {name:?}"));
    }
    Ok(())
}
