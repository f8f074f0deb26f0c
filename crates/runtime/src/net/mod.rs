//! Connections: one per pair of peers, driven by one task each that both reads and writes.

mod account;
mod answers;
#[cfg(test)]
mod bounds_tests;
mod calls;
mod connection;
pub(crate) mod descriptors;
mod driver;
mod ending;
mod frames;
mod half_closed;
mod handshake;
mod lifeline;
mod listener;
mod lost;
mod pending;
mod pool;
mod security;
mod silence;
#[cfg(test)]
pub(super) mod tests;
mod ticking;
mod traffic;

pub(crate) use self::account::{Expected, FrameRooms, HeldBytes, weight};
pub(crate) use self::connection::Connection;
pub(crate) use self::driver::{Handler, drive};
pub(crate) use self::handshake::{DialError, Greeting, dial, dial_probe};
pub(crate) use self::lifeline::keep_lifeline;
pub(crate) use self::listener::{Callers, Listener, Port};
pub(crate) use self::lost::{Lost, SendError};
pub(crate) use self::pending::{Answer, Budget, Correlation, KEPT_BODY_BYTES_MAX};
pub(crate) use self::pool::Pool;
pub(crate) use self::security::Security;
pub(crate) use self::ticking::{Quiet, Ticking};
pub(crate) use self::traffic::Traffic;
