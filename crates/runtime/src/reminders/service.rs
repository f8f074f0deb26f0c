//! The shell of the reminder machine: it reads and writes the table, calls grains, passes messages
//! on, and decides nothing.

use std::future::Future;
use std::sync::Arc;

use emmer_core::reminder::Reminder;
use emmer_core::{GrainId, Now, SiloAddress};
use emmer_membership::View;
use emmer_net::clock::Clock;
use emmer_net::warn_seldom;
use emmer_net::world::Spawner;
use emmer_reminders::{
    Config, Effect, EntryId, Etag, Found, Looked, Message, Reminders, Row, Settled, Statistics,
    Ticked,
};
use emmer_store::StoreError;
use emmer_store::reminders::{
    ReminderRemoval, ReminderTable, ReminderWrite, Scanned, StoredReminder,
};
use emmer_wire::channel;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::tick::{ReminderTick, Tick};
use crate::calls::{Aim, Node};
use crate::cluster::Peers;
use crate::grain::{Call, OwnClient};
use crate::options::ReminderOptions;
use crate::trace;
use crate::wheel::Wheel;

/// The most reads and writes of single rows under way at once.
const WRITES_MAX: usize = 64;

/// The parts of a silo that its reminders use.
pub(crate) struct Surroundings {
    pub(crate) me: SiloAddress,
    pub(crate) clock: Clock,
    pub(crate) wheel: Arc<Wheel>,
    pub(crate) spawner: Spawner,
    pub(crate) peers: Arc<Peers>,
    pub(crate) client: OwnClient,
    pub(crate) table: ReminderTable,
    pub(crate) options: ReminderOptions,
}

/// One silo's reminders.
pub(crate) struct ReminderService {
    around: Surroundings,
    machine: Mutex<Reminders>,
    /// The machine may have another timeout.
    changed: Notify,
    writes: Semaphore,
}

impl ReminderService {
    pub(crate) fn new(around: Surroundings) -> Arc<Self> {
        let config = Config {
            window: around.options.window,
            late_after: around.options.late_after,
            in_flight_max: around.options.ticks_max,
            ..Config::default()
        };
        let seed = around.me.stable_hash(around.me.epoch());
        Arc::new(Self {
            machine: Mutex::new(Reminders::new(around.me, config, seed)),
            changed: Notify::new(),
            writes: Semaphore::new(WRITES_MAX),
            around,
        })
    }

    pub(super) const fn table(&self) -> &ReminderTable {
        &self.around.table
    }

    pub(super) const fn options(&self) -> &ReminderOptions {
        &self.around.options
    }

    pub(super) fn now(&self) -> Now {
        self.around.clock.exact()
    }

    /// The reminders of a grain, by name.
    ///
    /// # Errors
    /// As the table.
    pub(crate) async fn of_grain(&self, grain: &GrainId) -> Result<Vec<Reminder>, StoreError> {
        let found = self.table().of_grain(grain).await?;
        Ok(found.into_iter().map(|found| found.reminder).collect())
    }

    /// The reminders that are due first, with the number of tries that failed; at most `max`.
    pub(crate) fn due(&self, max: usize) -> Vec<(Reminder, u32)> {
        self.machine.lock().due(max)
    }

    /// Removes a reminder on an operator's word. Returns false if there is none.
    ///
    /// # Errors
    /// The store's words.
    pub(crate) async fn remove_by_hand(
        self: &Arc<Self>,
        grain: &GrainId,
        grain_type: &str,
        name: &str,
    ) -> Result<bool, String> {
        let removed = self.remove_named(grain, grain_type, name).await;
        match removed.map_err(|error| error.to_string())? {
            ReminderRemoval::Removed => Ok(true),
            ReminderRemoval::EtagMismatch => Ok(false),
            ReminderRemoval::Unknown(error) => Err(error.to_string()),
        }
    }

    /// Removes the reminder of this name, whatever its etag, and tells its owner.
    pub(super) async fn remove_named(
        self: &Arc<Self>,
        grain: &GrainId,
        grain_type: &str,
        name: &str,
    ) -> Result<ReminderRemoval, StoreError> {
        let _told = self.writing(grain, grain_type, name);
        self.table().remove(grain, grain_type, name, None).await
    }

