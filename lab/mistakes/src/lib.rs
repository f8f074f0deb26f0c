//! The mistakes that users make with the macros, in `tests/ui`, and what the compiler says of them.
//! They are a package apart: as tests of a crate of macros they would compile the runtime once
//! more, for the machine that compiles.
