//! The ways of metrics and health out of an Emmer process. Each way is an
//! [`Observer`](emmer_runtime::Observer) of a silo.
//!
//! | module | subject |
//! |---|---|
//! | `publish` | the silo's metrics for the `metrics` facade ([`Facade`]) |
//! | `endpoint` | an HTTP server: `/metrics` for Prometheus, `/healthz`, `/readyz` ([`Endpoint`]) |
//! | `orders` | orders to the silo over that server, with a token |
//! | `places` | the places of its connections |
//! | `otlp` | metrics and traces for a collector (`Otlp`); a feature |

mod endpoint;
mod orders;
#[cfg(feature = "otlp")]
mod otlp;
mod places;
mod publish;

pub use self::endpoint::{Endpoint, EndpointError};
#[cfg(feature = "otlp")]
pub use self::otlp::{OpenTelemetry, Otlp, OtlpError, OtlpMetrics, OtlpSender};
pub use self::publish::Facade;
