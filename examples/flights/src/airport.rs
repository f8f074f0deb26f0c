//! Airports: what left and what arrived.

use emmer::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Departure;
use crate::protocol::{self, Applied, ApplyError};

/// An airport; the key is its IATA code.
#[grain_interface(key = String)]
pub trait Airport {
    /// Applies departures from and to this airport from position `from` of its stream on, and
    /// stores the totals. Departures that are applied already are skipped.
    async fn apply(&mut self, from: u64, batch: Vec<Departure>) -> Result<Applied, ApplyError>;
    /// The totals.
    async fn totals(&self) -> AirportTotals;
}

/// What an airport knows: the exact result of the first `applied` departures of its stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AirportTotals {
    /// How many departures of the stream these totals hold.
    pub applied: u64,
    /// Departures from here that left.
    pub departures: u64,
    /// Departures from here that were cancelled.
    pub cancelled: u64,
    /// Minutes of late departures; early ones are negative.
    pub departure_delay_minutes: i64,
    /// How many left late.
    pub late_departures: u64,
    /// Flights to here that left their origin.
    pub arrivals: u64,
    /// Minutes of late arrivals; early ones are negative, unknown ones missing.
    pub arrival_delay_minutes: i64,
    /// How many arrived late.
    pub late_arrivals: u64,
    /// Miles flown from and to here.
    pub miles: u64,
}

impl AirportTotals {
    /// Adds the next departure of the stream of the airport `code`.
    pub fn add(&mut self, code: &str, departure: &Departure) {
        self.applied += 1;
        if !departure.flew() {
            self.cancelled += u64::from(&*departure.origin == code);
            return;
        }
        self.miles += u64::from(departure.distance);
        if &*departure.origin == code {
            self.departures += 1;
            let delay = departure.dep_delay.unwrap_or(0);
            self.departure_delay_minutes += i64::from(delay);
            self.late_departures += u64::from(delay > 0);
        } else {
            self.arrivals += 1;
            let delay = departure.arr_delay.unwrap_or(0);
            self.arrival_delay_minutes += i64::from(delay);
            self.late_arrivals += u64::from(delay > 0);
        }
    }
}

/// Hosts [`Airport`].
#[derive(Grain)]
pub struct AirportGrain {
    #[state("totals")]
    totals: Persistent<AirportTotals>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Airport for AirportGrain {
    async fn apply(&mut self, from: u64, batch: Vec<Departure>) -> Result<Applied, ApplyError> {
        let before = AirportTotals::clone(&self.totals);
        let fresh = protocol::unapplied(before.applied, from, &batch)?;
        if !fresh.is_empty() {
            let code = self.ctx.key().to_string();
            self.totals
                .modify(|totals| fresh.iter().for_each(|departure| totals.add(&code, departure)));
            if let Err(error) = self.totals.write().await {
                // What memory says must not be ahead of the store: a repeated batch would be
                // skipped and lost.
                self.totals.modify(|totals| *totals = before);
                return Err(error.into());
            }
        }
        Ok(Applied { applied: self.totals.applied, silo: self.ctx.silo() })
    }

    async fn totals(&self) -> AirportTotals {
        AirportTotals::clone(&self.totals)
    }
}
