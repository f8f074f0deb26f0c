//! The monitors of each silo (membership description, step 2): a function of the view alone.

use std::collections::BTreeSet;

use emmer_core::{SiloAddress, SiloStatus};

use crate::view::View;

/// The silos that `me` probes in `view`: on each ring in turn the first successor not yet picked,
/// until there are enough. With one ring: the successors on it.
pub fn ring_targets(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
) -> BTreeSet<SiloAddress> {
    let mut picked = Vec::with_capacity(wanted as usize);
    pick_targets(view, me, rings, wanted, &mut picked, |_| false);
    picked.into_iter().map(|at| view.members()[at as usize].address).collect()
}

/// Puts the positions of the targets into `picked`, in order, until `enough` returns true.
fn pick_targets(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
    picked: &mut Vec<u32>,
    enough: impl Fn(u32) -> bool,
) -> bool {
    picked.clear();
    let Some(mine) = view.position(me).and_then(|at| u32::try_from(at).ok()) else { return false };
    let (rings, wanted) = (rings.max(1) as usize, wanted as usize);
    for i in 0..wanted {
        let number = i % rings;
        let ring = view.ring(number);
        let Some(start) = view.place(number, mine).map(|place| place + 1) else { return false };
        let next = ring[start..]
            .iter()
            .chain(&ring[..start])
            .map(|(_, at)| *at)
            .find(|at| !picked.contains(at) && !view.address_at(*at).same_endpoint(me));
        let Some(next) = next else { break };
        picked.push(next);
        if enough(next) {
            return true;
        }
    }
    false
}

/// Returns true if `silo` is one of the [`monitors_of`] `target`.
pub(crate) fn is_monitored_by(
    view: &View,
    target: &SiloAddress,
    silo: &SiloAddress,
    rings: u32,
    wanted: u32,
) -> bool {
    let Some(at) = view.position(target).and_then(|at| u32::try_from(at).ok()) else {
        return false;
    };
    view.get(silo).is_some_and(|row| row.status == SiloStatus::Active)
        && pick_targets(view, silo, rings, wanted, &mut Vec::new(), |picked| picked == at)
}

/// The Active silos that probe `me` in `view`: exactly the silos whose [`ring_targets`] name it.
pub(crate) fn monitors_of(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
) -> BTreeSet<SiloAddress> {
    find_monitors(view, me, rings, wanted, |status| status == SiloStatus::Active)
}

/// As [`monitors_of`], with silos that are Joining: a later view, which has not come yet, may say
/// that they are Active.
pub(crate) fn monitors_to_be(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
) -> BTreeSet<SiloAddress> {
    find_monitors(view, me, rings, wanted, |status| {
        matches!(status, SiloStatus::Active | SiloStatus::Joining)
    })
}

/// A silo picks `me` on a ring only if it has already picked all silos between the two, and it
/// picks one silo at a time. So it stands on that ring no further before `me` than the number of
/// its earlier picks.
fn find_monitors(
    view: &View,
    me: &SiloAddress,
    rings: u32,
    wanted: u32,
    probes: impl Fn(SiloStatus) -> bool,
) -> BTreeSet<SiloAddress> {
    let mut found = BTreeSet::new();
    let Some(mine) = view.position(me).and_then(|at| u32::try_from(at).ok()) else { return found };
    let mut picked = Vec::with_capacity(wanted as usize);
    let mut refused = Vec::new();
    let used = rings.max(1).min(wanted.max(1)) as usize;
    for number in 0..used {
        let ring = view.ring(number);
        let Some(start) = view.place(number, mine) else { return found };
        // The last pick on this ring comes after all others but those on later rings.
        let last_pick = (wanted as usize - 1 - number) / used * used + number;
        let before = ring[..start].iter().rev().chain(ring[start..].iter().rev());
        let mut next = mine;
        for (_, at) in before.take(last_pick + 1) {
            let (silo, after) = (*view.address_at(*at), std::mem::replace(&mut next, *at));
            if !probes(view.status_at(*at))
                || silo == *me
                || found.contains(&silo)
                || refused.contains(&silo)
            {
                continue;
            }
            if wanted as usize <= used && after != mine && stops_at(view, *at, after, number) {
                continue;
            }
            if pick_targets(view, &silo, rings, wanted, &mut picked, |target| target == mine) {
                found.insert(silo);
            } else {
                refused.push(silo);
            }
        }
    }
    found
}

