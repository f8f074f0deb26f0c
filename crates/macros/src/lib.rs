//! The attribute and derive macros behind the emmer facade.
