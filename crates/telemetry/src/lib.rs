//! The ways of metrics and health out of an Emmer process. Each way is an
//! [`Observer`](emmer_runtime::Observer) of a silo.
//!
//! | module | subject |
//! |---|---|
//! | `publish` | the silo's metrics for the `metrics` facade ([`Facade`]) |
//! | `endpoint` | an HTTP server: `/metrics` for Prometheus, `/healthz`, `/readyz` ([`Endpoint`]) |

mod endpoint;
mod publish;

pub use self::endpoint::{Endpoint, EndpointError};
pub use self::publish::Facade;
