//! A thermostat: a timer samples the temperature while the grain is in memory, a reminder reports
//! once a day, whatever happened to the silos meanwhile.

use emmer::prelude::*;
use emmer::reminders::{MissedPolicy, Tick, Timer};
use serde::{Deserialize, Serialize};

/// One room's thermostat.
#[grain_interface(key = String)]
pub trait Thermostat {
    /// Switches it on: it samples every `seconds`, and reports every `hours`.
    async fn switch_on(&mut self, seconds: u64, hours: u64) -> Result<(), String>;
    /// Switches it off. Its readings stay.
    async fn switch_off(&mut self) -> Result<(), String>;
    /// Says what the sensor shows now, in tenths of a degree.
    async fn show(&mut self, tenths: i32);
    /// Every report so far.
    async fn reports(&self) -> Vec<Report>;
}

/// A thermostat's report on the time since its last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The number of the reminder's occurrence.
    pub number: u64,
    /// The number of reports before it that were missed because no silo ran.
    pub missed: u64,
    /// The number of samples.
    pub samples: u64,
    /// Their mean, in tenths of a degree; none without samples.
    pub mean_tenths: Option<i32>,
}

/// The state in the store.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    /// The time between two samples, in seconds; none while it is switched off.
    sampling: Option<u64>,
    samples: u64,
    sum_tenths: i64,
    reports: Vec<Report>,
}

/// The class.
#[derive(Grain)]
pub struct ThermostatGrain {
    #[context]
    ctx: Ctx,
    #[state("kept")]
    kept: Persistent<Kept>,
    sensor_tenths: i32,
    sampling: Option<Timer>,
}

impl Lifecycle for ThermostatGrain {
    /// Timers end with their activation, so each activation starts its own.
    async fn activate(&mut self, _: &Ctx) -> Result<(), ActivationError> {
        self.start_sampling();
        Ok(())
    }
}

#[grain]
impl Thermostat for ThermostatGrain {
    async fn switch_on(&mut self, seconds: u64, hours: u64) -> Result<(), String> {
        self.kept.modify(|kept| kept.sampling = Some(seconds));
        self.kept.write().await.map_err(text)?;
        self.start_sampling();
        let report = self.ctx.remind("report").every(secs(3_600 * hours));
        report.missed(MissedPolicy::Once).if_absent().await.map_err(text)?;
        Ok(())
    }

    async fn switch_off(&mut self) -> Result<(), String> {
        self.ctx.remove_reminder("report").await.map_err(text)?;
        self.kept.modify(|kept| kept.sampling = None);
        self.kept.write().await.map_err(text)?;
        self.start_sampling();
        Ok(())
    }

    async fn show(&mut self, tenths: i32) {
        self.sensor_tenths = tenths;
    }

    async fn reports(&self) -> Vec<Report> {
        self.kept.reports.clone()
    }
}

#[grain]
impl ThermostatGrain {
    /// Once a day.
    #[reminder("report")]
    async fn report(&mut self, tick: Tick) -> Result<(), StateError> {
        // A tick may come twice, with the same number.
        if self.kept.reports.last().is_some_and(|last| last.number >= tick.number) {
            return Ok(());
        }
        self.kept.modify(|kept| {
            let mean = kept.sum_tenths.checked_div(i64::try_from(kept.samples).unwrap_or(i64::MAX));
            kept.reports.push(Report {
                number: tick.number,
                missed: tick.missed,
                samples: kept.samples,
                mean_tenths: mean.and_then(|mean| i32::try_from(mean).ok()),
            });
            (kept.samples, kept.sum_tenths) = (0, 0);
        });
        self.kept.write().await
    }

    /// Every few seconds, in memory only: a sample that is lost with its silo is no harm.
    async fn sample(&mut self) {
        let tenths = i64::from(self.sensor_tenths);
        self.kept.modify(|kept| {
            kept.samples += 1;
            kept.sum_tenths += tenths;
        });
    }

    fn start_sampling(&mut self) {
        if let Some(before) = self.sampling.take() {
            before.stop();
        }
        if let Some(seconds) = self.kept.sampling {
            let every = secs(seconds);
            let timer = self.ctx.timer(every).every(every).keep_alive().run(Self::sample);
            self.sampling = Some(timer);
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
