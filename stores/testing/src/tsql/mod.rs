//! Microsoft's own T-SQL parser, before which the store on SQL Server puts its statements, since no
//! package has the server.
//!
//! The statements are put into one script, a batch each, and the parser reports mistakes in it. A
//! broken statement at the script's end must be refused: then everything before it was read.

mod install;
mod service;

use crate::Trouble;
pub use service::Parser;

/// What no parser may let pass.
const BROKEN: &str = "UPDATE t SET v = WHERE x = 1";

/// What parts one batch from the next.
const END_OF_BATCH: &str = "\nGO\n";

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Purpose, as complaints name it.
    pub what: String,
    /// It has no line that is `GO` alone: lines are counted, and such a one would end the batch.
    pub text: String,
}

/// A mistake in a script: the line, counted from 0, and the parser's words.
type Complaint = (usize, String);

/// One script of all statements and the broken one, and the first line of each; the broken one's is
/// the last.
fn script(statements: &[Statement]) -> (String, Vec<usize>) {
    let (mut text, mut begins) = (String::new(), Vec::new());
    for statement in statements.iter().map(|s| s.text.as_str()).chain([BROKEN]) {
        begins.push(text.matches('\n').count());
        text.push_str(statement);
        text.push_str(END_OF_BATCH);
    }
    (text, begins)
}

/// The statements that the parser complains about.
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

impl Parser {
    /// The parser, running; pip fetches it the first time.
    ///
    /// # Errors
    /// [`Trouble::Missing`], also when the registry cannot be reached; or it does not start.
    pub fn start() -> Result<Self, Trouble> {
        let mut parser = install::parser()?;
        parser.run().map_err(Trouble::Failed)?;
        Ok(parser)
    }

    /// Faults in `statements`, each with its purpose.
    ///
    /// # Errors
    /// The parser ends, does not answer, or lets a broken statement pass.
    pub fn check(&mut self, statements: &[Statement]) -> Result<Vec<String>, String> {
        let (script, begins) = script(statements);
        judge(statements, &begins, &self.complaints(&script)?)
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
        // A parser that refuses nothing has read nothing.
        assert!(judge(&statements, &begins, &[]).is_err());
    }

    #[test]
    fn the_parser_refuses_what_is_broken_and_nothing_else() {
        let mut parser = match Parser::start() {
            Ok(parser) => parser,
            Err(trouble) => return crate::skip("the_parser_refuses", &trouble),
        };
        let good =
            statement("good", "SELECT @P1 FROM [t] WITH (HOLDLOCK)\nWHERE [a] = 0x00 ORDER BY [b]");
        let broken = statement("broken", "SELECT 1 FROM t\nWHERE NOT EXIST (SELECT 1);");
        assert_eq!(parser.check(std::slice::from_ref(&good)).unwrap(), Vec::<String>::new());
        let wrong = parser.check(&[good.clone(), broken, good]).unwrap();
        assert!(
            !wrong.is_empty() && wrong.iter().all(|line| line.starts_with("broken: ")),
            "{wrong:?}"
        );
        assert!(wrong[0].contains("non-boolean"), "{wrong:?}");
    }
}
