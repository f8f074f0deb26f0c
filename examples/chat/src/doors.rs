//! The web processes that are open, so that a page whose process dies knows another.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer::prelude::*;
use emmer::tables::Timestamp;

/// The most web processes.
const DOORS_MAX: usize = 100;
/// A web process whose last sign is older than this has ended.
const OPEN_FOR: Duration = Duration::from_secs(15);
/// The period of its signs.
const BEAT: Duration = Duration::from_secs(5);

/// The doors of the chat. There is one such grain.
#[grain_interface(key = String)]
pub trait Doors {
    /// A sign of the web process with this origin, as `http://127.0.0.1:8080`.
    async fn open(&mut self, origin: String);
    /// The origins of all that are open.
    async fn all(&self) -> Vec<String>;
}

/// The class of [`Doors`].
#[derive(Grain)]
pub struct DoorsGrain {
    #[context]
    ctx: Ctx,
    /// By origin: the time of the last sign.
    open: BTreeMap<String, Timestamp>,
}

#[grain]
impl Doors for DoorsGrain {
    async fn open(&mut self, origin: String) {
        let now = self.ctx.now();
        self.open.retain(|_, beat| *beat + OPEN_FOR > now);
        if self.open.len() < DOORS_MAX || self.open.contains_key(&origin) {
            self.open.insert(origin, now);
        }
    }

    async fn all(&self) -> Vec<String> {
        let now = self.ctx.now();
        let open = self.open.iter().filter(|(_, beat)| **beat + OPEN_FOR > now);
        open.map(|(origin, _)| origin.clone()).collect()
    }
}

/// The doors of this chat.
pub fn doors(client: &Client) -> DoorsRef {
    client.grain::<dyn Doors>("all")
}

/// Says that this process is open, until it is dropped.
pub async fn stay_open(client: Client, origin: String) {
    let mut beat = tokio::time::interval(BEAT);
    loop {
        beat.tick().await;
        // The next sign makes up for one that is lost.
        let _ = doors(&client).open(origin.clone()).timeout(BEAT).await;
    }
}
