//! Airports and aircraft as grains, fed with every departure of 2013 from New York.
//!
//! Every [`Departure`] goes to three grains: the [`Airport`] it leaves, the [`Airport`] it flies to
//! and the [`Aircraft`] that flies it. The totals are exact although silos die and calls fail:
//!
//! * the departures of one grain form a [stream](streams::Stream) in file order;
//! * a grain's state carries `applied`, how many departures of its stream its totals hold, and both
//!   are written in one write: whatever the store holds is the exact result of a prefix of the
//!   stream;
//! * `apply(from, batch)` skips what is applied already and refuses a gap, so a repeated call does
//!   no harm and a lost one cannot be passed over;
//! * the [feeder] repeats a call whatever its failure says about execution, and goes on from where
//!   the answer says.
//!
//! | module | subject |
//! |---|---|
//! | [`departure`] | one line of the file |
//! | [`file`](mod@file) | reading and checking the whole file before anything is fed |
//! | [`streams`] | which grain gets which departures |
//! | [`protocol`] | what callers and grains say to one another |
//! | [`airport`], [`aircraft`] | the grains |
//! | [`feeder`] | replays the streams, many grains at once |
//! | [`truth`] | the same totals computed from the file alone, to compare with |

pub mod aircraft;
pub mod airport;
pub mod departure;
pub mod feeder;
pub mod file;
pub mod protocol;
pub mod streams;
pub mod truth;

pub use aircraft::{Aircraft, AircraftGrain, AircraftTotals};
pub use airport::{Airport, AirportGrain, AirportTotals};
pub use departure::Departure;
pub use protocol::{Applied, ApplyError};

/// The file with every departure, as it ships: CSV, compressed with gzip (`data/README.md` names
/// its source).
pub const BUNDLED: &[u8] = include_bytes!("../data/flights.csv.gz");
