//! The lists that are kept by hand: the named mutants, and the explanations of those that nothing
//! finds.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use super::{About, Ground, Mutant, sites};

/// A list, as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    mutant: Vec<Entry>,
    #[serde(default)]
    survivor: Vec<Survivor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    file: String,
    /// The function that it is in.
    within: String,
    /// Must occur exactly once in the function, whatever its white space and comments.
    find: String,
    replace: String,
    /// Thought of a careless engineer.
    mistake: String,
    /// The invariant, or the promise in a few words.
    breaks: String,
    about: About,
    #[serde(default)]
    smoke: bool,
}

/// Why nothing finds a mutant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Survivor {
    pub(crate) mutant: String,
    /// Text that the edit puts there: an explanation is for one edit, not for a name.
    pub(crate) after: String,
    pub(crate) kind: Kind,
    pub(crate) why: String,
}

/// Kind of an explanation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// No input makes a visible difference.
    Equivalent,
    /// It costs time, memory or messages, and breaks nothing that is promised.
    Cost,
    /// A second rule holds the same promise alone: defence in depth.
    Redundant,
    /// A promise is broken and no check looks there yet.
    Gap,
}

impl Kind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Equivalent => "equivalent",
            Self::Cost => "cost",
            Self::Redundant => "redundant",
            Self::Gap => "gap",
        }
    }
}

/// The most mutants that the lists hold together: each is a promise, and mechanical ones belong to
/// `cargo-mutants`.
#[cfg(test)]
const MUTANTS_MAX: usize = 110;

/// A whole list: its mutants, those that do not apply and why, and the explanations.
pub(crate) struct List {
    pub(crate) mutants: Vec<Mutant>,
    pub(crate) stale: Vec<String>,
    pub(crate) survivors: Vec<Survivor>,
}

/// The list of this ground.
pub(crate) fn read(root: &Path, ground: Ground) -> Result<List, String> {
    let say = |e: &dyn std::fmt::Display| format!("{}: {e}", ground.list());
    let text = std::fs::read_to_string(root.join(ground.list())).map_err(|e| say(&e))?;
    let Listed { mutant: entries, survivor: survivors } =
        toml::from_str(&text).map_err(|e| say(&e))?;
    let (mut mutants, mut stale, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for entry in entries {
        if !names.insert(entry.name.clone()) {
            return Err(format!("{}: two mutants are named `{}`", ground.list(), entry.name));
        }
        let path = root.join(&entry.file);
        let source =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        match place(&entry, &source) {
            Ok(mutant) => mutants.push(mutant),
            Err(why) => stale.push(format!("{}: {why}", entry.name)),
        }
    }
    Ok(List { mutants, stale, survivors })
}

fn place(entry: &Entry, source: &str) -> Result<Mutant, String> {
    let Entry { file, within, .. } = entry;
    let find: String = bare(&entry.find).into_iter().map(|(_, c)| c).collect();
    let mut places = Vec::new();
    let mut is_there = false;
    for function in sites::functions(source).map_err(|e| format!("{file}: {e}"))? {
        if function.name == *within {
            is_there = true;
            places.extend(found(source, function.body, &find));
        }
    }
    match places.as_slice() {
        [at] => Ok(Mutant {
            about: entry.about,
            breaks: entry.breaks.clone(),
            mistake: entry.mistake.clone(),
            smoke: entry.smoke,
            ..Mutant::new(entry.name.clone(), file, at.clone(), source, entry.replace.clone())
        }),
        [] if !is_there => Err(format!("{file} has no function `{within}`")),
        [] => Err(format!("`{}` is not in `{within}` of {file}", entry.find)),
        several => {
            Err(format!("`{}` is in `{within}` of {file} {} times", entry.find, several.len()))
        }
    }
}

/// Where `find`, which is bare, occurs in this part of a source.
fn found(source: &str, part: Range<usize>, find: &str) -> Vec<Range<usize>> {
    let text = source.get(part.clone()).unwrap_or_default();
    let bare = bare(text);
    let wanted: Vec<char> = find.chars().collect();
    let window = wanted.len().max(1);
    let same = |window: &&[(usize, char)]| window.iter().map(|(_, c)| c).eq(wanted.iter());
    let places = bare.windows(window).filter(same).filter_map(|window| {
        let ((first, _), (last, end)) = (window.first()?, window.last()?);
        Some(part.start + first..part.start + last + end.len_utf8())
    });
    places.collect()
}

/// The characters of a text that are neither white space nor in a line comment, with their places.
fn bare(text: &str) -> Vec<(usize, char)> {
    let mut kept = Vec::with_capacity(text.len());
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.find("//").map_or(line, |at| line.get(..at).unwrap_or(line));
        let chars = code.char_indices().filter(|(_, c)| !c.is_whitespace());
        kept.extend(chars.map(|(at, c)| (start + at, c)));
        start += line.len();
    }
    kept
}

