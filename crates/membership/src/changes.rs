//! The changes from one view to a later one: for logs and for the history.

use std::fmt;
use std::sync::Arc;

use emmer_core::{Duty, SiloAddress, SiloEntry, SiloStatus, Vote};

use crate::view::View;

/// A change of one silo's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row now; its last content, if it is gone.
    pub silo: Arc<SiloEntry>,
    /// The kind of change.
    pub what: What,
}

/// The kinds of changes of a silo.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// It has begun to join.
    Joins,
    /// It has joined.
    Joined,
    /// Silos suspect it that did not before.
    Suspected {
        /// Their votes.
        votes: Vec<Vote>,
    },
    /// No silo suspects it any longer.
    Trusted,
    /// An operator has given it another duty, or it has done that duty.
    Duty(Duty),
    /// It leaves.
    Leaves,
    /// It has left.
    Left,
    /// It did not finish joining, and was given up.
    GivenUp,
    /// It was declared dead.
    Died {
        /// The votes against it.
        votes: Vec<Vote>,
    },
    /// A silo that started later on the same address took its place.
    Replaced {
        /// That one.
        by: SiloAddress,
    },
    /// Its row was cleaned up.
    Removed,
}

impl What {
    /// One word, for programs: `joined`, `suspected`, `died`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Joins => "joins",
            Self::Joined => "joined",
            Self::Suspected { .. } => "suspected",
            Self::Trusted => "trusted",
            Self::Duty(duty) => duty.word(),
            Self::Leaves => "leaves",
            Self::Left => "left",
            Self::GivenUp => "given-up",
            Self::Died { .. } => "died",
            Self::Replaced { .. } => "replaced",
            Self::Removed => "removed",
        }
    }

    /// The evidence, one line for each piece: the votes, or the silo that took the place.
    pub fn evidence(&self) -> Vec<String> {
        match self {
            Self::Died { votes } if votes.is_empty() => {
                vec!["no silo has voted: an operator declared it dead".to_owned()]
            }
            Self::Suspected { votes } | Self::Died { votes } => votes.iter().map(told).collect(),
            Self::Replaced { by } => vec![format!("{by} started on the same address")],
            _ => Vec::new(),
        }
    }
}

/// A vote in words.
fn told(vote: &Vote) -> String {
    let Vote { voter, at, gone } = vote;
    let why = if *gone { "its process is gone" } else { "it does not answer" };
    format!("{voter} at {at}: {why}")
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Joins => "a silo joins",
            Self::Joined => "a silo has joined",
            Self::Suspected { .. } => "a silo is suspected",
            Self::Trusted => "a silo is no longer suspected",
            Self::Duty(Duty::Full) => "a silo has its full duty again",
            Self::Duty(Duty::Giving) => "a silo is to give grains away",
            Self::Duty(Duty::Cordoned) => "a silo is cordoned",
            Self::Duty(Duty::Draining) => "a silo is to be drained",
            Self::Duty(Duty::Drained) => "a silo is drained",
            Self::Duty(Duty::Leaving) => "a silo is asked to leave",
            Self::Leaves => "a silo leaves",
            Self::Left => "a silo has left",
            Self::GivenUp => "a silo did not finish joining",
            Self::Died { .. } => "a silo was declared dead",
            Self::Replaced { .. } => "a silo was replaced",
            Self::Removed => "the row of a silo was cleaned up",
        })
    }
}

/// The changes from `before` to `after`, by address.
pub fn changes(before: &View, after: &View) -> Vec<Change> {
    let gone = before.members().iter().filter(|row| after.get(&row.address).is_none());
    let gone = gone.map(|row| Change { silo: row.clone(), what: What::Removed });
    let now = after.members().iter().flat_map(|row| {
        let known = before.get(&row.address);
        // Rows that did not change are shared.
        let same = known.is_some_and(|known| Arc::ptr_eq(known, row));
        let by = after.successor_of(&row.address).map(|later| later.address);
        (!same).then(|| change(known.map(|known| &**known), row, by)).flatten()
    });
    let mut all: Vec<_> = gone.chain(now).collect();
    all.sort_by_key(|change| change.silo.address);
    all
}

