//! Facts that every part of the machine may read, and none may change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus};

use crate::config::Config;
use crate::delta::Delta;
use crate::rings::{is_monitored_by, monitors_of, monitors_to_be};
use crate::staleness::Staleness;
use crate::standing::Standing;
use crate::steps::Steps;
use crate::view::View;

/// Knowledge of a silo. The machine changes it between the calls of its parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Facts {
    now: Now,
    config: Arc<Config>,
    me: Arc<SiloEntry>,
    view: Arc<View>,
    steps: Steps,
    standing: Standing,
    rows: Staleness,
    table_answered: Option<Instant>,
}

impl Facts {
    /// The facts of a silo that has not begun to join. `me` is the row that it inserts.
    pub(crate) fn new(config: Config, me: SiloEntry, now: Now) -> Self {
        Self {
            now,
            config: Arc::new(config),
            me: Arc::new(me),
            view: Arc::new(View::empty()),
            steps: Steps::default(),
            standing: Standing::created(),
            rows: Staleness::default(),
            table_answered: None,
        }
    }

    /// The time of the input that is being handled. It never goes back.
    pub(crate) const fn now(&self) -> Now {
        self.now
    }

    /// The options.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns true if the silence fence is configured.
    pub(crate) fn has_fence(&self) -> bool {
        !self.config.fence_timeout.is_zero()
    }

    /// The address of this silo.
    pub(crate) fn me(&self) -> SiloAddress {
        self.me.address
    }

    /// The row that this silo inserts. Its IAmAliveTime lies before its start time by a distance
    /// drawn from the seed, so that two processes with the same identity can tell their rows apart.
    pub(crate) const fn my_row(&self) -> &Arc<SiloEntry> {
        &self.me
    }

    /// Returns true if the row of `silo` names the host of this silo and its IP address: one kernel
    /// knows all that listens for both. Hosts are distinguished by their names.
    pub(crate) fn is_on_own_host(&self, silo: &SiloAddress) -> bool {
        let (host, ip) = (&self.me.host_name, self.me.address.endpoint().ip());
        !host.is_empty()
            && silo.endpoint().ip() == ip
            && self.view.get(silo).is_some_and(|row| row.host_name == *host)
    }

    /// The view in force; empty until the table has been seen.
    pub(crate) const fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The steps that led to the view in force, as far as they are kept.
    pub(crate) const fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Stage of this silo's own life.
    pub(crate) const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The status of this silo.
    pub(crate) const fn status(&self) -> SiloStatus {
        self.standing.status()
    }

    /// Returns true if the machine has ended.
    pub(crate) const fn is_over(&self) -> bool {
        self.standing.is_over()
    }

    /// Observations of the rows of others.
    pub(crate) const fn rows(&self) -> &Staleness {
        &self.rows
    }

    /// Time at which the last request to the table that was answered had been sent.
    pub(crate) const fn table_answered(&self) -> Option<Instant> {
        self.table_answered
    }

    /// Returns true if the row of `silo` is stale, as far as this silo has read the table.
    pub(crate) fn is_stale(&self, silo: &SiloAddress) -> bool {
        self.rows.is_stale(&self.view, silo)
    }

    /// The stale rows of the view in force.
    pub(crate) fn stale_members(&self) -> impl Iterator<Item = SiloAddress> + '_ {
        self.rows.stale_members(&self.view)
    }

    /// The Active silos that probe `silo` in the view in force.
    pub(crate) fn monitors_of(&self, silo: &SiloAddress) -> BTreeSet<SiloAddress> {
        let config = &self.config;
        monitors_of(&self.view, silo, config.num_probe_rings, config.num_probed_silos)
    }

    /// As [`monitors_of`](Self::monitors_of), with silos that are Joining.
    pub(crate) fn monitors_to_be_of(&self, silo: &SiloAddress) -> BTreeSet<SiloAddress> {
        let config = &self.config;
        monitors_to_be(&self.view, silo, config.num_probe_rings, config.num_probed_silos)
    }

    /// Returns true if `silo` is one of the Active silos that probe `target` in the view in force;
    /// much cheaper than all of them.
    pub(crate) fn is_monitored_by(&self, target: &SiloAddress, silo: &SiloAddress) -> bool {
        let config = &self.config;
        is_monitored_by(&self.view, target, silo, config.num_probe_rings, config.num_probed_silos)
    }

    /// Time between two touches of this silo's row.
    pub(crate) fn publish_period(&self) -> Duration {
        self.config.publish_period(self.view.active_count())
    }

    // ---- what the machine alone changes
    // ---------------------------------------------------------------------------------

    /// An input has come at this time.
    pub(crate) fn pass(&mut self, now: Now) {
        self.now = Now { mono: self.now.mono.max(now.mono), wall: now.wall };
    }

    /// Replaces the options by `config`, which is equal.
    pub(crate) fn share_config(&mut self, share: impl FnOnce(Arc<Config>) -> Arc<Config>) {
        self.config = share(self.config.clone());
    }

    /// Installs `view`, and returns the one before. `delta` is the step, if one step led there.
    pub(crate) fn install(&mut self, view: Arc<View>, delta: Option<&Arc<Delta>>) -> Arc<View> {
        self.steps.follow(delta, self.config.delta_log_max as usize);
        std::mem::replace(&mut self.view, view)
    }

    /// The own life, to be changed.
    pub(crate) const fn standing_mut(&mut self) -> &mut Standing {
        &mut self.standing
    }

    /// The table has answered a request sent at `sent`.
    pub(crate) const fn hear_table(&mut self, sent: Instant) {
        self.table_answered = Some(sent);
    }

    /// The table was read by a request sent at `sent`.
    pub(crate) fn observe_rows(&mut self, sent: Instant, rows: &[SiloEntry]) {
        self.rows.observe(&self.config, &self.view, self.me.address, self.now, sent, rows);
    }

    /// The table did not answer for a while: standing still during that time proves nothing.
    pub(crate) fn forgive_rows(&mut self) {
        self.rows.forgive(&self.config, self.now);
    }
}
