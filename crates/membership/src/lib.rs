//! Cluster membership as a sans-IO state machine.