/// The explanation of `mutant`, if there is one for this very edit.
pub(crate) fn explanation<'a>(survivors: &'a [Survivor], mutant: &Mutant) -> Option<&'a Survivor> {
    let same = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    survivors.iter().find(|s| s.mutant == mutant.name && same(&s.after) == same(&mutant.after))
}

/// The explanations of mutants that make another edit by now.
pub(crate) fn outdated<'a>(survivors: &'a [Survivor], mutants: &[Mutant]) -> Vec<&'a str> {
    let is_outdated = |survivor: &&Survivor| {
        let mutant = mutants.iter().find(|mutant| mutant.name == survivor.mutant);
        mutant.is_some_and(|mutant| explanation(survivors, mutant).is_none())
    };
    survivors.iter().filter(is_outdated).map(|survivor| survivor.mutant.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    const SOURCE: &str = "fn f() { a(); b( // why\n  1); }\nfn g() { b(1); b(1); }";

    fn entry(within: &str, find: &str) -> Entry {
        Entry {
            name: "n".to_owned(),
            file: "f".to_owned(),
            within: within.to_owned(),
            find: find.to_owned(),
            replace: "z".to_owned(),
            mistake: String::new(),
            breaks: String::new(),
            about: About::Safety,
            smoke: false,
        }
    }

    #[test]
    fn a_text_has_to_be_in_its_function_exactly_once_whatever_its_form() {
        let mutant = place(&entry("f", "b(1);"), SOURCE).unwrap();
        assert_eq!((mutant.before.as_str(), mutant.line), ("b( // why\n  1);", 1));
        for (within, find, why) in [
            ("f", "c()", "is not in `f`"),
            ("g", "b(1)", "2 times"),
            ("h", "b(1)", "no function `h`"),
        ] {
            let refused = place(&entry(within, find), SOURCE).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn the_lists_apply_and_stay_short() {
        let root = workspace::root().unwrap();
        let mut count = 0;
        for ground in Ground::ALL {
            let list = read(&root, ground).unwrap();
            assert_eq!(list.stale, Vec::<String>::new());
            count += list.mutants.len();
        }
        assert!(count <= MUTANTS_MAX, "{count} mutants");
    }

    #[test]
    fn an_explanation_is_for_one_edit() {
        let mutant = Mutant::new("n".to_owned(), "f", 0..1, "a b", "c  d".to_owned());
        let survivor = |after: &str| Survivor {
            mutant: "n".to_owned(),
            after: after.to_owned(),
            kind: Kind::Cost,
            why: String::new(),
        };
        assert!(explanation(&[survivor("c d")], &mutant).is_some());
        assert!(explanation(&[survivor("c e")], &mutant).is_none());
        let mutants = [mutant];
        assert!(outdated(&[survivor("c d")], &mutants).is_empty());
        assert_eq!(outdated(&[survivor("c e")], &mutants), ["n"]);
        let of_another = Survivor { mutant: "m".to_owned(), ..survivor("c e") };
        assert!(outdated(&[of_another], &mutants).is_empty(), "it may be drawn another time");
    }
}
