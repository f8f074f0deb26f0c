//! The last commits of a partition in its version row: the rows that each wrote. For stores whose
//! servers page partitions ([`crate::one_moment`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::contract::{Etag, Mutation};
use crate::silos::VERSION_ROW;

/// The room that a version row has for the last commits. It is written with every commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The most commits.
    pub commits: usize,
    /// The most bytes of all their keys and etags.
    pub bytes: usize,
}

impl Default for Room {
    /// For services that ask money for each kilobyte.
    fn default() -> Self {
        Self { commits: 64, bytes: 4 << 10 }
    }
}

/// Maximum commits that are understood, from any writer.
const COMMITS_MAX: usize = 1_024;

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Commit {
    /// The etag of the version row before it.
    before: Etag,
    /// The rows that it wrote or deleted, the version row among them.
    keys: Vec<String>,
}

impl Commit {
    fn bytes(&self) -> usize {
        self.before.len() + self.keys.iter().map(|key| key.len() + 8).sum::<usize>()
    }
}

/// The last commits of a partition, newest first: as many as there is room for, and none left out
/// between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent(Vec<Commit>);

impl Recent {
    /// These commits and one more, which found `before` and consists of `mutations`.
    #[must_use]
    pub fn then(&self, before: &Etag, mutations: &[Mutation], room: Room) -> Self {
        let written = mutations.iter().filter(|one| !matches!(one, Mutation::Check { .. }));
        let keys = written.map(|one| one.row_key().to_owned()).collect();
        let newest = Commit { before: before.clone(), keys };
        let mut left = room.bytes;
        let fits = |commit: &Commit| {
            left = left.checked_sub(commit.bytes())?;
            Some(commit.clone())
        };
        let commits = std::iter::once(&newest).chain(&self.0).take(room.commits);
        Self(commits.map_while(fits).collect())
    }

    /// Every row that was written since the version row had this etag, the version row among them.
    /// None if that is older than the list.
    pub fn since(&self, etag: &Etag) -> Option<BTreeSet<String>> {
        let last = self.0.iter().position(|commit| commit.before == *etag)?;
        Some(self.0.iter().take(last + 1).flat_map(|commit| commit.keys.iter().cloned()).collect())
    }

    /// The rows that several of the commits wrote: they are likely to be written again.
    pub fn written_again(&self) -> BTreeSet<String> {
        let mut once = BTreeSet::new();
        let keys = self.0.iter().flat_map(|commit| &commit.keys);
        keys.filter(|key| !once.insert(key.as_str())).cloned().collect()
    }

    /// As texts, for a column of the store's own in the version row that has the etag `own`.
    pub fn to_texts(&self, own: &Etag) -> Vec<String> {
        let texts = self.0.iter().flat_map(|commit| {
            let head = format!("{} {}", commit.keys.len(), commit.before);
            std::iter::once(head).chain(commit.keys.iter().cloned())
        });
        std::iter::once(own.to_string()).chain(texts).collect()
    }

    /// Reads the texts in a version row with the etag `own`. None if they are not such texts, or
    /// were written with another etag: a writer that does not know them has left them as they were.
    pub fn of_texts(own: &Etag, texts: impl IntoIterator<Item = String>) -> Self {
        let mut texts = texts.into_iter();
        let mut commits = Vec::new();
        if texts.next().as_deref() != Some(own) {
            return Self::default();
        }
        while let Some(head) = texts.next() {
            let parts = head.split_once(' ');
            let number = parts.and_then(|(number, before)| Some((number.parse().ok()?, before)));
            let Some((number, before)) = number else { return Self::default() };
            let keys: Vec<String> = texts.by_ref().take(number).collect();
            if keys.len() != number || commits.len() == COMMITS_MAX {
                return Self::default();
            }
            commits.push(Commit { before: before.into(), keys });
        }
        Self(commits)
    }
}

/// The partitions whose last commits are remembered.
const PARTITIONS_MAX: usize = 1_024;

