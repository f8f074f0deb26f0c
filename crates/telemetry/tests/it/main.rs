//! The telemetry of a real silo.

// The attribute tells the lints that helpers, too, are tests.
#[cfg(test)]
mod endpoint;
