//! Connections: one per pair of peers, driven by one task each that both reads and writes.

mod answers;
#[cfg(test)]
mod bounds_tests;
mod calls;
mod connection;
pub mod descriptors;
mod driver;
mod driving;
mod handshake;
mod lifeline;
mod listener;
mod pool;
mod security;
#[cfg(test)]
pub(super) mod tests;
mod ticking;
mod traffic;

pub use emmer_link::account::{FrameRooms, HeldBytes, weight};
pub use emmer_link::{Answer, Budget, Correlation, KEPT_BODY_BYTES_MAX, Lost, SendError};

pub use self::answers::Expected;
pub use self::calls::Ticket;
pub use self::connection::Connection;
pub use self::driver::{Handler, drive};
pub use self::handshake::{DialError, Greeting, dial, dial_probe};
pub use self::lifeline::keep_lifeline;
pub use self::listener::{Callers, Listener, Port};
pub use self::pool::Pool;
pub use self::security::Security;
pub use self::ticking::{Quiet, Ticking};
pub use self::traffic::Traffic;
