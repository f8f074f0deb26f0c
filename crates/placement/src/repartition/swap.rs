//! The choice of grains that two silos exchange.

use std::collections::BTreeMap;

use super::wish::Wish;

/// Calls that an exchanged grain has to win at least.
const LEAST_GAIN: i64 = 8;

/// Part of the mean, in percent, by which a silo may differ from it afterwards.
const DIFFER_PERCENT: u64 = 15;

/// Number of grains by which a silo may differ from a small mean.
const DIFFER_LEAST: u64 = 4;

/// The numbers of grains of the two silos, and the mean of all silos of their kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) here: u64,
    pub(super) there: u64,
    pub(super) mean: u64,
}

impl Counts {
    fn differ(self) -> u64 {
        (self.mean * DIFFER_PERCENT / 100).max(DIFFER_LEAST)
    }

    /// The greater distance from the mean.
    fn off(self) -> u64 {
        self.here.abs_diff(self.mean).max(self.there.abs_diff(self.mean))
    }

    /// The numbers after a grain has come here, if they may be so on the way to a swap: both within
    /// `most` of the mean, or closer than before. One grain more may come, for another one that
    /// goes.
    fn after_one_came(self, most: u64) -> Option<Self> {
        let Self { here, there, mean } = self;
        let differ = most + 1;
        let (here, there) = (here + 1, there.checked_sub(1)?);
        let near = here <= mean + differ && there + differ >= mean;
        (near || here <= there).then_some(Self { here, there, mean })
    }

    fn turned(self) -> Self {
        Self { here: self.there, there: self.here, mean: self.mean }
    }
}

/// The grains that change their silo, as places in the lists of wishes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) come: Vec<usize>,
    pub(super) go: Vec<usize>,
}

/// The wish at a place of one of the two lists, while the exchange is put together.
struct Open {
    hash: u64,
    gain: i64,
    with: Vec<(u64, u64)>,
    /// It goes to the other silo of the two, as far as the choice has come.
    is_taken: bool,
}

fn open(wishes: &[Wish]) -> Vec<Open> {
    let open = |wish: &Wish| Open {
        hash: wish.grain.stable_hash(),
        gain: wish.gain,
        with: wish.with.clone(),
        is_taken: false,
    };
    wishes.iter().map(open).collect()
}

/// The greedy choice: again and again the grain that wins most, as long as the numbers of grains
/// allow it. A grain that goes changes what its neighbours win: those that would go with
/// it win more, and those that would come to meet it win less.
///
/// `come` are wishes to come here and `go` wishes to go there.
pub(super) fn swap(come: &[Wish], go: &[Wish], mut counts: Counts) -> Swap {
    let mut sides = [open(come), open(go)];
    let mut swap = Swap::default();
    // The lengths of both lists when the numbers were right.
    let mut right = (0, 0);
    let mut off = counts.off();
    let most = off.max(counts.differ());
    let mut places: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for (side, wishes) in sides.iter().enumerate() {
        for (place, wish) in wishes.iter().enumerate() {
            places.entry(wish.hash).or_default().push((side, place));
        }
    }
    loop {
        let (came, gone) = (counts.after_one_came(most), counts.turned().after_one_came(most));
        let best_of = |side: usize, may: bool| {
            let open = sides[side].iter().enumerate().filter(|(_, wish)| may && !wish.is_taken);
            // Of equals the first one, so that all runs choose the same.
            let best = open.max_by_key(|(place, wish)| (wish.gain, std::cmp::Reverse(*place)));
            best.map(|(place, wish)| (wish.gain, side, place))
        };
        let best = best_of(1, gone.is_some())
            .into_iter()
            .chain(best_of(0, came.is_some()))
            .max_by_key(|b| b.0);
        let Some((_, side, place)) = best.filter(|(gain, ..)| *gain >= LEAST_GAIN) else { break };
        if side == 0 {
            counts = came.unwrap_or(counts);
            swap.come.push(place);
        } else {
            counts = gone.map_or(counts, Counts::turned);
            swap.go.push(place);
        }
        if counts.off() <= off.max(counts.differ()) {
            off = counts.off();
            right = (swap.come.len(), swap.go.len());
        }
        let taken = &mut sides[side][place];
        taken.is_taken = true;
        for (other, calls) in std::mem::take(&mut taken.with) {
            let twice = i64::try_from(calls.saturating_mul(2)).unwrap_or(i64::MAX);
            for (of, at) in places.get(&other).into_iter().flatten() {
                let wish = &mut sides[*of][*at];
                wish.gain = match *of == side {
                    true => wish.gain.saturating_add(twice),
                    false => wish.gain.saturating_sub(twice),
                };
            }
        }
    }
    swap.come.truncate(right.0);
    swap.go.truncate(right.1);
    swap
}

#[cfg(test)]
mod tests {
    use emmer_core::{GrainId, GrainTypeId};

    use super::*;

    fn wish(n: u64, gain: i64, with: &[(u64, u64)]) -> Wish {
        let grain = |n: u64| GrainId::new(GrainTypeId::of("g"), n);
        let with = with.iter().map(|(other, calls)| (grain(*other).stable_hash(), *calls));
        Wish { grain: grain(n), gain, with: with.collect() }
    }

    fn counts(here: u64, there: u64) -> Counts {
        Counts { here, there, mean: (here + there) / 2 }
    }

    #[test]
    fn two_that_talk_do_not_change_places() {
        let one = [wish(1, 100, &[(2, 100)])];
        let two = [wish(2, 100, &[(1, 100)])];
        assert_eq!(swap(&one, &two, counts(50, 50)), Swap { come: vec![0], go: vec![] });
    }

    #[test]
    fn friends_follow_a_grain_that_goes() {
        // The second talks with the first more than with the other silo.
        let come = [wish(1, 100, &[(2, 60)]), wish(2, -20, &[(1, 60)])];
        assert_eq!(swap(&come, &[], counts(50, 50)), Swap { come: vec![0, 1], go: vec![] });
    }

    #[test]
    fn the_numbers_stay_close_and_may_come_closer() {
        let come: Vec<_> = (0..100).map(|n| wish(n, 100, &[])).collect();
        let swapped = swap(&come, &[], counts(100, 100));
        assert_eq!(swapped.come.len(), 15, "fifteen percent of a hundred");
        assert_eq!(swap(&come, &[], counts(100, 180)).come.len(), 61, "from too few to the most");
        let go: Vec<_> = (200..260).map(|n| wish(n, 50, &[])).collect();
        let swapped = swap(&come, &go, counts(100, 100));
        assert_eq!((swapped.come.len(), swapped.go.len()), (75, 60));
        assert_eq!(swap(&come, &[], counts(0, 0)), Swap::default(), "there is none");
        let far = Counts { here: 100, there: 100, mean: 80 };
        assert_eq!(swap(&come, &[], far), Swap::default(), "both have too many");
        let swapped = swap(&come, &go, far);
        assert_eq!((swapped.come.len(), swapped.go.len()), (60, 60), "one for one");
    }

    #[test]
    fn little_gains_move_nothing() {
        assert_eq!(swap(&[wish(1, LEAST_GAIN - 1, &[])], &[], counts(50, 50)), Swap::default());
    }
}
