//! Calls that follow the grains of a dead silo: how soon they are active elsewhere must not depend
//! on when they happen to be called.

use std::time::{Duration, Instant};

use emmer::Client;
use tokio::task::JoinSet;

use super::stage::Stage;
use crate::grains::slow::Slow;

/// Time after which a call is made again.
const TRY: Duration = Duration::from_secs(1);
/// Time for which a call that failed waits for the next one.
const PAUSE: Duration = Duration::from_millis(10);
/// Time for which a grain is followed.
const LIMIT: Duration = Duration::from_secs(10);

/// See the module. It ends when it is dropped.
pub(super) struct Pursuit(JoinSet<()>);

impl Pursuit {
    /// Calls these grains, each until it answers. The client is new: it knows nothing of the dead
    /// silo.
    pub(super) fn start(stage: &Stage, grains: &[u64]) -> Self {
        let connecting =
            Client::builder().store(stage.store.clone()).cluster_id(stage.cluster.clone());
        let grains = grains.to_vec();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Without a client the grains are active when the load calls them.
            let Ok(client) = connecting.connect().await else { return };
            let mut calls: JoinSet<()> =
                grains.into_iter().map(|key| follow(client.clone(), key)).collect();
            while calls.join_next().await.is_some() {}
            client.close().await;
        });
        Self(tasks)
    }

    /// Waits until every grain has answered, or was followed long enough.
    pub(super) async fn end(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

async fn follow(client: Client, key: u64) {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT
        && client.grain::<dyn Slow>(key).quick().timeout(TRY).await.is_err()
    {
        tokio::time::sleep(PAUSE).await;
    }
}
