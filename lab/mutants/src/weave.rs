//! Many mutants in one source: every function that one changes gets a body for each, and the
//! process chooses by a number in its environment.
//!
//! So a hundred mutants are compiled at once, and unmutated code is compiled once. The price is
//! that a mutant has to lie within the body of one function, which does not return `impl Trait`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Mutant;
use super::sites::{self, Function};

/// The variable with the number of the mutant that is to run; without it none is.
pub(crate) const VARIABLE: &str = "EMMER_MUTANT";

/// Code that the crates' roots get: it selects the mutant that runs.
pub(crate) const CHOICE: &str = "
/// Number of the mutant that runs; 0: none.
pub(crate) fn chosen_mutant() -> u32 {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let told = || std::env::var(\"EMMER_MUTANT\").ok();
    *CHOSEN.get_or_init(|| told().and_then(|n| n.parse().ok()).unwrap_or(0))
}
";

/// A source with all its mutants in it.
#[derive(Debug)]
pub(crate) struct Woven {
    pub(crate) text: String,
    /// Lines, counted from 1, that belong to one mutant alone, and its number.
    pub(crate) lines: Vec<(Range<usize>, u32)>,
}

/// Where a mutant cannot be woven in, and why.
pub(crate) fn obstacle(mutant: &Mutant, functions: &[Function]) -> Option<String> {
    match functions.iter().find(|f| holds(f, mutant)) {
        None => Some("it is not within the body of a function (outside tests)".to_owned()),
        Some(f) if f.opaque => Some(format!("`{}` returns impl Trait", f.name)),
        Some(_) => None,
    }
}

fn holds(function: &Function, mutant: &Mutant) -> bool {
    function.body.start < mutant.at.start && mutant.at.end < function.body.end
}

/// The names of the functions that lose their `const`, of files and their mutants: the choice is
/// not
/// `const`, and neither is a function that calls one that makes a choice.
pub(crate) fn inconstant(files: &[(&str, &[(u32, &Mutant)])]) -> Result<BTreeSet<String>, String> {
    let mut constant = Vec::new();
    let mut lost = BTreeSet::new();
    for (text, mutants) in files {
        for function in sites::functions(text)?.into_iter().filter(|f| f.constness.is_some()) {
            if mutants.iter().any(|(_, mutant)| holds(&function, mutant)) {
                lost.insert(function.name);
            } else {
                constant.push((function.name, &text[function.body]));
            }
        }
    }
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut before = 0;
    while before < lost.len() {
        before = lost.len();
        let calls_lost = |body: &str| body.split(|c| !is_word(c)).any(|word| lost.contains(word));
        let callers = constant.iter().filter(|(_, body)| calls_lost(body));
        let callers: Vec<_> = callers.map(|(name, _)| name.clone()).collect();
        lost.extend(callers);
    }
    Ok(lost)
}

/// Weaves `mutants`, each with its number, into `text`. The functions called `inconstant` lose
/// their
/// `const`.
pub(crate) fn weave(
    text: &str,
    mutants: &[(u32, &Mutant)],
    inconstant: &BTreeSet<String>,
) -> Result<Woven, String> {
    let functions = sites::functions(text)?;
    if let Some((_, mutant)) =
        mutants.iter().find(|(_, m)| text.get(m.at.clone()) != Some(m.before.as_str()))
    {
        return Err(format!("the file has changed since `{}` was placed in it", mutant.name));
    }
    let mut woven = String::with_capacity(text.len() * 2);
    let mut lines = Vec::new();
    let mut done = 0;
    for function in &functions {
        let lost = function.constness.as_ref().filter(|_| inconstant.contains(&function.name));
        if let Some(word) = lost {
            woven += &text[done..word.start];
            done = word.end;
        }
        let here: BTreeMap<u32, &Mutant> =
            mutants.iter().filter(|(_, m)| holds(function, m)).map(|(n, m)| (*n, *m)).collect();
        if here.is_empty() {
            continue;
        }
        woven += &text[done..function.body.start];
        woven += "{ match crate::chosen_mutant() {\n";
        for (number, mutant) in here {
            let from = woven.matches('\n').count() + 1;
            let before = &text[function.body.start..mutant.at.start];
            let after = &text[mutant.at.end..function.body.end];
            woven += &format!("{number} => {before}{}{after}\n", mutant.after);
            lines.push((from..woven.matches('\n').count() + 1, number));
        }
        woven += &format!("_ => {}\n}} }}", &text[function.body.clone()]);
        done = function.body.end;
    }
    woven += &text[done..];
    Ok(Woven { text: woven, lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_gets_a_body_and_its_lines() {
        let text = "const fn a() -> u8 {\n    1\n}\nfn b() -> u8 {\n    a() + 2\n}\n";
        let mutant = |name: &str, find: &str, after: &str| {
            let at = text.find(find).unwrap();
            Mutant::new(name.to_owned(), "x.rs", at..at + find.len(), text, after.to_owned())
        };
        let (one, two) = (mutant("one", "+", "-"), mutant("two", "2", "3"));
        let mutants: [(u32, &Mutant); 2] = [(1, &one), (2, &two)];
        let lost = inconstant(&[(text, &mutants)]).unwrap();
        assert!(lost.is_empty(), "no function that is `const` makes a choice");
        let woven = weave(text, &mutants, &lost).unwrap();
        assert!(
            woven.text.starts_with("const fn a() -> u8 {\n    1\n}\nfn b() -> u8 { match"),
            "{}",
            woven.text
        );
        let lines: Vec<&str> = woven.text.lines().collect();
        let first = woven.lines[0].0.clone();
        assert_eq!(lines[first.start - 1..first.end - 1], ["1 => {", "    a() - 2", "}"]);
        assert!(syn::parse_file(&woven.text).is_ok());
        assert_eq!(woven.lines.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn functions_that_make_a_choice_and_their_callers_lose_their_const() {
        let text =
            "const fn a() -> u8 { 1 }\nconst fn b() -> u8 { a() }\nconst fn c() -> u8 { 3 }\n";
        let at = text.find('1').unwrap();
        let mutant = Mutant::new("m".to_owned(), "x.rs", at..at + 1, text, "2".to_owned());
        let other = "pub const fn d() -> u8 { b() }";
        let lost = inconstant(&[(text, &[(1, &mutant)]), (other, &[])]).unwrap();
        assert_eq!(lost.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "d"]);
        assert_eq!(weave(other, &[], &lost).unwrap().text, "pub  fn d() -> u8 { b() }");
    }

    #[test]
    fn what_cannot_be_woven_is_said() {
        let text = "const A: u8 = 1;\nfn b() -> impl Fn() {\n    c\n}\n";
        let functions = sites::functions(text).unwrap();
        let at = |find: &str| {
            let at = text.find(find).unwrap();
            Mutant::new("m".to_owned(), "x.rs", at..at + 1, text, "2".to_owned())
        };
        assert!(obstacle(&at("1"), &functions).is_some());
        assert!(obstacle(&at("c\n"), &functions).is_some_and(|why| why.contains("impl Trait")));
    }
}
