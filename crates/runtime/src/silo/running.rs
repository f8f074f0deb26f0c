//! A silo as the work of a process: until it is asked to stop, or has ended.

use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_membership::TerminateReason;
use emmer_net::world;
use emmer_store::BoxFuture;

use super::builder::SiloBuilder;
use super::handle::Silo;
use super::start_error::StartError;
use crate::{EXIT_CODE_TABLE_WENT_BACK, EXIT_CODE_TERMINATED};

/// The time between two lines about a silo that leaves.
const PROGRESS: Duration = Duration::from_secs(2);

/// A silo has ended without being asked to: it no longer runs turns or serves calls. Its process
/// should end with [`exit_code`](Self::exit_code), and be started again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("silo {silo} stopped itself: {reason}")]
pub struct Terminated {
    /// The silo.
    pub silo: SiloAddress,
    /// Why.
    pub reason: TerminateReason,
}

impl Terminated {
    /// Returns the exit code for the process, as `docs/commands.md` lists it: 87 when the
    /// membership table has lost a commit, is another one or is gone, else 86.
    pub const fn exit_code(&self) -> u8 {
        let code = match self.reason {
            TerminateReason::TableWentBack
            | TerminateReason::TableReplaced
            | TerminateReason::TableGone => EXIT_CODE_TABLE_WENT_BACK,
            _ => EXIT_CODE_TERMINATED,
        };
        code as u8
    }
}

/// Why a process that is nothing but a silo ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The silo did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The silo has ended by itself.
    #[error(transparent)]
    Terminated(#[from] Terminated),
    /// The process was asked to stop before the silo was Active.
    #[error("stopped before the silo was Active")]
    Interrupted,
}

impl RunError {
    /// Returns the exit code for the process, as `docs/commands.md` lists it.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Start(error) => error.exit_code(),
            Self::Terminated(terminated) => terminated.exit_code(),
            Self::Interrupted => 130,
        }
    }
}

impl SiloBuilder {
    /// Starts the silo, and serves as [`Silo::run_until_stopped`] does. A process that is asked to
    /// stop before its silo is Active need not wait for that.
    ///
    /// # Errors
    /// [`RunError`]. `emmer::exit` makes an exit code of it.
    pub async fn run(self) -> Result<(), RunError> {
        self.boxed_run().await
    }

    /// In a box that is made here, as all that is large: compiled in this crate, and not once for
    /// each program.
    fn boxed_run(self) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(self.run_here())
    }

    async fn run_here(self) -> Result<(), RunError> {
        let silo = {
            let mut requests = world::StopRequests::watch();
            tokio::select! {
                biased;
                silo = self.start() => silo?,
                () = requests.next() => return Err(RunError::Interrupted),
            }
        };
        Ok(silo.run_until_stopped().await?)
    }
}

impl Silo {
    /// Serves until the process is asked to stop (Ctrl-C, and SIGTERM where there is one) or
    /// [`stop`](Self::stop) is called, and leaves the cluster in good order. A second signal does
    /// not wait for that: the silo then leaves in haste.
    ///
    /// A process that is only a silo should wait with this method. A silo can end by itself when
    /// the cluster has declared it dead. A process that only waits for its own signals would live
    /// on without it.
    ///
    /// # Errors
    /// [`Terminated`] when the silo has ended by itself. `emmer::exit` makes an exit code of it.
    pub async fn run_until_stopped(&self) -> Result<(), Terminated> {
        self.boxed_serve().await
    }

    fn boxed_serve(&self) -> BoxFuture<'_, Result<(), Terminated>> {
        Box::pin(self.serve())
    }

    async fn serve(&self) -> Result<(), Terminated> {
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
                    () = self.tell_progress() => {}
                    () = requests.next() => self.stop_now().await,
                }
            }
        }
        match self.terminated().await {
            TerminateReason::Left => Ok(()),
            reason => Err(Terminated { silo: self.address(), reason }),
        }
    }

    /// Logs the waits of a leaving silo, until it has left.
    async fn tell_progress(&self) {
        loop {
            tokio::time::sleep(PROGRESS).await;
            let left = self.statistics();
            tracing::info!(
                me = %self.address(),
                activations = left.activations,
                turns_waiting = left.turns_waiting,
                calls = left.calls_serving,
                "leaving"
            );
        }
    }
}
