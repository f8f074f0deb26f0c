//! Every kind of statement this crate sends, before Microsoft's own parser.

use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::state::GRAIN_STATE;
use emmer_store::{Column, ColumnType, Mutation, Row, TableDecl, Value};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_test_servers::skip;
use emmer_test_servers::suite::rows::NUMBERS;
use emmer_test_servers::tsql::{Parser, Statement};

use crate::connection::{END_ANY, settings};
use crate::dialect::TransactSql;
use crate::sql::{Batch, TableSql};
use crate::values::literal;
use crate::{examine, tables};

/// A table with a column of every type, and names that are reserved words.
static ODD: TableDecl = TableDecl {
    name: "order",
    partition_key: "Group",
    row_key: "Key",
    columns: &[
        Column::new("Select", ColumnType::Text),
        Column::new("From", ColumnType::Int).indexed(),
        Column::new("Where", ColumnType::Time),
        Column::new("Table", ColumnType::Bytes),
        Column::new("Values", ColumnType::List),
        Column::new("Index", ColumnType::Time).volatile(),
        Column::new("Count", ColumnType::Int).volatile(),
    ],
    schema_version: 2,
    one_moment: true,
};

const TABLES: [&TableDecl; 4] = [&SILO_INSTANCES, &GRAIN_STATE, &NUMBERS, &ODD];

/// Values that a literal could end too early in, or be taken for something else; for every type and
/// for null.
fn values(column_type: ColumnType) -> Vec<Option<Value>> {
    let text = |text: &str| Some(Value::Text(text.into()));
    let mut values = match column_type {
        ColumnType::Text => {
            vec![
                text(""),
                text("it's"),
                text("a\\"),
                text("\\\r\n\0"),
                text("--/*ä😀 [x] @P1 %"),
                text("''"),
            ]
        }
        ColumnType::Int => [0, -1, i64::MIN, i64::MAX].map(|n| Some(Value::Int(n))).to_vec(),
        ColumnType::Time => [0, -1, emmer_store_relational::calendar::LAST_MS]
            .map(|ms| Some(Value::Time(Timestamp::from_millis(ms))))
            .to_vec(),
        ColumnType::Bytes => {
            [vec![], vec![0], vec![0xff; 9_000]].map(|b| Some(Value::Bytes(b.into()))).to_vec()
        }
        ColumnType::List => {
            vec![Some(Value::List(vec![])), Some(Value::List(vec!["it's".into(), "\"\n".into()]))]
        }
    };
    values.push(None);
    values
}

/// Rows in which every value of [`values`] stands once at least.
fn rows(decl: &TableDecl) -> Vec<Row> {
    let count = decl
        .columns
        .iter()
        .map(|column| values(column.column_type).len())
        .max()
        .unwrap_or_default();
    let row = |at: usize| {
        let mut row = Row::new(format!("key '{at}' ä"));
        for column in decl.columns {
            let values = values(column.column_type);
            if let Some(Some(value)) = values.get(at % values.len()) {
                row.set(column.name, value.clone());
            }
        }
        row
    };
    (0..count).map(row).collect()
}

/// The mutations of a membership commit, of one that only checks, and of each kind with each odd
/// row.
fn commits(decl: &TableDecl) -> Vec<Vec<Mutation>> {
    let all = rows(decl);
    let (etag, key) = ("-5", || "a'b".to_owned());
    let row = || all.first().cloned().unwrap();
    vec![
        vec![
            Mutation::Replace { row: Row::new("VersionRow"), etag: etag.into() },
            Mutation::Insert { row: row() },
        ],
        vec![Mutation::Check { row_key: key(), etag: etag.into() }],
        vec![
            Mutation::Delete { row_key: key(), etag: None },
            Mutation::Delete { row_key: "c".to_owned(), etag: Some(etag.into()) },
            Mutation::Check { row_key: "d".to_owned(), etag: "no number".into() },
        ],
        all.iter().map(|row| Mutation::Upsert { row: row.clone() }).collect(),
        all.iter().map(|row| Mutation::Insert { row: row.clone() }).collect(),
        all.iter().map(|row| Mutation::Replace { row: row.clone(), etag: etag.into() }).collect(),
    ]
}

