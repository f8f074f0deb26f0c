//! The telemetry of a real silo.

// The attribute tells the lints that helpers, too, are tests.
#[cfg(feature = "otlp")]
#[cfg(test)]
mod collector;
#[cfg(test)]
mod endpoint;
#[cfg(feature = "otlp")]
#[cfg(test)]
mod otlp;