/// Returns true if the silo at `at`, which picks once on each ring, picks on ring `number` its
/// successor there, the silo at `after`: it has not picked that one before, because it stands too
/// far from it on all earlier rings. A quick answer for almost all silos of a large cluster; false
/// says nothing.
fn stops_at(view: &View, at: u32, after: u32, number: usize) -> bool {
    let is_near = |earlier: usize| {
        let (Some(from), Some(to)) = (view.place(earlier, at), view.place(earlier, after)) else {
            return true;
        };
        // By then it has picked `earlier` others.
        let count = view.ring(earlier).len();
        (to + count - from) % count <= earlier + 1
    };
    // It skips silos of its own endpoint, if there are any.
    !view.shares_endpoint(at) && !(0..number).any(is_near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmer_core::{SiloEntry, TableVersion, Timestamp};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn view(n: u16) -> (View, Vec<SiloAddress>) {
        let silos: Vec<SiloAddress> =
            (0..n).map(|i| format!("10.0.0.1:{}:1", 1000 + i).parse().unwrap()).collect();
        let rows = silos
            .iter()
            .map(|s| Arc::new(SiloEntry::new(*s, SiloStatus::Active, Timestamp::default())))
            .collect();
        (
            View::new(
                TableVersion { number: 1, etag: "1".into(), ..TableVersion::default() },
                rows,
            ),
            silos,
        )
    }

    #[test]
    fn everybody_is_probed_by_exactly_as_many_as_it_probes_on_one_ring() {
        let (view, silos) = view(40);
        let mut probed = BTreeMap::new();
        for silo in &silos {
            let targets = ring_targets(&view, silo, 1, 3);
            assert!(targets.len() == 3 && !targets.contains(silo));
            for target in targets {
                *probed.entry(target).or_insert(0) += 1;
            }
        }
        assert!(probed.len() == 40 && probed.values().all(|n| *n == 3));
    }

    #[test]
    fn small_clusters_probe_everybody() {
        let (view, silos) = view(3);
        assert_eq!(ring_targets(&view, &silos[0], 10, 10).len(), 2);
        assert_eq!(monitors_of(&view, &silos[0], 10, 10).len(), 2);
    }

    #[test]
    fn a_silo_knows_exactly_who_probes_it() {
        for n in [2, 5, 11, 12, 64, 65, 100, 300] {
            let (view, silos) = view(n);
            for (rings, wanted) in [(10, 10), (1, 3), (3, 10), (4, 6)] {
                for silo in &silos {
                    let known = monitors_of(&view, silo, rings, wanted);
                    let probing = silos
                        .iter()
                        .filter(|s| ring_targets(&view, s, rings, wanted).contains(silo));
                    let probing: BTreeSet<SiloAddress> = probing.copied().collect();
                    assert_eq!(known, probing, "{n} silos, {rings} rings, {wanted} probed: {silo}");
                    let said =
                        silos.iter().filter(|s| is_monitored_by(&view, silo, s, rings, wanted));
                    assert_eq!(said.copied().collect::<BTreeSet<_>>(), known, "{n} silos: {silo}");
                }
            }
        }
    }

    #[test]
    fn several_rings_spread_the_monitors() {
        let (view, silos) = view(100);
        let mut least = usize::MAX;
        for silo in &silos {
            let monitors =
                silos.iter().filter(|s| ring_targets(&view, s, 10, 10).contains(silo)).count();
            least = least.min(monitors);
        }
        assert!(least >= 5, "{least}");
    }
}
