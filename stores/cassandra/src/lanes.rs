//! The order of uses of a partition within this process.
//!
//! Two conditional writes of one partition at once are a contest: each spoils the other's first
//! attempt, and both pause up to a tenth of a second. Those of one process need not meet. A writer
//! also has only one commit under way in a partition, so the partition remembers its fate.

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use emmer_store::TableDecl;
use emmer_store_keyvalue::Fault;

/// Most partitions that are used at a time. Two may share a lane.
const LANES: usize = 256;

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes(Vec<Mutex<()>>);

impl Default for Lanes {
    fn default() -> Self {
        Self(std::iter::repeat_with(Mutex::default).take(LANES).collect())
    }
}

impl Lanes {
    /// Waits for the lane of a partition.
    ///
    /// # Errors
    /// Others hold it until the deadline.
    pub(crate) async fn enter(
        &self,
        decl: &TableDecl,
        partition: &str,
        deadline: Instant,
    ) -> Result<Option<MutexGuard<'_, ()>>, Fault> {
        let at = number(decl.name.bytes().chain([0]).chain(partition.bytes())) % LANES;
        let Some(lane) = self.0.get(at) else { return Ok(None) };
        let late = |_| Fault::unavailable("others of this process use the partition all the time");
        timeout_at(deadline, lane.lock()).await.map(Some).map_err(late)
    }
}

/// A number that is the same for the same bytes (FNV-1a).
fn number(bytes: impl Iterator<Item = u8>) -> usize {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The lower bits are enough, whatever the size of a word.
    hash as usize
}
