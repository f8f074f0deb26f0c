//! Connections: one per pair of peers, driven by one task each that both reads and writes.

mod account;
mod answers;
#[cfg(test)]
mod bounds_tests;
mod calls;
mod connection;
pub mod descriptors;
mod driver;
mod driving;
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
mod unread;

pub use self::account::{Expected, FrameRooms, HeldBytes, weight};
pub use self::calls::Ticket;
pub use self::connection::Connection;
pub use self::driver::{Handler, drive};
pub use self::handshake::{DialError, Greeting, dial, dial_probe};
pub use self::lifeline::keep_lifeline;
pub use self::listener::{Callers, Listener, Port};
pub use self::lost::{Lost, SendError};
pub use self::pending::{Answer, Budget, Correlation, KEPT_BODY_BYTES_MAX};
pub use self::pool::Pool;
pub use self::security::Security;
pub use self::ticking::{Quiet, Ticking};
pub use self::traffic::Traffic;
