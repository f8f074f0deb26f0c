//! The `emmer` command as a library: what its program and the laboratory's have in common.
//!
//! | module | subject |
//! |---|---|
//! | [`commands`] | the commands of `emmer`, and what they share |
//! | [`exit`] | how a command ends: a paragraph and a number |
//! | [`logging`] | the log on stderr |
//! | [`process`] | the threads and the clock |
//! | [`text`] | numbers, times and columns for people |

// With the drivers of all stores the types of a silo's start nest deeply.
#![recursion_limit = "256"]

pub mod commands;
pub mod exit;
pub mod logging;
pub mod process;
pub mod text;
