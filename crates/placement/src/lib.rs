//! Placement strategies and directors. Sans-IO.
