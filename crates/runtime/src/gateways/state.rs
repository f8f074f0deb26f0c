//! The state of a client's gateways, and its changes.

use std::fmt;
use std::sync::Arc;

use emmer_core::SiloAddress;

use super::core::ClientCore;

/// The gateways of a client at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientState {
    /// The silos behind the gateways that take calls, in the order of their addresses. None while
    /// the client has lost all of them: it looks for others, and calls wait.
    pub gateways: Vec<SiloAddress>,
    /// True once the client was closed.
    pub closed: bool,
}

impl ClientState {
    /// Returns true if calls can be made now.
    pub const fn is_connected(&self) -> bool {
        !self.gateways.is_empty()
    }
}

/// Tells when the gateways of a client change: for a health check, or a line in the log.
pub struct ClientWatch {
    core: Arc<ClientCore>,
    seen: Option<ClientState>,
}

impl ClientWatch {
    pub(crate) const fn new(core: Arc<ClientCore>) -> Self {
        Self { core, seen: None }
    }

    /// The state now.
    pub fn state(&self) -> ClientState {
        self.core.state()
    }

    /// The state now the first time; after that, waits for another one than was returned last.
    pub async fn changed(&mut self) -> ClientState {
        let state = match &self.seen {
            None => self.core.state(),
            Some(seen) => self.core.state_after(seen).await,
        };
        self.seen = Some(state.clone());
        state
    }

    /// Waits until calls can be made.
    pub async fn connected(&mut self) -> ClientState {
        loop {
            let state = self.changed().await;
            if state.is_connected() || state.closed {
                return state;
            }
        }
    }
}

impl fmt::Debug for ClientWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientWatch").field(&self.state()).finish()
    }
}
