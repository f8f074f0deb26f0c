//! The lines that an operator reads of changes of the view.

use std::collections::BTreeMap;

use emmer_core::SiloAddress;
use emmer_membership::View;
use emmer_membership::changes::{Change, What, changes};

/// Number of silos above which one line of the log covers all silos that a view changes in one way.
const EACH_MAX: usize = 8;

/// Tells what a view that is in force now has changed.
pub(crate) fn tell_view(me: SiloAddress, before: &View, after: &View) {
    let (version, active) = (after.version(), after.active_count());
    for Line { what, is_warning, silo, silos, evidence } in lines(&changes(before, after)) {
        if is_warning {
            tracing::warn!(%me, version, active, silo, silos, evidence, "{what}");
        } else {
            tracing::info!(%me, version, active, silo, silos, evidence, "{what}");
        }
    }
}

/// A line about one silo, or about `silos` of them.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    what: String,
    is_warning: bool,
    /// Its name and its address.
    silo: Option<String>,
    silos: Option<usize>,
    evidence: Option<String>,
}

fn lines(all: &[Change]) -> Vec<Line> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    all.iter().for_each(|change| *counts.entry(change.what.word()).or_default() += 1);
    let mut lines = Vec::new();
    for Change { silo, what } in all {
        let mut line = Line {
            what: what.to_string(),
            is_warning: matches!(
                what,
                What::Suspected { .. } | What::Died { .. } | What::GivenUp | What::Replaced { .. }
            ),
            silo: None,
            silos: None,
            evidence: None,
        };
        match counts.get(what.word()).copied() {
            // The line for all of them was written.
            None => continue,
            Some(many) if many > EACH_MAX => {
                counts.remove(what.word());
                line.silos = Some(many);
            }
            Some(_) => {
                line.silo = Some(format!("{} ({})", silo.instance_name, silo.address));
                line.evidence = Some(what.evidence().join("; ")).filter(|text| !text.is_empty());
            }
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use emmer_core::{SiloEntry, SiloStatus, Timestamp};

    use super::*;

    #[test]
    fn many_silos_that_change_alike_have_one_line_of_the_same_level() {
        let change = |n: usize, what: What| {
            let address = format!("10.0.0.1:{}:7", 1_000 + n).parse().unwrap();
            let mut silo = SiloEntry::new(address, SiloStatus::Dead, Timestamp::from_millis(0));
            silo.instance_name = format!("s{n}").into();
            Change { silo: Arc::new(silo), what }
        };
        let died = |n| change(n, What::Died { votes: Vec::new() });
        let few: Vec<_> = (0..EACH_MAX).map(died).collect();
        let told = lines(&few);
        assert!(told.len() == EACH_MAX && told.iter().all(|line| line.is_warning));
        assert_eq!(told[3].silo.as_deref(), Some("s3 (10.0.0.1:1003:7)"));
        let mut many: Vec<_> = (0..=EACH_MAX).map(died).collect();
        many.push(change(99, What::Joined));
        let told = lines(&many);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].is_warning && told[0].silos == Some(EACH_MAX + 1), "{told:?}");
        assert!(!told[1].is_warning && told[1].silo.is_some(), "{told:?}");
    }
}
