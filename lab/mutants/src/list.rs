//! What is kept by hand: the named mutants, and the explanations of those that nothing finds.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::{About, Ground, Mutant};
use crate::workspace;

/// The list of explanations, beside the others.
const SURVIVORS: &str = "survivors.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    /// The file that every mutant of the list is in.
    file: String,
    mutant: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// Must occur exactly once in the file.
    find: String,
    replace: String,
    /// What a careless engineer might have thought.
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
    /// What the edit puts there: an explanation is for one edit, not for a name.
    pub(crate) after: String,
    pub(crate) kind: Kind,
    pub(crate) why: String,
}

/// What an explanation comes to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// No input makes a difference that anybody could see.
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivors {
    #[serde(default)]
    survivor: Vec<Survivor>,
}

/// Every mutant written by hand; the second list says which do not apply (any more), and why.
pub(crate) fn mutants(root: &Path, ground: Ground) -> Result<(Vec<Mutant>, Vec<String>), String> {
    let mut mutants = Vec::new();
    let mut stale = Vec::new();
    let mut names = BTreeSet::new();
    for file in workspace::text_files(&root.join(ground.lists()), &["toml"])? {
        if file.path == SURVIVORS {
            continue;
        }
        let listed: Listed = toml::from_str(&file.text)
            .map_err(|e| format!("{}/{}: {e}", ground.lists(), file.path))?;
        let path = root.join(&listed.file);
        let source =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        for entry in listed.mutant {
            if !names.insert(entry.name.clone()) {
                let at = format!("{}/{}", ground.lists(), file.path);
                return Err(format!("{at}: two mutants are named `{}`", entry.name));
            }
            match place(&entry, &listed.file, &source) {
                Ok(mutant) => mutants.push(mutant),
                Err(why) => stale.push(format!("{}: {why}", entry.name)),
            }
        }
    }
    Ok((mutants, stale))
}

fn place(entry: &Entry, file: &str, source: &str) -> Result<Mutant, String> {
    // The list's multi-line strings begin on a line of their own, and end on one.
    let (find, replace) = (entry.find.trim_end_matches('\n'), entry.replace.trim_end_matches('\n'));
    let mut places = source.match_indices(find);
    let Some((from, _)) = places.next() else {
        return Err(format!("its text is not in {file} any more"));
    };
    let others = places.count();
    if others > 0 {
        return Err(format!("its text is in {file} {} times, not once", others + 1));
    }
    Ok(Mutant {
        by_hand: true,
        about: Some(entry.about),
        breaks: entry.breaks.clone(),
        mistake: entry.mistake.clone(),
        smoke: entry.smoke,
        ..Mutant::generated(
            entry.name.clone(),
            file,
            from..from + find.len(),
            source,
            replace.to_owned(),
        )
    })
}

/// The explanations.
pub(crate) fn survivors(root: &Path, ground: Ground) -> Result<Vec<Survivor>, String> {
    let path = root.join(ground.lists()).join(SURVIVORS);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let all: Survivors = toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(all.survivor)
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

    fn entry(find: &str) -> Entry {
        Entry {
            name: "n".to_owned(),
            find: find.to_owned(),
            replace: "z".to_owned(),
            mistake: String::new(),
            breaks: String::new(),
            about: About::Safety,
            smoke: false,
        }
    }

    #[test]
    fn a_text_has_to_be_there_exactly_once() {
        assert!(place(&entry("b\n"), "f", "abc").is_ok_and(|m| m.at == (1..2)));
        assert!(place(&entry("x"), "f", "abc").is_err_and(|why| why.contains("any more")));
        assert!(place(&entry("a"), "f", "aba").is_err_and(|why| why.contains("2 times")));
    }

    #[test]
    fn an_explanation_is_for_one_edit() {
        let mutant = Mutant::generated("n".to_owned(), "f", 0..1, "a b", "c  d".to_owned());
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
