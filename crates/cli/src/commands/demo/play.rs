//! The replay. Half way one silo is killed, and the cluster notices, or it is drained and leaves. A
//! fresh one joins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use emmer::Client;
use emmer::placement::Strategy;
use emmer::store::DutyChange;
use emmer::tables::{Duty, SiloAddress, SiloEntry, SiloStatus};
use emmer_example_flights::feeder::{
    self, ClusterSink, FeedReport, FeederOptions, Progress, Snapshot,
};
use tokio::task::JoinHandle;

use super::PATIENCE;
use super::children::Cluster;
use super::input::Input;
use super::screen::{Live, Screen};
use super::shares;
use super::watch::Watcher;
use crate::commands::duty::failed;
use crate::exit::{Failure, Result};
use crate::process::now;
use crate::text;

/// Time after which a call without an answer is repeated.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two moves of the live line.
const LIVE_PERIOD: Duration = Duration::from_millis(500);

/// Time between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);

/// Result of a replay.
pub(super) struct Played {
    pub(super) feed: FeedReport,
    pub(super) counts: Snapshot,
    pub(super) lost: Lost,
}

/// The silo that was killed or drained, and its replacement.
pub(super) struct Lost {
    pub(super) name: String,
    pub(super) address: SiloAddress,
    /// From the kill to Dead in the table, or from the order to drain to the empty silo.
    pub(super) gone_after: Duration,
    /// Number of grains that answered from another silo than before, between the end of the silo
    /// and the end of the replay.
    pub(super) moves: u64,
    pub(super) replacement: String,
    /// From the start of its process to Active in the table.
    pub(super) joined_after: Duration,
}

/// A task that ends with its handle.
struct Background<T>(JoinHandle<T>);

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The choices of a run.
pub(super) struct Play {
    /// Decides which silo is killed or drained.
    pub(super) seed: u64,
    /// True if it is drained.
    pub(super) drains: bool,
    /// Placement of grains.
    pub(super) placement: Strategy,
}

/// Replays everything.
pub(super) async fn play(
    input: &Input,
    client: &Client,
    cluster: &mut Cluster,
    watcher: &Watcher,
    screen: &Screen,
    play: &Play,
) -> Result<Played> {
    let progress = Arc::new(Progress::default());
    let sink = Arc::new(ClusterSink::new(Arc::new(client.clone()), CALL_TIMEOUT));
    screen.event("the replay begins");
    let feed =
        feeder::feed(input.streams.clone(), sink, FeederOptions::default(), progress.clone());
    let mut feed = Background(tokio::spawn(feed));
    let total = input.streams.deliveries();
    let fed = async {
        let ended = (&mut feed.0).await.map_err(Failure::other)?;
        let report =
            ended.map_err(|error| Failure::other(format!("the replay failed: {error}")))?;
        screen.event("the replay is complete");
        Ok::<_, Failure>(report)
    };
    let middle = Middle { total, progress: &progress, client, play };
    let drama = lose_and_replace(&middle, cluster, watcher, screen);
    let both = async { tokio::try_join!(fed, drama) };
    let (report, mut lost) = tokio::select! {
        both = both => both?,
        () = show_live(&progress, client, watcher, screen) => {
            return Err(Failure::other("the live line ended"));
        }
    };
    let counts = progress.snapshot();
    lost.moves = counts.moves.saturating_sub(lost.moves);
    Ok(Played { feed: report, counts, lost })
}

/// Moves the live line; never ends.
async fn show_live(progress: &Progress, client: &Client, watcher: &Watcher, screen: &Screen) {
    let (mut last, mut calls, mut at) = (None, 0, Instant::now());
    loop {
        tokio::time::sleep(LIVE_PERIOD).await;
        let statistics = client.statistics().await;
        let now = progress.snapshot();
        let live = Live {
            applied: now.applied,
            calls_per_second: text::rate(now.calls - calls, at.elapsed()),
            silos: watcher.count(|silo| silo.status == SiloStatus::Active),
            activations: statistics.iter().map(|(_, s)| s.activations).sum(),
        };
        (calls, at) = (now.calls, Instant::now());
        screen.live(live, &mut last);
    }
}

/// Moment at which a silo is lost, and which.
struct Middle<'a> {
    total: u64,
    progress: &'a Progress,
    client: &'a Client,
    play: &'a Play,
}

async fn lose_and_replace(
    middle: &Middle<'_>,
    cluster: &mut Cluster,
    watcher: &Watcher,
    screen: &Screen,
) -> Result<Lost> {
    let Middle { total, progress, client, play } = *middle;
    while progress.snapshot().applied < total / 2 {
        tokio::time::sleep(POLL).await;
    }
    for line in shares::compared(&play.placement, &shares::of(client, watcher).await) {
        screen.line(&line);
    }
    let moves = progress.snapshot().moves;
    let name = cluster.nth(play.seed)?;
    let victim = |silo: &SiloEntry| *silo.instance_name == *name;
    let Some(entry) = watcher.find(victim) else {
        return Err(Failure::other(format!("silo {name} is not in the table")));
    };
    let begun = Instant::now();
    if play.drains {
        screen.event(&format!("half way: silo {name} is drained"));
        drain(client, watcher, &entry).await?;
    } else {
        cluster.kill(&name)?;
        screen.event(&format!("half way: silo {name} is killed (SIGKILL)"));
        until(watcher, &entry, "declared dead", |silo| silo.status == SiloStatus::Dead).await?;
    }
    let gone_after = begun.elapsed();
    if play.drains {
        screen.event(&format!("silo {name} is empty, and stops"));
        cluster.leave(&name).await?;
    }
    let started = Instant::now();
    let replacement = cluster.start()?;
    screen.event(&format!("silo {replacement} is started in its place"));
    cluster.wait_active(&replacement, watcher).await?;
    let joined_after = started.elapsed();
    let activated = progress.snapshot().moves.saturating_sub(moves);
    screen.event(&format!("{} grains answer from another silo by now", text::grouped(activated)));
    Ok(Lost { name, address: entry.address, gone_after, moves, replacement, joined_after })
}

/// Has a silo give all its grains away, as `emmer drain` does.
async fn drain(client: &Client, watcher: &Watcher, silo: &SiloEntry) -> Result<()> {
    let change = DutyChange {
        silo: silo.address,
        duty: Duty::Draining,
        from: None,
        writer: "emmer demo",
        because: "half of the departures are replayed",
        at: now(),
    };
    watcher.table().change_duty(&change).await.map_err(failed)?;
    client.table_has_changed();
    until(watcher, silo, "drained", |silo| silo.duty == Duty::Drained).await
}

/// Waits until the row of a silo is so.
async fn until(
    watcher: &Watcher,
    silo: &SiloEntry,
    what: &str,
    is_so: impl Fn(&SiloEntry) -> bool,
) -> Result<()> {
    let begun = Instant::now();
    while watcher.count(|row| row.address == silo.address && is_so(row)) == 0 {
        if begun.elapsed() > PATIENCE {
            let (name, limit) = (&silo.instance_name, text::span(PATIENCE));
            return Err(Failure::other(format!("silo {name} was not {what} within {limit}")));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
