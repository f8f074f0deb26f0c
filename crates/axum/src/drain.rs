//! The end of live connections before the process stops.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Ends event streams and sockets before the process stops. A clone is the same.
///
/// Call [`begin`](Self::begin) where the server begins to shut down. Event streams end, and
/// browsers reconnect by themselves. Sockets say 1001, "going away".
#[derive(Clone, Debug, Default)]
pub struct Drain {
    begun: CancellationToken,
    open: TaskTracker,
}

impl Drain {
    /// A drain that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends what is open now, and what is opened later.
    pub fn begin(&self) {
        self.begun.cancel();
        self.open.close();
    }

    /// Returns true after [`begin`](Self::begin).
    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Waits until everything has ended, `most` at the longest; true if it has.
    pub async fn ended(&self, most: Duration) -> bool {
        tokio::time::timeout(most, self.open.wait()).await.is_ok()
    }

    /// The number of event streams and sockets that are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Waits for [`begin`](Self::begin).
    pub(crate) async fn begins(&self) {
        self.begun.cancelled().await;
    }

    pub(crate) fn begins_owned(&self) -> impl Future<Output = ()> + Send + use<> {
        self.begun.clone().cancelled_owned()
    }

    /// One more is open until this is dropped.
    pub(crate) fn opens(&self) -> TaskTrackerToken {
        self.open.token()
    }
}
