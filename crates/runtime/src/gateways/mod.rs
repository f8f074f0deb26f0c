//! The gateways of a client outside the cluster: their list, connections to some, and their
//! messages besides calls.

mod admin;
mod arriving;
mod core;
mod dialling;
mod error;
mod listing;
mod message;
mod records;
mod state;
mod streams;

pub(crate) use self::core::{ClientCore, backoff, greeting};
pub(crate) use self::dialling::Settled;
pub use self::error::ConnectError;
pub(crate) use self::listing::Listing;
pub(crate) use self::message::{ClientFigures, GatewayMessage};
pub use self::state::{ClientState, ClientWatch};
