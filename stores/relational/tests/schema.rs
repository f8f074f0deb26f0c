//! Declarations as tables, in a dialect that differs from PostgreSQL's wherever dialects differ.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Column, ColumnType, TableDecl};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_store_relational::{Dialect, Fault, Names, SqlType, Statements, names, statements};

/// Upper case, brackets, numbered parameters with a letter, types reported otherwise than declared.
struct Loud;

impl Dialect for Loud {
    fn name_bytes_max(&self) -> usize {
        30
    }
    fn fold(&self, name: &str) -> String {
        name.to_ascii_uppercase()
    }
    fn quote(&self, folded: &str) -> String {
        format!("[{folded}]")
    }
    fn parameter(&self, number: usize) -> String {
        format!("@P{number}")
    }
    fn declared_type(&self, sql_type: SqlType) -> String {
        match sql_type {
            SqlType::Key(bytes) => format!("VARCHAR({bytes}) BINARY"),
            other => self.reported_type(other),
        }
    }
    fn reported_type(&self, sql_type: SqlType) -> String {
        match sql_type {
            SqlType::Key(bytes) => format!("VARCHAR({bytes})"),
            SqlType::Etag => "NUMBER".to_owned(),
            SqlType::Column(column_type) => format!("{column_type:?}").to_ascii_uppercase(),
        }
    }
    fn at_most(&self, parameter: &str) -> String {
        format!("FETCH FIRST {parameter} ROWS ONLY")
    }
}

static DECL: TableDecl = TableDecl {
    name: "things",
    partition_key: "Part",
    row_key: "Id",
    columns: &[
        Column::new("Name", ColumnType::Text),
        Column::new("Number", ColumnType::Int).indexed(),
        Column::new("At", ColumnType::Time).volatile(),
    ],
    schema_version: 3,
    one_moment: true,
};

static LONG: TableDecl = TableDecl {
    name: "a_table_with_a_long_name",
    columns: &[
        Column::new("SomeNumber", ColumnType::Int).indexed(),
        Column::new("SomeOtherNumber", ColumnType::Int).indexed(),
    ],
    ..DECL
};

#[test]
fn a_declaration_becomes_a_table_and_its_indexes() {
    assert_eq!(
        schema::create(&Loud, &DECL),
        [
            "CREATE TABLE [THINGS] ([PART] VARCHAR(256) BINARY NOT NULL, [ID] VARCHAR(512) BINARY \
             NOT NULL, [ETAG] NUMBER NOT NULL, [NAME] TEXT, [NUMBER] INT, [AT] TIME, PRIMARY KEY \
             ([PART], [ID]))",
            "CREATE INDEX [THINGS_BY_NUMBER] ON [THINGS] ([NUMBER])",
        ]
    );
    let script = schema::script(&Loud, &[&DECL, &SILO_INSTANCES]);
    assert!(script.contains("VALUES ('schema things', 3);\n"), "{script}");
    assert!(
        script.contains("VALUES ('layout', 1);\n") && script.contains("[SUSPECTINGSILOS]"),
        "{script}"
    );
}

#[test]
fn long_index_names_are_cut_and_stay_apart() {
    let [a, b] = ["SomeNumber", "SomeOtherNumber"].map(|column| names::index(&Loud, &LONG, column));
    assert!(a.len() == 30 && b.len() == 30 && a != b, "{a} {b}");
    assert!(a.starts_with("A_TABLE_WITH_") && a == a.to_ascii_uppercase(), "{a}");
}

#[test]
fn statements_speak_the_dialect() {
    let sql = Statements::new(&Loud, &DECL);
    assert_eq!(
        sql.read_row,
        "SELECT [ID], [ETAG], [NAME], [NUMBER], [AT] FROM [THINGS] WHERE [PART] = @P1 AND [ID] = \
         @P2"
    );
    assert!(sql.read_partition.ends_with("WHERE [PART] = @P1 ORDER BY [ID]"));
    let order = "ORDER BY [PART], [ID] FETCH FIRST @P3 ROWS ONLY";
    assert!(
        sql.scan(&Loud, "Number", false)
            .ends_with(&format!("([NUMBER] >= @P1 AND [NUMBER] <= @P2) {order}"))
    );
    assert!(
        sql.scan(&Loud, "Number", true)
            .ends_with(&format!("([NUMBER] >= @P1 OR [NUMBER] <= @P2) {order}"))
    );
    assert_eq!(
        statements::touch(&Loud, &DECL, "At"),
        "UPDATE [THINGS] SET [AT] = @P3 WHERE [PART] = @P1 AND [ID] = @P2"
    );
    let clean_up = statements::delete_older_than(&Loud, &DECL, "At");
    assert_eq!(clean_up.matches("[AT] < @P2").count(), 2, "{clean_up}");
    assert_eq!(Names::new(&Loud, &DECL).columns, ["[NAME]", "[NUMBER]", "[AT]"]);
}

