//! Descriptors of the process: each connection takes one, and without free ones nothing can
//! connect, neither clients nor silos that join.

/// At most this many are kept from clients: for the connections of silos, the store, and files.
const RESERVE_MAX: u64 = 1_024;
/// At least this many are: a silo alone takes 24 before the first client comes, and another silo
/// that joins takes four.
const RESERVE_MIN: u64 = 32;

/// The most connections of clients that a gateway takes, if `wanted` are allowed: half of a process
/// with few descriptors is for others.
pub fn for_clients(wanted: usize, descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors else { return wanted };
    let kept = descriptors.div_ceil(2).clamp(RESERVE_MIN, RESERVE_MAX);
    let room = descriptors.saturating_sub(kept);
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1)
}

/// Raises the soft limit of descriptors to the hard one, as any process may, and returns it. None
/// where there is no limit, or no known one.
#[cfg(unix)]
pub fn raise() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let raised = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// Nothing is known of descriptors here.
#[cfg(not(unix))]
pub const fn raise() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_shared_and_many_take_what_is_wanted() {
        for (descriptors, clients) in [
            (None, 10_000),
            (Some(65_536), 10_000),
            (Some(1_024), 512),
            (Some(60), 28),
            (Some(40), 8),
            (Some(1), 1),
        ] {
            assert_eq!(for_clients(10_000, descriptors), clients, "{descriptors:?}");
        }
        assert_eq!(for_clients(7, Some(60)), 7);
    }
}