fn of_table(decl: &'static TableDecl) -> Vec<Statement> {
    let sql = TableSql::new(decl);
    let mut found: Vec<Statement> = Vec::new();
    let mut add = |what: &str, text: String| {
        found.push(Statement { what: format!("{}: {what}", decl.name), text });
    };
    add("read a partition", sql.read_partition.clone());
    add("read a row", sql.read_row.clone());
    add("read some rows", sql.read_some(decl, false));
    add("read some rows before", sql.read_some(decl, true));
    for column in decl.columns {
        if column.indexed {
            add("scan", sql.scan(column.name, false));
            add("scan around", sql.scan(column.name, true));
        }
        if column.column_type == ColumnType::Time {
            add("clean up", sql.delete_older_than(column.name));
        }
        if column.volatile {
            for value in values(column.column_type).iter().flatten() {
                let mut shown = String::new();
                literal(&mut shown, Some(value)).unwrap();
                add("touch", sql.touch(column.name, &shown));
            }
        }
    }
    let batch = Batch { sql: &sql, decl, partition: "it's", etag: i64::MIN };
    for mutations in commits(decl) {
        add("commit", batch.commit(&mutations).unwrap());
    }
    add("append", batch.append(&rows(decl)).unwrap());
    found
}

/// Statements that make tables, from nothing and from an older version.
fn of_schema() -> Vec<Statement> {
    let nothing = Found { meta: None, tables: vec![FoundTable::default(); TABLES.len()] };
    let mut texts = schema::missing(&TransactSql, &TABLES, &nothing).unwrap();
    // Nothing but the keys and the etag.
    let keys = schema::shape(&TransactSql, &ODD).into_iter().take(3).collect();
    let meta = [("layout".to_owned(), schema::LAYOUT), (schema::version_name(&ODD), 1)];
    let older = Found {
        meta: Some(meta.to_vec()),
        tables: vec![FoundTable { columns: keys, indexes: Vec::new() }],
    };
    texts.extend(schema::missing(&TransactSql, &[&ODD], &older).unwrap());
    texts.push(schema::read_meta(&TransactSql));
    texts.push(schema::record(&TransactSql, schema::LAYOUT_NAME, schema::LAYOUT));
    texts.push(schema::script(&TransactSql, &TABLES));
    texts.into_iter().map(|text| Statement { what: "schema".to_owned(), text }).collect()
}

fn all() -> Vec<Statement> {
    let plain = [
        settings(Duration::from_millis(4_000)).as_str(),
        END_ANY,
        examine::ABOUT,
        tables::LOCK,
        tables::COMMIT,
        tables::COLUMNS,
        tables::INDEXES,
        tables::IS_THERE,
    ]
    .map(|text| Statement { what: "session".to_owned(), text: text.to_owned() });
    plain.into_iter().chain(TABLES.into_iter().flat_map(of_table)).chain(of_schema()).collect()
}

#[test]
fn every_statement_is_shown_to_the_parser() {
    let all = all();
    // Of one line each, or of lines that no batch ends at.
    assert!(
        all.iter().all(|one| !one.text.lines().any(|line| line.trim().eq_ignore_ascii_case("go")))
    );
    assert!(all.len() > 60, "{}", all.len());
    let mut parser = match Parser::start() {
        Ok(parser) => parser,
        Err(trouble) => return skip("every_statement_is_shown_to_the_parser", &trouble),
    };
    assert_eq!(parser.check(&all).unwrap(), Vec::<String>::new());
    println!("{} statements passed {}", all.len(), Parser::NAME);
}
