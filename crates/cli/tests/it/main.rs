//! The `emmer` command as processes: no port is fixed, nothing sleeps in place of a condition.

// The attribute tells the lints that helpers, too, are tests.
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod config;
#[cfg(feature = "console")]
#[cfg(test)]
mod console;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod doctor;
mod duties;
#[cfg(test)]
mod grains;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hostile;
#[cfg(feature = "tls")]
#[cfg(test)]
mod imposters;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod records;
#[cfg(test)]
mod state;
#[cfg(test)]
mod telemetry;
#[cfg(feature = "tls")]
#[cfg(test)]
mod tls;
#[cfg(feature = "top")]
#[cfg(test)]
mod top;