fn found(version: i64) -> Found {
    let meta = vec![("layout".to_owned(), schema::LAYOUT), ("schema things".to_owned(), version)];
    let table = FoundTable {
        columns: schema::shape(&Loud, &DECL),
        indexes: vec!["THINGS_BY_NUMBER".to_owned(), "PK".to_owned()],
    };
    Found { meta: Some(meta), tables: vec![table] }
}

fn missing(found: &Found) -> Result<Vec<String>, String> {
    schema::missing(&Loud, &[&DECL], found)
}

#[test]
fn what_is_not_there_is_made() {
    assert_eq!(missing(&found(3)), Ok(vec![]));
    let nothing = missing(&Found { meta: None, tables: vec![FoundTable::default()] }).unwrap();
    let begins = [
        "CREATE TABLE [EMMER_META]",
        "INSERT",
        "DELETE",
        "INSERT",
        "CREATE TABLE [THINGS]",
        "CREATE INDEX",
    ];
    assert_eq!(nothing.len(), begins.len(), "{nothing:?}");
    assert!(
        nothing.iter().zip(begins).all(|(statement, begin)| statement.starts_with(begin)),
        "{nothing:?}"
    );
    // Dropped by hand, or died in between: recorded before it is made.
    let dropped = missing(&Found { tables: vec![FoundTable::default()], ..found(3) }).unwrap();
    assert_eq!(dropped, nothing[2..]);
    let no_layout = missing(&Found { meta: Some(vec![]), tables: vec![] }).unwrap();
    assert_eq!(no_layout, ["INSERT INTO [EMMER_META] ([NAME], [VALUE]) VALUES ('layout', 1)"]);
}

#[test]
fn an_older_table_is_brought_forward() {
    let mut old = found(2);
    old.tables[0].columns.retain(|(name, _)| name != "NUMBER" && name != "AT");
    old.tables[0].indexes.clear();
    assert_eq!(
        missing(&old).unwrap(),
        [
            "ALTER TABLE [THINGS] ADD [NUMBER] INT",
            "ALTER TABLE [THINGS] ADD [AT] TIME",
            "CREATE INDEX [THINGS_BY_NUMBER] ON [THINGS] ([NUMBER])",
            "DELETE FROM [EMMER_META] WHERE [NAME] = 'schema things'",
            "INSERT INTO [EMMER_META] ([NAME], [VALUE]) VALUES ('schema things', 3)",
        ]
    );
    // A process that died before the version was recorded leaves the rest.
    old.tables = found(3).tables;
    assert_eq!(missing(&old).unwrap().len(), 2);
    // Columns stand in another order then.
    let mut later = found(3);
    later.tables[0].columns.reverse();
    assert_eq!(missing(&later), Ok(vec![]));
    let mut keyless = found(2);
    keyless.tables[0].columns.retain(|(name, _)| name != "ETAG");
    assert!(missing(&keyless).unwrap_err().contains("other columns"));
}

#[test]
fn what_others_made_is_refused() {
    // A newer version, a table without a record, another layout, another column, another type, a
    // missing column.
    assert!(missing(&found(4)).unwrap_err().contains("schema version 4, this program knows 3"));
    assert!(
        missing(&Found { meta: None, ..found(3) }).unwrap_err().contains("holds no schema version")
    );
    let mut other = found(3);
    other.meta.as_mut().unwrap()[0].1 = 9;
    assert!(missing(&other).unwrap_err().contains("has layout 9"));
    for version in [2, 3] {
        let mut other = found(version);
        other.tables[0].columns.push(("EXTRA".to_owned(), "TEXT".to_owned()));
        assert!(missing(&other).unwrap_err().contains("EXTRA"));
        let mut other = found(version);
        other.tables[0].columns[3].1 = "INT".to_owned();
        assert!(missing(&other).is_err());
    }
    let mut other = found(3);
    other.tables[0].columns.pop();
    assert!(missing(&other).is_err());
}

/// The columns of before and the version of after, as a look sees it while another process brings
/// the table forward.
#[test]
fn a_refusal_without_the_lock_is_only_a_suspicion() {
    let mut torn = found(3);
    torn.tables[0].columns.retain(|(name, _)| name != "AT");
    let look = |found: &Found| missing(found).map_err(Fault::corrupt);
    assert_eq!(schema::is_all_there(look(&torn)), Ok(false));
    assert_eq!(schema::is_all_there(look(&found(2))), Ok(false));
    assert_eq!(schema::is_all_there(look(&found(3))), Ok(true));
    let away = Fault::unavailable("away");
    assert_eq!(schema::is_all_there(Err(away.clone())), Err(away));
}
