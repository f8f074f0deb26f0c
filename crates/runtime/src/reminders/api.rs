//! The calls with which a grain asks for its reminders.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::reminder::{
    MissedPolicy, REMINDER_NAME_BYTES_MAX, REMINDER_TIME_MAX, Reminder, Schedule,
};
use emmer_core::{GrainId, Timestamp};
use emmer_store::StoreError;
use emmer_store::reminders::{ReminderRemoval, ReminderWrite, StoredReminder};

use super::{ReminderError, ReminderService};
use crate::grain::Ctx;

/// A first occurrence that is a little in the past is due now: the time was read before it came
/// here.
const PAST_TOLERANCE: Duration = Duration::from_secs(1);
/// Number of tries of a write that loses to other writers.
const TRIES_MAX: u32 = 8;

/// A reminder as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReminderInfo {
    /// Its name.
    pub name: String,
    /// The time of its first occurrence.
    pub first: Timestamp,
    /// The time between two occurrences; none for one that is due once.
    pub period: Option<Duration>,
    /// No occurrence is later than this.
    pub until: Option<Timestamp>,
    /// The policy for missed occurrences.
    pub missed: MissedPolicy,
    /// The time of the next occurrence.
    pub next: Option<Timestamp>,
    /// The number of the last occurrence that was delivered, or given up; 0 before the first.
    pub fired: u64,
    /// Time at which a tick was last delivered.
    pub last_fired: Option<Timestamp>,
    /// The number of occurrences that were missed, or given up.
    pub missed_count: u64,
}

impl ReminderInfo {
    fn of(reminder: &Reminder) -> Self {
        let Schedule { start, period, end } = reminder.schedule;
        Self {
            name: reminder.name.to_string(),
            first: start,
            period,
            until: end,
            missed: reminder.missed,
            next: reminder.next().map(|(_, at)| at),
            fired: reminder.fired,
            last_fired: reminder.last_fired,
            missed_count: reminder.missed_count,
        }
    }
}

/// A grain's type, its handlers, and the way to the reminders.
struct Reminding {
    service: Arc<ReminderService>,
    grain_type: &'static str,
    names: &'static [&'static str],
}

impl Ctx {
    /// Returns the parts that this grain's reminders need; none when its silo is gone.
    fn reminding(&self) -> Option<Reminding> {
        let activation = self.activation()?;
        let service = activation.host().reminders.clone().downcast().ok()?;
        let (grain_type, names) = (activation.type_name(), activation.reminder_names());
        Some(Reminding { service, grain_type, names })
    }

    /// The time by this silo's wall clock.
    pub fn now(&self) -> Timestamp {
        emmer_net::clock::wall()
    }

    /// Asks for calls at a time, once or repeatedly, also when this activation, its silo or the
    /// whole cluster is gone by then. They go to the class's method that is marked
    /// `#[reminder("name")]`. A reminder of the same name is replaced.
    ///
    /// ```ignore (needs the facade, whose tests compile it)
    /// self.ctx.remind("due").after(hours(24)).await?;
    /// self.ctx.remind("report").at(midnight).every(hours(24)).missed(MissedPolicy::Skip).await?;
    /// ```
    #[must_use = "a reminder is stored when it is awaited"]
    pub fn remind(&self, name: &str) -> ReminderBuilder {
        ReminderBuilder {
            ctx: self.clone(),
            name: name.to_owned(),
            first: None,
            period: None,
            end: None,
            missed: MissedPolicy::default(),
            if_absent: false,
        }
    }

    /// The grain's reminders, by name.
    ///
    /// # Errors
    /// [`ReminderError::Store`], [`ReminderError::SiloEnded`].
    pub async fn reminders(&self) -> Result<Vec<ReminderInfo>, ReminderError> {
        let reminding = self.reminding().ok_or(ReminderError::SiloEnded)?;
        let found = reminding
            .service
            .table()
            .of_grain(self.grain_id())
            .await
            .map_err(|error| unread(&error))?;
        Ok(found.iter().map(|found| ReminderInfo::of(&found.reminder)).collect())
    }

    /// The grain's reminder of this name, if there is one.
    ///
    /// # Errors
    /// [`ReminderError::Store`], [`ReminderError::SiloEnded`].
    pub async fn reminder(&self, name: &str) -> Result<Option<ReminderInfo>, ReminderError> {
        check_name(name)?;
        let Reminding { service, grain_type, .. } =
            self.reminding().ok_or(ReminderError::SiloEnded)?;
        let found = service.table().read(self.grain_id(), grain_type, name).await;
        Ok(found.map_err(|error| unread(&error))?.map(|found| ReminderInfo::of(&found.reminder)))
    }

    /// Removes the grain's reminder of this name. Returns false if there is none. A tick that is
    /// under way may still come.
    ///
    /// # Errors
    /// [`ReminderError::Store`], [`ReminderError::SiloEnded`].
    pub async fn remove_reminder(&self, name: &str) -> Result<bool, ReminderError> {
        check_name(name)?;
        let Reminding { service, grain_type, .. } =
            self.reminding().ok_or(ReminderError::SiloEnded)?;
        let removed = service.remove_named(self.grain_id(), grain_type, name).await;
        match removed.map_err(|error| unread(&error))? {
            ReminderRemoval::EtagMismatch => Ok(false),
            ReminderRemoval::Unknown(error) => Err(unknown(&error)),
            ReminderRemoval::Removed => Ok(true),
        }
    }
}

