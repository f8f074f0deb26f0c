//! The gateways of a client outside the cluster: the list of them, connections to some, and what
//! they say to each other apart from calls.

mod core;
mod dialling;
mod error;
mod listing;
mod message;
mod records;
mod state;

pub(crate) use self::core::{ClientCore, backoff, greeting};
pub(crate) use self::dialling::Settled;
pub use self::error::ConnectError;
pub(crate) use self::listing::Listing;
pub(crate) use self::message::{ClientFigures, GatewayMessage};
pub use self::state::{ClientState, ClientWatch};