    /// Delivers the next tick of a reminder on an operator's word, besides that of its time.
    /// Returns false if there is none.
    ///
    /// # Errors
    /// The words of the store, or of the grain.
    pub(crate) async fn fire_by_hand(
        &self,
        grain: &GrainId,
        grain_type: &str,
        name: &str,
    ) -> Result<bool, String> {
        let found = self.table().read(grain, grain_type, name).await;
        let found = found.map_err(|error| error.to_string())?;
        let Some(reminder) = found.map(|found| found.reminder) else { return Ok(false) };
        let Some((number, due)) = reminder.next() else { return Ok(false) };
        let tick = emmer_reminders::Tick { number, due, missed: 0 };
        match self.fire(&reminder, &tick).await {
            Ticked::Delivered => Ok(true),
            _ => Err("the tick failed: the log of the silo says why".to_owned()),
        }
    }

    /// Returns the machine's counters.
    pub(crate) fn statistics(&self) -> Statistics {
        self.machine.lock().statistics()
    }

    /// A new view is in force.
    pub(crate) fn install(self: &Arc<Self>, view: &View) {
        let active = view.active().map(|silo| silo.address).collect();
        self.step(|machine, now| machine.handle_view(now, active));
    }

    /// A message from another silo.
    pub(crate) fn receive(self: &Arc<Self>, from: SiloAddress, message: Message) {
        self.step(|machine, now| machine.handle_message(now, from, message));
    }

    /// A grain of this silo writes or removes a reminder: tells its owner when the result is
    /// dropped, and so also if the grain's code gives the write up half way.
    pub(super) fn writing(
        self: &Arc<Self>,
        grain: &GrainId,
        grain_type: &str,
        name: &str,
    ) -> Writing {
        let (service, grain) = (self.clone(), grain.clone());
        Writing { service, grain, grain_type: grain_type.into(), name: name.into() }
    }

    fn step(self: &Arc<Self>, step: impl FnOnce(&mut Reminders, Now)) {
        {
            let mut machine = self.machine.lock();
            step(&mut machine, self.now());
            // Sent under the lock, so that the order of sending is the order of the decisions.
            while let Some(effect) = machine.poll_effect() {
                self.execute(effect);
            }
        }
        self.changed.notify_one();
    }

