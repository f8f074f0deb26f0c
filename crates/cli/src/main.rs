//! The `emmer` command.

fn main() {}
