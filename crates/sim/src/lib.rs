//! The virtual-time world that runs Emmer's state machines by the thousand.
