//! The end of a process that hosts a silo.

use std::process::ExitCode;

use crate::errors::{RunError, StartError, Terminated};
use crate::{Error, Result};

/// Ends a `main`: writes the error, if any, to stderr, and returns an exit code of
/// `docs/commands.md`. 0, 86 and 87 are for a silo that has ended by itself, 2 to 5 for one that
/// could not start, 1 for anything else. A supervisor decides by this code.
///
/// [`#[emmer::main]`](macro@crate::main) does this. A program with a runtime of its own calls it:
///
/// ```no_run
/// use emmer::prelude::*;
///
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     emmer::exit(serve().await)
/// }
///
/// async fn serve() -> emmer::Result<()> {
///     let silo = Silo::builder().store("memory://").start().await?;
///     silo.run_until_stopped().await?;
///     Ok(())
/// }
/// ```
pub fn exit(result: Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("error: {error:?}");
    ExitCode::from(code_of(&error))
}

/// Runs a `main` on threads of its own. For `#[emmer::main]`.
pub fn run_main(main: impl Future<Output = Result<()>>) -> ExitCode {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    exit(built.map_err(Error::from).and_then(|runtime| runtime.block_on(main)))
}

/// The exit code that an error stands for.
fn code_of(error: &Error) -> u8 {
    if let Some(terminated) = error.downcast_ref::<Terminated>() {
        return terminated.exit_code();
    }
    if let Some(start) = error.downcast_ref::<StartError>() {
        return start.exit_code();
    }
    if let Some(run) = error.downcast_ref::<RunError>() {
        return run.exit_code();
    }
    #[cfg(feature = "config")]
    if error.downcast_ref::<crate::config::ConfigError>().is_some() {
        return 2;
    }
    #[cfg(feature = "telemetry")]
    if error.downcast_ref::<crate::telemetry::EndpointError>().is_some() {
        return 4;
    }
    1
}