/// The change between the row `before` and now; `successor` is the silo that took
/// its place, if there is one.
pub fn change(
    before: Option<&SiloEntry>,
    after: &Arc<SiloEntry>,
    successor: Option<SiloAddress>,
) -> Option<Change> {
    let status = before.map(|row| row.status);
    let what = if status == Some(after.status) {
        let votes = before.map_or(&[][..], |row| &row.votes);
        let is_new = |vote: &&Vote| !votes.iter().any(|known| known.voter == vote.voter);
        let new: Vec<Vote> = after.votes.iter().filter(is_new).cloned().collect();
        match () {
            () if after.status == SiloStatus::Dead => return None,
            () if before.is_some_and(|row| row.duty != after.duty) => What::Duty(after.duty),
            () if !new.is_empty() => What::Suspected { votes: new },
            () if after.votes.is_empty() && !votes.is_empty() => What::Trusted,
            () => return None,
        }
    } else {
        match after.status {
            SiloStatus::Created => return None,
            SiloStatus::Joining => What::Joins,
            SiloStatus::Active => What::Joined,
            SiloStatus::ShuttingDown | SiloStatus::Stopping => {
                if status.is_some_and(SiloStatus::is_terminating) {
                    return None;
                }
                What::Leaves
            }
            SiloStatus::Dead => match successor {
                // A row that was Dead before this silo knew it is not news.
                _ if status.is_none() => return None,
                Some(by) => What::Replaced { by },
                // Its own vote says that it has left.
                None if after.votes.iter().any(|vote| vote.voter == after.address) => What::Left,
                None if !after.votes.is_empty() => What::Died { votes: after.votes.clone() },
                None if matches!(status, Some(SiloStatus::Created | SiloStatus::Joining)) => {
                    What::GivenUp
                }
                // Silos declare no silo dead without a vote: an operator did.
                None if status == Some(SiloStatus::Active) => What::Died { votes: Vec::new() },
                None => What::Left,
            },
        }
    };
    Some(Change { silo: after.clone(), what })
}

#[cfg(test)]
mod tests {
    use emmer_core::{TableVersion, Timestamp};

    use super::*;

    fn row(silo: &str, status: SiloStatus, voters: &[&str]) -> Arc<SiloEntry> {
        let mut row = SiloEntry::new(silo.parse().unwrap(), status, Timestamp::from_millis(0));
        let vote = |voter: &&str| Vote {
            voter: voter.parse().unwrap(),
            at: Timestamp::from_millis(7),
            gone: voter.ends_with('3'),
        };
        row.votes = voters.iter().map(vote).collect();
        Arc::new(row)
    }

    fn view(rows: &[&Arc<SiloEntry>]) -> View {
        View::new(TableVersion::default(), rows.iter().map(|row| (*row).clone()).collect())
    }

    fn words(before: &[&Arc<SiloEntry>], after: &[&Arc<SiloEntry>]) -> Vec<&'static str> {
        let all = changes(&view(before), &view(after));
        all.iter().map(|change| change.what.word()).collect()
    }

    const A: &str = "10.0.0.1:1:1";
    const LATER: &str = "10.0.0.1:1:2";
    const B: &str = "10.0.0.2:1:3";

    #[test]
    fn a_silos_life_is_told_step_by_step() {
        use SiloStatus::{Active, Created, Dead, Joining, ShuttingDown, Stopping};
        let of = |status| row(A, status, &[]);
        let steps: [(&[_], &[_], &[&str]); 12] = [
            (&[], &[of(Created)], &[]),
            (&[of(Created)], &[of(Joining)], &["joins"]),
            (&[of(Joining)], &[of(Active)], &["joined"]),
            (&[of(Active)], &[of(Active)], &[]),
            (&[of(Active)], &[of(ShuttingDown)], &["leaves"]),
            (&[of(ShuttingDown)], &[of(Stopping)], &[]),
            (&[of(Stopping)], &[of(Dead)], &["left"]),
            (&[of(Active)], &[of(Dead)], &["died"]),
            (&[of(Joining)], &[of(Dead)], &["given-up"]),
            (&[], &[of(Dead)], &[]),
            (&[of(Active)], &[of(Dead), row(LATER, Joining, &[])], &["replaced", "joins"]),
            (&[of(Dead)], &[], &["removed"]),
        ];
        for (before, after, told) in steps {
            let (before, after): (Vec<_>, Vec<_>) =
                (before.iter().collect(), after.iter().collect());
            assert_eq!(words(&before, &after), told, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_suspicion_names_who_suspects_and_why() {
        let (trusted, suspected) =
            (row(A, SiloStatus::Active, &[]), row(A, SiloStatus::Active, &[B]));
        let dead = row(A, SiloStatus::Dead, &[B]);
        let told = |before: &Arc<SiloEntry>, after: &Arc<SiloEntry>| {
            let all = changes(&view(&[before]), &view(&[after]));
            all.iter().map(|c| (c.what.word(), c.what.evidence())).collect::<Vec<_>>()
        };
        let by_b = vec![format!("{B} at 1970-01-01T00:00:00.007Z: its process is gone")];
        assert_eq!(told(&trusted, &suspected), [("suspected", by_b.clone())]);
        assert_eq!(told(&suspected, &suspected), []);
        assert_eq!(told(&suspected, &trusted), [("trusted", Vec::new())]);
        assert_eq!(told(&suspected, &dead), [("died", by_b)]);
        let by_itself = row(A, SiloStatus::Dead, &[A]);
        assert_eq!(told(&suspected, &by_itself), [("left", Vec::new())]);
        assert_eq!(told(&dead, &dead), []);
    }
}
