//! The same totals computed from the file alone, in one pass and without the grains' code: what the
//! cluster's totals are compared with.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{AircraftTotals, AirportTotals, Departure};

/// The right totals of every grain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// By IATA code.
    pub airports: BTreeMap<Arc<str>, AirportTotals>,
    /// By tail number.
    pub aircraft: BTreeMap<Arc<str>, AircraftTotals>,
}

impl Truth {
    /// Adds up `departures`, which are in file order.
    pub fn of(departures: &[Departure]) -> Self {
        let mut truth = Self::default();
        for departure in departures {
            truth.origin(departure);
            truth.destination(departure);
            if let Some(tail) = &departure.tail {
                truth.airframe(tail, departure);
            }
        }
        truth
    }

    fn origin(&mut self, departure: &Departure) {
        let airport = self.airports.entry(departure.origin.clone()).or_default();
        airport.applied += 1;
        if departure.dep_time.is_none() {
            airport.cancelled += 1;
            return;
        }
        airport.departures += 1;
        airport.miles += u64::from(departure.distance);
        if let Some(delay) = departure.dep_delay {
            airport.departure_delay_minutes += i64::from(delay);
            if delay >= 1 {
                airport.late_departures += 1;
            }
        }
    }

    fn destination(&mut self, departure: &Departure) {
        let airport = self.airports.entry(departure.dest.clone()).or_default();
        airport.applied += 1;
        if departure.dep_time.is_none() {
            return;
        }
        airport.arrivals += 1;
        airport.miles += u64::from(departure.distance);
        if let Some(delay) = departure.arr_delay {
            airport.arrival_delay_minutes += i64::from(delay);
            if delay >= 1 {
                airport.late_arrivals += 1;
            }
        }
    }

    fn airframe(&mut self, tail: &Arc<str>, departure: &Departure) {
        let aircraft = self.aircraft.entry(tail.clone()).or_default();
        aircraft.applied += 1;
        if departure.dep_time.is_none() {
            aircraft.cancelled += 1;
            return;
        }
        aircraft.flights += 1;
        aircraft.miles += u64::from(departure.distance);
        aircraft.last_flown = (departure.month, departure.day);
        aircraft.position = Some(departure.dest.clone());
        if let Some(delay) = departure.arr_delay {
            aircraft.arrival_delay_minutes += i64::from(delay);
            if delay >= 1 {
                aircraft.late_arrivals += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{Streams, Target};

    #[test]
    fn the_grains_rules_applied_in_order_give_the_truth() {
        let streams = Streams::new(crate::file::read(crate::BUNDLED, None).unwrap());
        let truth = Truth::of(streams.departures());
        for stream in streams.all() {
            let batch = streams.batch(stream, 0..stream.len());
            match stream.target() {
                Target::Airport(code) => {
                    let mut totals = AirportTotals::default();
                    batch.iter().for_each(|d| totals.add(code, d));
                    assert_eq!(truth.airports.get(code), Some(&totals), "{code}");
                }
                Target::Aircraft(tail) => {
                    let mut totals = AircraftTotals::default();
                    batch.iter().for_each(|d| totals.add(d));
                    assert_eq!(truth.aircraft.get(tail), Some(&totals), "{tail}");
                }
            }
        }
    }

    /// Figures of the data set that its publishers give: 336,776 departures, 8,255 of them
    /// cancelled.
    #[test]
    fn adds_up_to_known_figures() {
        let departures = crate::file::read(crate::BUNDLED, None).unwrap();
        let truth = Truth::of(&departures);
        let cancelled: u64 = truth.airports.values().map(|a| a.cancelled).sum();
        let left: u64 = truth.airports.values().map(|a| a.departures).sum();
        assert_eq!((left, cancelled), (328_521, 8_255));
        assert_eq!(truth.airports.values().filter(|a| a.departures > 0).count(), 3);
        let departure_minutes: i64 =
            truth.airports.values().map(|a| a.departure_delay_minutes).sum();
        let said: i64 = departures.iter().filter_map(|d| d.dep_delay).map(i64::from).sum();
        assert_eq!(departure_minutes, said);
    }
}
