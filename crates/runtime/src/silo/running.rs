//! A silo as the work of a process: until it is asked to stop, or has ended.

use emmer_core::SiloAddress;
use emmer_membership::TerminateReason;

use super::Silo;
use crate::stores::StoreOpener;
use crate::{EXIT_CODE_TABLE_WENT_BACK, EXIT_CODE_TERMINATED, world};

/// A silo has ended although nobody asked it to: it runs no turn any more, and serves no call. Its
/// process should end with [`exit_code`](Self::exit_code), and be started anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("silo {silo} stopped itself: {reason}")]
pub struct Terminated {
    /// Which.
    pub silo: SiloAddress,
    /// Why.
    pub reason: TerminateReason,
}

impl Terminated {
    /// Returns the exit code for the process, as `docs/operations.md` lists it: 87 when the
    /// membership table has lost a commit, else 86.
    pub const fn exit_code(&self) -> u8 {
        let code = match self.reason {
            TerminateReason::TableWentBack => EXIT_CODE_TABLE_WENT_BACK,
            _ => EXIT_CODE_TERMINATED,
        };
        code as u8
    }
}

impl<S: StoreOpener> Silo<S> {
    /// Serves until the process is asked to stop (Ctrl-C, and SIGTERM where there is one) or
    /// somebody calls [`stop`](Self::stop), and leaves the cluster in good order. Whoever asks a
    /// second time need not wait for that: it then leaves in haste.
    ///
    /// This is how a process that is nothing but a silo should wait. A silo can end by itself, when
    /// the cluster has declared it dead; a process that only waits for its own signals would live
    /// on without it.
    ///
    /// # Errors
    /// [`Terminated`] when the silo has ended by itself. `emmer::exit` makes an exit code of it.
    pub async fn run_until_stopped(&self) -> Result<(), Terminated> {
        let mut requests = world::StopRequests::watch();
        tokio::select! {
            biased;
            _ = self.terminated() => {}
            () = requests.next() => {
                tracing::info!(me = %self.address(), "asked to stop");
                tokio::select! {
                    biased;
                    // It never fails.
                    _ = self.stop() => {}
                    () = requests.next() => self.stop_now().await,
                }
            }
        }
        match self.terminated().await {
            TerminateReason::Left => Ok(()),
            reason => Err(Terminated { silo: self.address(), reason }),
        }
    }
}
