//! Aircraft: how far they flew and where they are.

use std::sync::Arc;

use emmer::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Departure;
use crate::protocol::{self, Applied, ApplyError};

/// An aircraft; the key is its tail number.
#[grain_interface(key = String)]
pub trait Aircraft {
    /// Applies departures of this aircraft from position `from` of its stream on, and stores the
    /// totals. Departures that are applied already are skipped.
    async fn apply(&mut self, from: u64, batch: Vec<Departure>) -> Result<Applied, ApplyError>;
    /// The totals.
    async fn totals(&self) -> AircraftTotals;
}

/// What an aircraft knows: the exact result of the first `applied` departures of its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AircraftTotals {
    /// How many departures of the stream these totals hold.
    pub applied: u64,
    /// Flights flown.
    pub flights: u64,
    /// Flights cancelled.
    pub cancelled: u64,
    /// Miles flown.
    pub miles: u64,
    /// Minutes of late arrivals; early ones are negative, unknown ones missing.
    pub arrival_delay_minutes: i64,
    /// How often it arrived late.
    pub late_arrivals: u64,
    /// IATA code of the airport it last flew to; None before its first flight.
    pub position: Option<Arc<str>>,
    /// Month and day of its last flight; zeros before the first.
    pub last_flown: (u8, u8),
}

impl AircraftTotals {
    /// Adds the next departure of the stream.
    pub fn add(&mut self, departure: &Departure) {
        self.applied += 1;
        if !departure.flew() {
            self.cancelled += 1;
            return;
        }
        self.flights += 1;
        self.miles += u64::from(departure.distance);
        let delay = departure.arr_delay.unwrap_or(0);
        self.arrival_delay_minutes += i64::from(delay);
        self.late_arrivals += u64::from(delay > 0);
        self.position = Some(departure.dest.clone());
        self.last_flown = (departure.month, departure.day);
    }
}

/// Hosts [`Aircraft`].
#[derive(Grain)]
pub struct AircraftGrain {
    #[state("totals")]
    totals: Persistent<AircraftTotals>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Aircraft for AircraftGrain {
    async fn apply(&mut self, from: u64, batch: Vec<Departure>) -> Result<Applied, ApplyError> {
        let before = AircraftTotals::clone(&self.totals);
        let fresh = protocol::unapplied(before.applied, from, &batch)?;
        if !fresh.is_empty() {
            self.totals.modify(|totals| fresh.iter().for_each(|departure| totals.add(departure)));
            if let Err(error) = self.totals.write().await {
                // What memory says must not be ahead of the store: a repeated batch would be
                // skipped and lost.
                self.totals.modify(|totals| *totals = before);
                return Err(error.into());
            }
        }
        Ok(Applied { applied: self.totals.applied, silo: self.ctx.silo() })
    }

    async fn totals(&self) -> AircraftTotals {
        AircraftTotals::clone(&self.totals)
    }
}