fn unread(error: &StoreError) -> ReminderError {
    ReminderError::Store { detail: error.to_string(), maybe_written: false }
}

fn unknown(error: &StoreError) -> ReminderError {
    ReminderError::Store { detail: error.to_string(), maybe_written: true }
}

fn check_name(name: &str) -> Result<(), ReminderError> {
    let bytes = name.len();
    if (1..=REMINDER_NAME_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(ReminderError::Name { bytes })
}

#[derive(Clone, Copy, Debug)]
enum First {
    At(Timestamp),
    After(Duration),
}

/// A reminder that is not stored yet: await it.
#[must_use = "a reminder is stored when it is awaited"]
pub struct ReminderBuilder {
    ctx: Ctx,
    name: String,
    first: Option<First>,
    period: Option<Duration>,
    end: Option<Timestamp>,
    missed: MissedPolicy,
    if_absent: bool,
}

impl fmt::Debug for ReminderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remind")
            .field("grain", self.ctx.grain_id())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ReminderBuilder {
    /// The first occurrence is at this time.
    pub const fn at(mut self, time: Timestamp) -> Self {
        self.first = Some(First::At(time));
        self
    }

    /// The first occurrence is this long after now. Without this and [`at`](Self::at) it is a
    /// period after now.
    pub const fn after(mut self, delay: Duration) -> Self {
        self.first = Some(First::After(delay));
        self
    }

    /// Occurrences follow each other at this distance. Without it there is one.
    pub const fn every(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// No occurrence is later than this time. After the last one the reminder is removed.
    pub const fn until(mut self, time: Timestamp) -> Self {
        self.end = Some(time);
        self
    }

    /// Sets the policy for occurrences that no silo could fire in time; [`MissedPolicy::Once`]
    /// without it.
    pub const fn missed(mut self, missed: MissedPolicy) -> Self {
        self.missed = missed;
        self
    }

    /// Leaves an existing reminder of this name as it is: for grains that ask for their reminder in
    /// each activation.
    pub const fn if_absent(mut self) -> Self {
        self.if_absent = true;
        self
    }

    fn schedule(&self, now: Timestamp, least: Duration) -> Result<Schedule, ReminderError> {
        if let Some(period) = self.period.filter(|period| *period < least) {
            return Err(ReminderError::Period { period, least });
        }
        let first = self.first.or_else(|| self.period.map(First::After));
        let start = match first.ok_or_else(|| ReminderError::NeverDue(self.name.clone()))? {
            First::After(delay) => now + delay,
            First::At(at) if now.saturating_since(at) > PAST_TOLERANCE => {
                return Err(ReminderError::Past { at, now });
            }
            First::At(at) => at,
        };
        let is_too_far = |at: &Timestamp| *at > REMINDER_TIME_MAX;
        if let Some(at) = [Some(start), self.end].into_iter().flatten().find(is_too_far) {
            return Err(ReminderError::TooFar { at });
        }
        if let Some(end) = self.end.filter(|end| *end < start) {
            return Err(ReminderError::End { first: start, end });
        }
        Ok(Schedule { start, period: self.period, end: self.end })
    }

    async fn store(self) -> Result<ReminderInfo, ReminderError> {
        check_name(&self.name)?;
        let reminding = self.ctx.reminding().ok_or(ReminderError::SiloEnded)?;
        let Reminding { service, grain_type, names } = reminding;
        if !names.contains(&self.name.as_str()) {
            return Err(ReminderError::NoHandler {
                name: self.name,
                grain_type: grain_type.to_owned(),
                known: names.to_vec(),
            });
        }
        let options = service.options();
        let schedule = self.schedule(service.now().wall, options.period_min)?;
        let grain = self.ctx.grain_id();
        for _ in 0..TRIES_MAX {
            let all = service.table().of_grain(grain).await.map_err(|error| unread(&error))?;
            let known = all.iter().find(|known| *known.reminder.name == *self.name);
            if let Some(known) = known.filter(|_| self.if_absent) {
                return Ok(ReminderInfo::of(&known.reminder));
            }
            if known.is_none() && all.len() >= options.per_grain_max {
                return Err(ReminderError::TooMany(all.len()));
            }
            let reminder = self.reminder(grain, grain_type, schedule);
            let _told = service.writing(grain, grain_type, &self.name);
            match write(&service, &reminder, known).await.map_err(|error| unread(&error))? {
                ReminderWrite::EtagMismatch => {}
                ReminderWrite::Unknown(error) => return Err(unknown(&error)),
                ReminderWrite::Written(_) => return Ok(ReminderInfo::of(&reminder)),
            }
        }
        Err(ReminderError::Contended(self.name))
    }

    fn reminder(&self, grain: &GrainId, grain_type: &str, schedule: Schedule) -> Reminder {
        Reminder {
            grain: grain.clone(),
            grain_type: grain_type.into(),
            name: self.name.as_str().into(),
            schedule,
            missed: self.missed,
            fired: 0,
            last_fired: None,
            missed_count: 0,
        }
    }
}

async fn write(
    service: &ReminderService,
    reminder: &Reminder,
    known: Option<&StoredReminder>,
) -> Result<ReminderWrite, StoreError> {
    match known {
        Some(known) => service.table().replace(reminder, &known.etag).await,
        None => service.table().insert(reminder).await,
    }
}

impl IntoFuture for ReminderBuilder {
    type Output = Result<ReminderInfo, ReminderError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.store())
    }
}
