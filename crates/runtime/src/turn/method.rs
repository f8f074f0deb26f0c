//! A method without its types.

use std::convert::Infallible;

use super::KeyKind;

/// A method, as code knows it that is compiled once for all of them.
#[derive(Debug)]
pub struct MethodInfo {
    /// The name of its interface.
    pub interface: &'static str,
    /// The name of the grain type that its interface is for.
    pub grain_type: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub id: u32,
    /// True if it takes `&mut self`.
    pub exclusive: bool,
    /// True if an argument of it is a stream.
    pub streams: bool,
    /// Kind of the keys of its interface.
    pub key: KeyKind,
    /// The names and types of its arguments, as the source has them.
    pub arguments: &'static [(&'static str, &'static str)],
    /// Its return type, as the source has it.
    pub returns: &'static str,
}

/// The error type of methods that have none of their own.
pub type NoError = Infallible;
