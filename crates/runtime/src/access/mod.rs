//! Calls from outside the cluster: identities of clients, and rules about their calls.
//!
//! A client proves itself when it connects: by the names in its certificate, or by a token that the
//! application's [hook](crate::SiloBuilder::authenticate) checks. The result is an [`Identity`],
//! which travels with the client's calls and with all calls that follow from them. The
//! application's [`authorize`](crate::SiloBuilder::authorize) decides about each call of a client.

mod admin;
mod authenticate;
mod authorize;
mod identity;

pub use emmer_net::credentials::{Credentials, TokenError};

pub(crate) use self::admin::AdminRules;
pub use self::admin::{AdminVisit, Right};
pub(crate) use self::authenticate::{Authenticate, Known};
pub(crate) use self::authorize::Authorize;
pub use self::authorize::{Access, ClientCall};
pub use self::identity::Identity;
