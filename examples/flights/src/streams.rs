//! The departures of each grain: one stream for each grain, in file order.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::Departure;

/// A grain that departures go to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The airport with this IATA code.
    Airport(Arc<str>),
    /// The aircraft with this tail number.
    Aircraft(Arc<str>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Airport(code) => write!(f, "airport {code}"),
            Self::Aircraft(tail) => write!(f, "aircraft {tail}"),
        }
    }
}

/// The departures of one grain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    target: Target,
    /// Positions in the file, rising.
    positions: Vec<u32>,
}

impl Stream {
    /// The grain.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// How many departures it gets.
    pub fn len(&self) -> u64 {
        self.positions.len() as u64
    }

    /// Returns true for an empty stream. Streams of [`Streams`] never are.
    pub const fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Where in the file its departure `at` stands; none at the end of the stream.
    pub fn position(&self, at: u64) -> Option<u32> {
        self.positions.get(usize::try_from(at).ok()?).copied()
    }
}

/// The whole file, cut into the streams of its grains.
#[derive(Clone, Debug)]
pub struct Streams {
    departures: Arc<[Departure]>,
    streams: Vec<Stream>,
}

impl Streams {
    /// Cuts `departures`: each goes to its origin, its destination and, when that is known, its
    /// aircraft.
    pub fn new(departures: Vec<Departure>) -> Self {
        let mut by_target: BTreeMap<Target, Vec<u32>> = BTreeMap::new();
        for (position, departure) in (0u32..).zip(&departures) {
            let airports =
                [&departure.origin, &departure.dest].map(|code| Target::Airport(code.clone()));
            let aircraft = departure.tail.clone().map(Target::Aircraft);
            for target in airports.into_iter().chain(aircraft) {
                by_target.entry(target).or_default().push(position);
            }
        }
        let streams =
            by_target.into_iter().map(|(target, positions)| Stream { target, positions }).collect();
        Self { departures: departures.into(), streams }
    }

    /// Every departure, in file order.
    pub fn departures(&self) -> &[Departure] {
        &self.departures
    }

    /// The streams, ordered by their grains.
    pub fn all(&self) -> &[Stream] {
        &self.streams
    }

    /// How many departures all streams have together: what there is to do.
    pub fn deliveries(&self) -> u64 {
        self.streams.iter().map(Stream::len).sum()
    }

    /// A copy of the departures `range` of `stream`, cut at its end.
    pub fn batch(&self, stream: &Stream, range: Range<u64>) -> Vec<Departure> {
        let bound = |at: u64| usize::try_from(at.min(stream.len())).unwrap_or(usize::MAX);
        let positions =
            stream.positions.get(bound(range.start)..bound(range.end)).unwrap_or_default();
        let departure = |position: &u32| self.departures.get(*position as usize).cloned();
        positions.iter().filter_map(departure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_departure_goes_to_its_grains_in_file_order() {
        let departures = crate::file::read(crate::BUNDLED, None).unwrap();
        let with_tail = departures.iter().filter(|d| d.tail.is_some()).count() as u64;
        let streams = Streams::new(departures);
        assert_eq!(streams.deliveries(), 2 * 336_776 + with_tail);
        let airports =
            streams.all().iter().filter(|s| matches!(s.target(), Target::Airport(_))).count();
        assert_eq!((airports, streams.all().len() - airports), (107, 4_043));
        for stream in streams.all() {
            assert!(
                !stream.is_empty() && stream.positions.is_sorted_by(|a, b| a < b),
                "{}",
                stream.target()
            );
        }
        let ewr =
            streams.all().iter().find(|s| *s.target() == Target::Airport("EWR".into())).unwrap();
        let tail = streams.batch(ewr, ewr.len() - 2..ewr.len() + 5);
        assert!(tail.len() == 2 && tail.iter().all(|d| &*d.origin == "EWR" || &*d.dest == "EWR"));
        assert!(streams.batch(ewr, ewr.len() + 1..ewr.len() + 9).is_empty());
    }
}
