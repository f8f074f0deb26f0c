//! The number of grains on each silo.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer::Client;
use emmer::placement::Strategy;
use emmer::tables::{SiloEntry, SiloStatus};
use tokio::time::Instant;

use super::PATIENCE;
use super::watch::Watcher;
use crate::text::{columns, grouped};

/// The longest bar, in columns.
const BAR: usize = 40;

/// Time between two counts of the connections.
const POLL: Duration = Duration::from_millis(20);

/// The activations of one silo; None when it did not answer.
pub(super) struct Share {
    name: String,
    activations: Option<u64>,
}

/// Shares of the running silos, in the order of their names. `client` must have just connected: one
/// that did before may not know silos that came later.
pub(super) async fn of(client: &Client, watcher: &Watcher) -> Vec<Share> {
    let running = watcher.all(|silo| silo.status == SiloStatus::Active);
    let deadline = Instant::now() + PATIENCE;
    while client.gateways().len() < running.len() && Instant::now() < deadline {
        tokio::time::sleep(POLL).await;
    }
    let said: BTreeMap<_, _> = client.statistics().await.into_iter().collect();
    let share = |silo: &SiloEntry| Share {
        name: silo.instance_name.to_string(),
        activations: said.get(&silo.address).map(|statistics| statistics.activations),
    };
    let mut shares: Vec<_> = running.iter().map(share).collect();
    shares.sort_by(|a, b| a.name.cmp(&b.name));
    shares
}

/// As [`chart`], with the share that each would have if all had the same.
pub(super) fn compared(placement: &Strategy, shares: &[Share]) -> Vec<String> {
    let all: u64 = shares.iter().filter_map(|share| share.activations).sum();
    let equal = all.checked_div(shares.len() as u64).unwrap_or_default();
    let mut lines = chart(placement, shares);
    if let Some(title) = lines.get_mut(1) {
        title.push_str(&format!("; an equal share is {}", grouped(equal)));
    }
    lines
}

/// A bar for each silo; the one with the most has the longest.
pub(super) fn chart(placement: &Strategy, shares: &[Share]) -> Vec<String> {
    let most = shares.iter().filter_map(|share| share.activations).max().unwrap_or_default().max(1);
    let row = |share: &Share| {
        let (count, bar) = match share.activations {
            Some(activations) => {
                let parts = activations * BAR as u64;
                let bar = "#".repeat(usize::try_from(parts.div_ceil(most)).unwrap_or(BAR));
                (grouped(activations), bar)
            }
            None => ("?".to_owned(), "did not answer".to_owned()),
        };
        vec![format!("  {}", share.name), count, bar]
    };
    let mut lines = vec![String::new(), format!("Grains by silo, placed by {placement}")];
    lines.extend(columns(&shares.iter().map(row).collect::<Vec<_>>()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silo_with_the_most_has_the_longest_bar_and_one_with_any_has_one() {
        let share = |name: char, activations| Share { name: name.to_string(), activations };
        let counts = [Some(1_000), Some(500), Some(1), Some(0), None];
        let shares: Vec<_> =
            "abdef".chars().zip(counts).map(|(name, count)| share(name, count)).collect();
        let lines = chart(&Strategy::HashBased, &shares);
        assert!(lines[1].ends_with("placed by hash_based"), "{lines:?}");
        let bars: Vec<_> = lines[2..].iter().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [40, 20, 1, 0, 0]);
        assert!(lines[6].contains("did not answer"), "{lines:?}");
        assert!(lines[2].contains("1,000"), "{lines:?}");
        assert_eq!(chart(&Strategy::Random, &[]).len(), 2);
        let compared = compared(&Strategy::Random, &shares[..3]);
        assert!(compared[1].ends_with("placed by random; an equal share is 500"), "{compared:?}");
    }
}
