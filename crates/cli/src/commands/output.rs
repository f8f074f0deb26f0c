//! What commands print on stdout.

use std::io::{ErrorKind, Write};

use crate::exit::{Failure, Result};

/// To stdout; a reader that has gone away (`| head`) is no failure.
///
/// # Errors
/// It cannot be written.
pub fn write_out(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::other(error)),
        Err(_) => std::process::exit(0),
        Ok(()) => Ok(()),
    }
}
