//! Pictures of a cluster, and the console over HTTP.

// The attribute tells the lints that helpers, too, are tests.
#[cfg(test)]
mod encrypted;
#[cfg(test)]
mod gather;
#[cfg(test)]
mod serve;
