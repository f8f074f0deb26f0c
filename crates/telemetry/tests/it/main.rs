//! The telemetry of a real silo.

// The attribute tells the lints that helpers, too, are tests.
#[cfg(feature = "otlp")]
#[cfg(test)]
mod collector;
#[cfg(feature = "tls")]
#[cfg(test)]
mod encrypted;
#[cfg(test)]
mod endpoint;
#[cfg(feature = "otlp")]
#[cfg(test)]
mod otlp;
