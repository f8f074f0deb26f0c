//! The `emmer-lab` command as processes: no port is fixed, nothing sleeps in place of a condition.

// The attribute tells the lints that helpers, too, are tests.
#[cfg(test)]
mod bench;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod sim;
