//! The statements of the store on SQL Server before Microsoft's own parser, since no package has
//! the server.
//!
//! The crate's tests write every kind of statement it sends into a file; they are put into one
//! script, a batch each, and the parser says what is wrong with it. A broken statement at the
//! script's end must be refused: then everything before it was read.

mod install;
mod service;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::report::{Row, Verdict};

pub(crate) use install::install;
pub(crate) use service::Parser;

/// The variable that names the file to write statements to.
pub(crate) const VARIABLE: &str = "EMMER_TSQL_STATEMENTS";

/// The package whose statements these are.
pub(crate) const PACKAGE: &str = "emmer-store-mssql";

/// The variable that names a server to run the suite on.
const SERVER: &str = "TEST_MSSQL_URL";

/// What no parser may let pass.
const BROKEN: &str = "UPDATE t SET v = WHERE x = 1";

/// What parts one batch from the next.
const END_OF_BATCH: &str = "\nGO\n";

/// A statement, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    what: String,
    text: String,
}

/// What is wrong in a script: the line, counted from 0, and the parser's words.
pub(crate) type Complaint = (usize, String);

/// The statements in the file that the tests wrote.
fn read(path: &Path) -> Result<Vec<Statement>, String> {
    let lines = std::fs::read_to_string(path).map_err(|e| format!("no statements: {e}"))?;
    lines
        .lines()
        .map(|line| parse(line).ok_or_else(|| format!("strange statement: {line}")))
        .collect()
}

fn parse(line: &str) -> Option<Statement> {
    let found: Value = serde_json::from_str(line).ok()?;
    let field = |name: &str| Some(found.get(name)?.as_str()?.to_owned());
    let (what, text) = (field("what")?, field("text")?);
    let parts_batches = |line: &str| line.trim().eq_ignore_ascii_case("go");
    // Lines are counted, and one of these would end the batch.
    (!text.contains('\r') && !text.lines().any(parts_batches)).then_some(Statement { what, text })
}

/// One script of all statements and the broken one, and the line each begins at; the broken one's
/// is the last.
fn script(statements: &[Statement]) -> (String, Vec<usize>) {
    let (mut text, mut begins) = (String::new(), Vec::new());
    for statement in statements.iter().map(|s| s.text.as_str()).chain([BROKEN]) {
        begins.push(text.matches('\n').count());
        text.push_str(statement);
        text.push_str(END_OF_BATCH);
    }
    (text, begins)
}

/// What the parser's complaints say of the statements.
fn judge(
    statements: &[Statement],
    begins: &[usize],
    complaints: &[Complaint],
) -> Result<Vec<String>, String> {
    let at = |line: usize| begins.partition_point(|begin| *begin <= line).saturating_sub(1);
    let (of_broken, of_ours): (Vec<_>, Vec<_>) = complaints
        .iter()
        .map(|(line, words)| (at(*line), words))
        .partition(|(at, _)| *at == statements.len());
    if of_broken.is_empty() {
        return Err(format!("the parser let this pass: {BROKEN}"));
    }
    let name = |at: usize| statements.get(at).map_or("", |statement| statement.what.as_str());
    Ok(of_ours.into_iter().map(|(at, words)| format!("{}: {words}", name(at))).collect())
}

/// What is wrong with `statements`, each with what it is for.
fn check(parser: &mut Parser, statements: &[Statement]) -> Result<Vec<String>, String> {
    let (script, begins) = script(statements);
    judge(statements, &begins, &parser.complaints(&script)?)
}

/// The row of the table for the statements in `file`; `installed` is the parser, or why there is
/// none.
pub(crate) fn row(file: &Path, log: &Path, installed: Result<Parser, String>, ci: bool) -> Row {
    let start = Instant::now();
    let mut parser = match installed {
        Ok(parser) => parser,
        Err(why) => {
            let why = format!("not checked: {why}");
            println!("    SQL Server: statements {why}");
            let verdict = if ci { Verdict::Failed(why) } else { Verdict::Skipped(why) };
            return Row::check("T-SQL", verdict, Duration::ZERO);
        }
    };
    let checked = read(file).and_then(|statements| {
        parser.start(log)?;
        Ok((check(&mut parser, &statements)?, statements.len()))
    });
    let took = start.elapsed();
    match checked {
        Ok((wrong, count)) if wrong.is_empty() && count > 0 => {
            let suite = if std::env::var_os(SERVER).is_some() {
                ""
            } else {
                "; suite not run (TEST_MSSQL_URL)"
            };
            let line = format!(
                "SQL Server: {count} statements parsed by Microsoft's parser ({}){suite}",
                Parser::NAME
            );
            println!("    {line}");
            Row::check("T-SQL", Verdict::Passed, took).noted(line)
        }
        Ok((wrong, count)) => {
            for complaint in &wrong {
                println!("    T-SQL: {complaint}");
            }
            let why =
                format!("Microsoft's parser refuses {} times, of {count} statements", wrong.len());
            Row::check("T-SQL", Verdict::Failed(why), took)
        }
        Err(why) => Row::check("T-SQL", Verdict::Failed(why), took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(what: &str, text: &str) -> Statement {
        Statement { what: what.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn complaints_find_their_statements_by_line() {
        let statements =
            [statement("one", "SELECT 1"), statement("two", "SELECT\n2;"), statement("three", "x")];
        let (text, begins) = script(&statements);
        assert_eq!(begins, [0, 2, 5, 7]);
        assert_eq!(text.lines().nth(5), Some("x"));
        let complaint = |line| (line, "no".to_owned());
        let wrong =
            judge(&statements, &begins, &[complaint(3), complaint(5), complaint(7)]).unwrap();
        assert_eq!(wrong, ["two: no", "three: no"]);
        assert!(judge(&statements, &begins, &[complaint(7)]).unwrap().is_empty());
        // Who refuses nothing has read nothing.
        assert!(judge(&statements, &begins, &[]).is_err());
    }

    #[test]
    fn statements_are_read_and_strange_ones_are_not() {
        assert_eq!(parse(r#"{"what":"a","text":"b\nc"}"#), Some(statement("a", "b\nc")));
        for strange in
            ["", "{}", r#"{"what":"a","text":"b\n GO \nc"}"#, r#"{"what":"a","text":"b\r"}"#]
        {
            assert_eq!(parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn the_parser_refuses_what_is_broken_and_nothing_else() {
        let root = crate::workspace::root().unwrap();
        let Some(mut parser) = install::find(&root) else {
            println!(
                "NOT RUN: Microsoft's parser is not installed; `cargo xtask test` installs it"
            );
            return;
        };
        parser
            .start(&std::env::temp_dir().join(format!("emmer-tsql-{}.log", std::process::id())))
            .unwrap();
        let good =
            statement("good", "SELECT @P1 FROM [t] WITH (HOLDLOCK)\nWHERE [a] = 0x00 ORDER BY [b]");
        let broken = statement("broken", "SELECT 1 FROM t\nWHERE NOT EXIST (SELECT 1);");
        assert_eq!(check(&mut parser, std::slice::from_ref(&good)).unwrap(), Vec::<String>::new());
        let wrong = check(&mut parser, &[good.clone(), broken, good]).unwrap();
        assert!(
            !wrong.is_empty() && wrong.iter().all(|line| line.starts_with("broken: ")),
            "{wrong:?}"
        );
        assert!(wrong[0].contains("non-boolean"), "{wrong:?}");
    }
}
