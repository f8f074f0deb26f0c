//! Virtual actors for Rust: grains addressed by key, hosted by silos, in clusters that manage themselves over a shared table.
