//! The machine itself.

use std::sync::Arc;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus};

use crate::api::{ConnectionEvent, DialId, DialOutcome, Effect, HealthSample, OpId, TableOutcome};
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::message::Message;
use crate::view::View;

/// The membership protocol of one silo, as a state machine without IO.
#[derive(Clone, Debug)]
pub struct Membership {
    me: SiloEntry,
    status: SiloStatus,
    view: Arc<View>,
    counters: Counters,
}

impl Membership {
    /// A silo that has not begun to join.
    ///
    /// # Errors
    /// When the options contradict one another.
    #[expect(clippy::needless_pass_by_value, reason = "kept once the machine is complete")]
    pub fn new(config: Config, me: SiloEntry, _seed: u64, _now: Now) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            me,
            status: SiloStatus::Created,
            view: Arc::new(View::empty()),
            counters: Counters::default(),
        })
    }

    /// Starts joining.
    pub fn join(&mut self, _now: Now) {}
    /// Starts leaving.
    pub fn leave(&mut self, _now: Now) {}
    /// Starts leaving in haste.
    pub fn stop(&mut self, _now: Now) {}
    /// Ends the leave.
    pub fn finish_leave(&mut self, _now: Now) {}
    /// A deadline has passed.
    pub fn handle_timeout(&mut self, _now: Now) {}
    /// A message arrived.
    pub fn handle_message(&mut self, _now: Now, _from: SiloAddress, _message: Message) {}
    /// The table answered.
    pub fn handle_table(&mut self, _now: Now, _op: OpId, _outcome: TableOutcome) {}
    /// A dial ended.
    pub fn handle_dial(&mut self, _now: Now, _dial: DialId, _outcome: DialOutcome) {}
    /// The shell noticed something about a connection.
    pub fn handle_connection(&mut self, _now: Now, _peer: SiloAddress, _event: ConnectionEvent) {}
    /// The shell measured this process.
    pub fn handle_health(&mut self, _now: Now, _sample: HealthSample) {}
    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        None
    }
    /// When to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Who this silo is.
    pub const fn me(&self) -> SiloAddress {
        self.me.address
    }
    /// This silo's own status.
    pub const fn status(&self) -> SiloStatus {
        self.status
    }
    /// The view in force.
    pub const fn view(&self) -> &Arc<View> {
        &self.view
    }
    /// The self-health score, 0 (well) to 8.
    pub const fn health_score(&self) -> u32 {
        0
    }
    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Whether the fence is closed: no turns may start.
    pub const fn is_fenced(&self) -> bool {
        false
    }
    /// Until when turns may start without a further confirmation; none when the fence is off or not armed. A shell
    /// that was paused itself checks this before each turn.
    pub const fn fence_deadline(&self) -> Option<Instant> {
        None
    }
}
