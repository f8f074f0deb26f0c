//! The end of a process that hosts a silo.

use std::process::ExitCode;

use crate::{Error, Result, RunError, StartError, Terminated};

/// Ends a `main`: writes the error, if there is one, to stderr, and makes the exit code that
/// `docs/operations.md` lists: 0, 86 or 87 for a silo that has ended by itself, 2 to 5 for one that
/// could not start, and 1 for anything else. A supervisor can tell by it what to do.
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
    let code = if let Some(terminated) = error.downcast_ref::<Terminated>() {
        terminated.exit_code()
    } else if let Some(start) = error.downcast_ref::<StartError>() {
        start.exit_code()
    } else if let Some(run) = error.downcast_ref::<RunError>() {
        run.exit_code()
    } else if is_config(&error) {
        2
    } else if is_listen(&error) {
        4
    } else {
        1
    };
    ExitCode::from(code)
}

/// Returns true if settings are wrong.
fn is_config(error: &Error) -> bool {
    #[cfg(feature = "config")]
    return error.downcast_ref::<crate::config::ConfigError>().is_some();
    #[cfg(not(feature = "config"))]
    {
        let _ = error;
        false
    }
}

/// Returns true if an address for metrics and health cannot be listened on.
fn is_listen(error: &Error) -> bool {
    #[cfg(feature = "telemetry")]
    return error.downcast_ref::<crate::telemetry::EndpointError>().is_some();
    #[cfg(not(feature = "telemetry"))]
    {
        let _ = error;
        false
    }
}
