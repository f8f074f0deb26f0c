//! Changes of the membership between two pictures.

use std::collections::{BTreeMap, VecDeque};

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, Timestamp};
use serde::Serialize;

/// Number of changes that are kept.
const KEPT_MAX: usize = 500;

/// A change of the membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// Time at which it was seen, in milliseconds since 1970.
    pub at_ms: i64,
    /// The silo that it is about.
    pub silo: SiloAddress,
    /// Its name.
    pub name: String,
    /// The change, in words.
    pub words: String,
}

/// The changes so far, and the members as they were last seen.
#[derive(Default)]
pub(crate) struct Events {
    known: Option<BTreeMap<SiloAddress, SiloEntry>>,
    kept: VecDeque<Event>,
}

impl Events {
    /// Takes the members as they are now.
    pub(crate) fn see(&mut self, members: &[SiloEntry], now: Timestamp) {
        let is_first = self.known.is_none();
        let known = self.known.take().unwrap_or_default();
        let rows: BTreeMap<_, _> = members.iter().map(|row| (row.address, row.clone())).collect();
        if !is_first {
            let told: Vec<_> =
                rows.values().flat_map(|row| changes(known.get(&row.address), row)).collect();
            for (row, words) in told {
                self.kept.push_front(Event {
                    at_ms: now.as_millis(),
                    silo: row.address,
                    name: row.instance_name.to_string(),
                    words,
                });
            }
            self.kept.truncate(KEPT_MAX);
        }
        self.known = Some(rows);
    }

    /// The changes, latest first.
    pub(crate) fn latest(&self) -> Vec<Event> {
        self.kept.iter().cloned().collect()
    }
}

/// Changes of a silo's row since the last look, in words.
fn changes<'a>(before: Option<&SiloEntry>, row: &'a SiloEntry) -> Vec<(&'a SiloEntry, String)> {
    let mut words = Vec::new();
    let old_votes = before.map(|before| before.votes.as_slice()).unwrap_or_default();
    for vote in row.votes.iter().filter(|vote| !old_votes.contains(vote)) {
        if vote.voter != row.address {
            let gone = if vote.gone { " (its process is gone)" } else { "" };
            words.push(format!("is suspected by {}{gone}", vote.voter));
        }
    }
    let (old, new) = (before.map(|before| before.status), row.status);
    if old != Some(new) {
        words.push(match new {
            SiloStatus::Created | SiloStatus::Joining => "joins".to_owned(),
            SiloStatus::Active => "is active".to_owned(),
            SiloStatus::ShuttingDown | SiloStatus::Stopping => "leaves".to_owned(),
            SiloStatus::Dead => match row.votes.iter().any(|vote| vote.voter == row.address) {
                true => "has left".to_owned(),
                false => "is dead".to_owned(),
            },
        });
    }
    if let Some(before) = before
        && before.duty != row.duty
    {
        words.push(format!("has the duty {}", row.duty.name()));
    }
    words.into_iter().map(|words| (row, words)).collect()
}

#[cfg(test)]
mod tests {
    use emmer_core::Vote;

    use super::*;

    #[test]
    fn changes_are_told_from_the_second_look_on() {
        let at = Timestamp::from_millis(5);
        let address = |port: u16| -> SiloAddress { format!("127.0.0.1:{port}:1").parse().unwrap() };
        let row = |port, status| SiloEntry::new(address(port), status, at);
        let mut events = Events::default();
        events.see(&[row(1, SiloStatus::Active)], at);
        assert!(events.latest().is_empty());
        let mut suspected = row(1, SiloStatus::Active);
        suspected.votes.push(Vote { voter: address(2), at, gone: false });
        events.see(&[suspected.clone(), row(2, SiloStatus::Joining)], at);
        suspected.status = SiloStatus::Dead;
        events.see(&[suspected, row(2, SiloStatus::Active)], at);
        let words: Vec<_> = events.latest().into_iter().map(|event| event.words).collect();
        let expected = ["is active", "is dead", "joins", "is suspected by 127.0.0.1:2:1"];
        assert_eq!(words, expected);
    }
}
