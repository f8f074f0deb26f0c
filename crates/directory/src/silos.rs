//! The silos of a view, and what one view changes.

use emmer_core::{SiloAddress, SiloStatus};

/// The silos of a view, by address. A list, because making it and comparing it with the last one
/// has to be cheap for every view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silos(Vec<(SiloAddress, SiloStatus)>);

/// Change of one silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    silo: SiloAddress,
    before: Option<SiloStatus>,
    after: Option<SiloStatus>,
}

impl Silos {
    pub(crate) fn new(silos: &[(SiloAddress, SiloStatus)]) -> Self {
        let mut list = silos.to_vec();
        if !list.is_sorted_by_key(|(silo, _)| *silo) {
            list.sort_by_key(|(silo, _)| *silo);
        }
        list.dedup_by_key(|(silo, _)| *silo);
        Self(list)
    }

    pub(crate) fn get(&self, silo: &SiloAddress) -> Option<SiloStatus> {
        let at = self.0.binary_search_by_key(silo, |(silo, _)| *silo).ok()?;
        self.0.get(at).map(|(_, status)| *status)
    }

    pub(crate) fn is_active(&self, silo: &SiloAddress) -> bool {
        self.get(silo) == Some(SiloStatus::Active)
    }

    /// Returns true if `silo` may host activations: Active, or leaving and not yet Dead.
    pub(crate) fn is_host(&self, silo: &SiloAddress) -> bool {
        self.get(silo).is_some_and(hosts)
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = SiloAddress> + '_ {
        self.0.iter().filter(|(_, status)| hosts(*status)).map(|(silo, _)| *silo)
    }

    /// Silos that are different in `next`.
    pub(crate) fn changes(&self, next: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let (mut old, mut new) = (self.0.iter().peekable(), next.0.iter().peekable());
        loop {
            let silo = match (old.peek(), new.peek()) {
                (Some((a, _)), Some((b, _))) => *a.min(b),
                (Some((silo, _)), None) | (None, Some((silo, _))) => *silo,
                (None, None) => return changes,
            };
            let before = old.next_if(|(s, _)| *s == silo).map(|(_, status)| *status);
            let after = new.next_if(|(s, _)| *s == silo).map(|(_, status)| *status);
            if before != after {
                changes.push(Change { silo, before, after });
            }
        }
    }
}

impl Change {
    pub(crate) const fn silo(&self) -> SiloAddress {
        self.silo
    }

    pub(crate) fn left_the_ring(&self) -> bool {
        self.before == Some(SiloStatus::Active) && self.after != self.before
    }

    pub(crate) fn joined_the_ring(&self) -> bool {
        self.after == Some(SiloStatus::Active) && self.after != self.before
    }

    /// Returns true if the silo may have hosted activations, and no longer may.
    pub(crate) fn ended(&self) -> bool {
        self.before.is_some_and(hosts) && !self.after.is_some_and(hosts)
    }
}

/// Returns true if a silo of this status may host activations, so that a recovery must ask it.
const fn hosts(status: SiloStatus) -> bool {
    matches!(status, SiloStatus::Active | SiloStatus::ShuttingDown | SiloStatus::Stopping)
}

#[cfg(test)]
mod tests {
    use SiloStatus::{Active, Dead, Joining, ShuttingDown};

    use super::*;

    fn silo(n: u16) -> SiloAddress {
        format!("10.0.0.1:{n}:1").parse().unwrap()
    }

    fn silos(list: &[(u16, SiloStatus)]) -> Silos {
        Silos::new(&list.iter().map(|(n, status)| (silo(*n), *status)).collect::<Vec<_>>())
    }

    #[test]
    fn changes_are_exactly_what_differs() {
        let old = silos(&[(5, Active), (1, Active), (3, Joining), (4, ShuttingDown)]);
        let new = silos(&[(1, Active), (2, Joining), (3, Active), (4, Dead)]);
        let change = |n, before, after| Change { silo: silo(n), before, after };
        let expected = [
            change(2, None, Some(Joining)),
            change(3, Some(Joining), Some(Active)),
            change(4, Some(ShuttingDown), Some(Dead)),
            change(5, Some(Active), None),
        ];
        let changes = old.changes(&new);
        assert_eq!(changes, expected);
        let named = |what: fn(&Change) -> bool| {
            changes.iter().filter(|c| what(c)).map(|c| c.silo).collect::<Vec<_>>()
        };
        assert_eq!(named(Change::joined_the_ring), [silo(3)]);
        assert_eq!(named(Change::left_the_ring), [silo(5)]);
        assert_eq!(named(Change::ended), [silo(4), silo(5)]);
        assert!(new.changes(&new).is_empty());
    }

    #[test]
    fn finds_silos_whatever_the_order_they_came_in() {
        let list = silos(&[(9, Dead), (2, Active), (7, ShuttingDown), (1, Joining)]);
        assert_eq!(
            [1, 2, 7, 9, 4].map(|n| list.is_host(&silo(n))),
            [false, true, true, false, false]
        );
        assert_eq!(list.hosts().collect::<Vec<_>>(), [silo(2), silo(7)]);
        assert!(
            list.is_active(&silo(2)) && !list.is_active(&silo(7)) && list.get(&silo(4)).is_none()
        );
    }
}
