//! A method without its types.

use std::convert::Infallible;

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
}

/// The error type of methods that have none of their own.
pub type NoError = Infallible;