/// A table and a partition of it.
type Place = (&'static str, String);

/// The last commits of its partitions that a store has seen, so that its own commits continue from
/// there.
#[derive(Debug, Default)]
pub struct Seen {
    room: Room,
    partitions: Mutex<HashMap<Place, (Etag, Recent)>>,
}

impl Seen {
    /// For commits that say as much.
    pub fn with(room: Room) -> Self {
        Self { room, partitions: Mutex::default() }
    }

    /// The version row of a partition has this etag and says this.
    pub fn learn(&self, table: &'static str, partition: &str, etag: &Etag, recent: Recent) {
        let mut seen = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (table, partition.to_owned());
        if seen.len() >= PARTITIONS_MAX && !seen.contains_key(&key) {
            seen.clear();
        }
        seen.insert(key, (etag.clone(), recent));
    }

    /// The commits that the version row has to name behind a commit. None if the commit does not
    /// write it, or writes it without knowing its content.
    pub fn after(
        &self,
        table: &'static str,
        partition: &str,
        mutations: &[Mutation],
    ) -> Option<Recent> {
        let version = mutations.iter().find_map(|mutation| match mutation {
            Mutation::Replace { row, etag } if row.key() == VERSION_ROW => Some(etag),
            _ => None,
        })?;
        let seen = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.get(&(table, partition.to_owned()));
        let before = known.filter(|(etag, _)| etag == version).map(|(_, recent)| recent.clone());
        Some(before.unwrap_or_default().then(version, mutations, self.room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Row;

    fn etag(n: usize) -> Etag {
        format!("e{n}").into()
    }

    fn writing(keys: &[&str]) -> Vec<Mutation> {
        let checked = Mutation::Check { row_key: "checked".to_owned(), etag: etag(0) };
        let written = keys.iter().map(|key| Mutation::Upsert { row: Row::new(*key) });
        written.chain([checked]).collect()
    }

    #[test]
    fn what_was_written_since_is_known_as_far_back_as_it_is_kept() {
        let mut recent = Recent::default();
        for n in 0..100 {
            let key = format!("k{n}");
            recent = recent.then(&etag(n), &writing(&[&key]), Room::default());
        }
        assert_eq!(recent.0.len(), 64);
        assert_eq!(recent.since(&etag(35)), None);
        assert_eq!(recent.since(&etag(100)), None, "nothing came after it, or it is not known");
        assert_eq!(recent.since(&etag(36)).unwrap().len(), 64);
        assert_eq!(recent.since(&etag(98)).unwrap(), ["k98", "k99"].map(str::to_owned).into());
    }

    #[test]
    fn it_takes_no_more_bytes_than_it_may() {
        let long = "k".repeat(1_000);
        let mut recent = Recent::default();
        for n in 0..10 {
            recent = recent.then(&etag(n), &writing(&[&long]), Room::default());
        }
        assert!(recent.0.iter().map(Commit::bytes).sum::<usize>() <= 4_096);
        assert!(recent.since(&etag(7)).is_some() && recent.since(&etag(1)).is_none());
        let keys: Vec<String> = (0..99).map(|n| format!("{n}{}", "k".repeat(100))).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let too_much = recent.then(&etag(10), &writing(&keys), Room::default());
        assert_eq!(too_much, Recent::default(), "a commit that does not fit leaves no gap");
    }

    #[test]
    fn it_comes_back_from_its_texts_and_nonsense_is_nothing() {
        let recent =
            Recent::default().then(&etag(1), &writing(&["a b", "", "3 x"]), Room::default());
        let recent = recent.then(&etag(2), &writing(&["c"]), Room::default());
        assert_eq!(Recent::of_texts(&etag(3), recent.to_texts(&etag(3))), recent);
        // A writer that leaves them alone has written the row since.
        assert_eq!(Recent::of_texts(&etag(4), recent.to_texts(&etag(3))), Recent::default());
        for nonsense in
            [&["e3", "x"][..], &["e3", "2 e", "one"], &["e3", "-1 e"], &["e3", "1"], &[]]
        {
            let texts = nonsense.iter().map(|text| (*text).to_owned());
            assert_eq!(Recent::of_texts(&etag(3), texts), Recent::default());
        }
    }

    #[test]
    fn a_commit_goes_on_from_what_was_seen_or_begins_anew() {
        let seen = Seen::default();
        let commit = |before: usize, key: &str| {
            let version = Mutation::Replace { row: Row::new(VERSION_ROW), etag: etag(before) };
            [vec![version], writing(&[key])].concat()
        };
        let first = seen.after("t", "p", &commit(1, "a")).unwrap();
        seen.learn("t", "p", &etag(2), first);
        let second = seen.after("t", "p", &commit(2, "b")).unwrap();
        let both = ["VersionRow", "a", "b"].map(str::to_owned).into();
        assert_eq!(second.since(&etag(1)), Some(both));
        // Another writer came between.
        let other = seen.after("t", "p", &commit(3, "b")).unwrap();
        assert_eq!(
            (other.since(&etag(1)), other.since(&etag(3)).map(|keys| keys.len())),
            (None, Some(2))
        );
        assert_eq!(seen.after("t", "p", &writing(&["a"])), None);
    }
}
