//! Users' mistakes with the macros, in `tests/ui`, and the compiler's answers. A package of its
//! own: as tests of the macros' crate they would compile the runtime once more.