    /// Drives the machine's timeouts; never ends.
    pub(crate) async fn drive(self: &Arc<Self>) {
        loop {
            let due = self.machine.lock().poll_timeout(self.now());
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.around.wheel.sleep_until(due) => self.step(Reminders::handle_timeout),
            }
        }
    }

    fn execute(self: &Arc<Self>, effect: Effect) {
        let service = self.clone();
        match effect {
            Effect::Send { to, message } => {
                self.around.peers.post(to, channel::REMINDERS, &message);
            }
            Effect::Read { read, from, to, by, limit } => self.apart(async move {
                let scanned = service.table().due((from, to), by, limit).await;
                let found = service.known(scanned).map(|scanned| Found {
                    rows: scanned.found.into_iter().map(row).collect(),
                    is_full: scanned.is_full,
                });
                service.step(|machine, now| machine.handle_read(now, read, found));
            }),
            Effect::Fire { entry, reminder, tick } => self.apart(async move {
                let ticked = service.fire(&reminder, &tick).await;
                service.step(|machine, now| machine.handle_ticked(now, entry, ticked));
            }),
            Effect::Settle { entry, reminder, etag } => self.apart(async move {
                let settled = service.settle(&reminder, &etag).await;
                service.settled(entry, settled);
            }),
            Effect::Remove { entry, reminder, etag } => self.apart(async move {
                let settled = service.remove(&reminder, &etag).await;
                service.settled(entry, settled);
            }),
            Effect::Look { grain, grain_type, name } => self.apart(async move {
                let _room = service.writes.acquire().await;
                let found = service.table().read(&grain, &grain_type, &name).await;
                let looked = match service.known(found) {
                    Some(Some(found)) => Looked::Row(row(found)),
                    Some(None) => Looked::Gone,
                    None => Looked::Unknown,
                };
                service.step(|machine, now| machine.handle_looked(now, &grain, &name, looked));
            }),
        }
    }

    fn apart(&self, work: impl Future<Output = ()> + Send + 'static) {
        // It ends by itself: every call and every request of a store has a time.
        drop(self.around.spawner.spawn(work));
    }

    fn settled(self: &Arc<Self>, entry: EntryId, settled: Settled) {
        self.step(|machine, now| machine.handle_settled(now, entry, settled));
    }

    async fn settle(&self, reminder: &Reminder, etag: &Etag) -> Settled {
        let _room = self.writes.acquire().await;
        let written = self.table().replace(reminder, etag).await;
        match self.known(written) {
            Some(ReminderWrite::Written(etag)) => Settled::Written(etag),
            Some(ReminderWrite::EtagMismatch) => Settled::Changed,
            Some(ReminderWrite::Unknown(_)) | None => Settled::Unknown,
        }
    }

    async fn remove(&self, reminder: &Reminder, etag: &Etag) -> Settled {
        let _room = self.writes.acquire().await;
        let Reminder { grain, grain_type, name, .. } = reminder;
        match self.known(self.table().remove(grain, grain_type, name, Some(etag)).await) {
            Some(ReminderRemoval::Removed) => Settled::Removed,
            Some(ReminderRemoval::EtagMismatch) => Settled::Changed,
            Some(ReminderRemoval::Unknown(_)) | None => Settled::Unknown,
        }
    }

    /// Returns the store's answer, if there is one; its trouble goes to the log.
    fn known<T: Told>(&self, told: Result<T, StoreError>) -> Option<T> {
        let trouble = match &told {
            Ok(told) => told.trouble(),
            Err(error) => Some(error),
        };
        if let Some(error) = trouble {
            warn_seldom!(%error, "reminders: the store");
        }
        told.ok()
    }

    async fn fire(&self, reminder: &Reminder, tick: &emmer_reminders::Tick) -> Ticked {
        let Some(client) = self.around.client.get() else { return Ticked::Failed };
        let type_name = match &client.0 {
            Node::Silo(calls) => calls.host.classes.get(&reminder.grain.grain_type()),
            Node::Client(_) | Node::Nowhere => None,
        };
        let type_name = type_name.map_or("a grain of another silo", |class| class.name());
        let target = Aim::of(client.0.clone(), reminder.grain.clone(), type_name);
        let args = ReminderTick { tick: Tick::of(reminder, tick) };
        let Reminder { grain, grain_type, name, .. } = reminder;
        let grain = || format!("{grain_type}/{}", grain.key());
        let span = trace::of_call(|| false, || trace::reminder(&grain(), name));
        let call = Call::new(target, args);
        let ticked = match span {
            None => call.without_span().await,
            Some(span) => trace::within(span, call.past_filters()).await,
        };
        match ticked {
            Ok(()) => Ticked::Delivered,
            Err(error) => {
                let grain = grain();
                warn_seldom!(
                    %grain, %name, number = tick.number, %error,
                    "a tick of a reminder failed; it is tried again"
                );
                Ticked::Failed
            }
        }
    }
}

/// A write under way, whose end the reminder's owner hears.
pub(super) struct Writing {
    service: Arc<ReminderService>,
    grain: GrainId,
    grain_type: Arc<str>,
    name: Arc<str>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let (service, grain) = (self.service.clone(), self.grain.clone());
        let (grain_type, name) = (self.grain_type.clone(), self.name.clone());
        // The grain's code may be dropped on a thread without a runtime.
        self.service.apart(async move {
            service.step(|machine, now| machine.handle_written(now, grain, grain_type, name));
        });
    }
}

fn row(found: StoredReminder) -> Row {
    Row { reminder: found.reminder, etag: found.etag }
}

/// An answer of the table, which may report trouble.
trait Told {
    fn trouble(&self) -> Option<&StoreError>;
}

impl Told for Scanned {
    fn trouble(&self) -> Option<&StoreError> {
        self.refused.first()
    }
}

impl Told for Option<StoredReminder> {
    fn trouble(&self) -> Option<&StoreError> {
        None
    }
}

impl Told for ReminderWrite {
    fn trouble(&self) -> Option<&StoreError> {
        if let Self::Unknown(error) = self { Some(error) } else { None }
    }
}

impl Told for ReminderRemoval {
    fn trouble(&self) -> Option<&StoreError> {
        if let Self::Unknown(error) = self { Some(error) } else { None }
    }
}
