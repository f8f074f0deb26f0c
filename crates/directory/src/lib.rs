//! The grain directory as a sans-IO state machine.
