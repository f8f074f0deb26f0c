//! Which silo has how many grains at the end.

use std::time::Duration;

use emmer::placement::Strategy;
use emmer::{Client, SiloStatus};
use tokio::time::Instant;

use super::PATIENCE;
use super::watch::Watcher;
use crate::text::{columns, grouped};

/// The longest bar, in columns.
const BAR: usize = 40;

/// How often the connections are counted.
const POLL: Duration = Duration::from_millis(20);

/// The activations of one silo.
pub(super) struct Share {
    name: String,
    activations: u64,
}

/// What the running silos say, in the order of their names. `client` has just connected: one that
/// did before may not know those that came later.
pub(super) async fn of(client: &Client, watcher: &Watcher) -> Vec<Share> {
    let running = watcher.count(|silo| silo.status == SiloStatus::Active);
    let deadline = Instant::now() + PATIENCE;
    while client.gateways().len() < running && Instant::now() < deadline {
        tokio::time::sleep(POLL).await;
    }
    let mut shares: Vec<_> = client
        .statistics()
        .await
        .into_iter()
        .map(|(address, statistics)| {
            let row = watcher.find(|silo| silo.address == address);
            let name = row.map_or_else(|| address.to_string(), |row| row.instance_name.to_string());
            Share { name, activations: statistics.activations }
        })
        .collect();
    shares.sort_by(|a, b| a.name.cmp(&b.name));
    shares
}

/// A bar for each silo; the one with the most has the longest.
pub(super) fn chart(placement: Strategy, shares: &[Share]) -> Vec<String> {
    let most = shares.iter().map(|share| share.activations).max().unwrap_or_default().max(1);
    let row = |share: &Share| {
        let parts = share.activations * BAR as u64;
        let bar = "#".repeat(usize::try_from(parts.div_ceil(most)).unwrap_or(BAR));
        vec![format!("  {}", share.name), grouped(share.activations), bar]
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
        let share = |name: &str, activations| Share { name: name.to_owned(), activations };
        let shares = [share("a", 1_000), share("b", 500), share("d", 1), share("e", 0)];
        let lines = chart(Strategy::HashBased, &shares);
        assert!(lines[1].ends_with("placed by hash_based"), "{lines:?}");
        let bars: Vec<_> = lines[2..].iter().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [40, 20, 1, 0]);
        assert!(lines[2].contains("1,000"), "{lines:?}");
        assert_eq!(chart(Strategy::Random, &[]).len(), 2);
    }
}
