//! A process that is nothing but a silo.

use crate::config::Settings;
use crate::{Result, Silo, SiloBuilder};

/// Serves a silo with these settings until the process is asked to stop (Ctrl-C, or SIGTERM where
/// there is one): `describe` says what it hosts.
///
/// The silo leaves in good order, and tells in the log what it still waits for; a second request
/// makes it leave in haste. One that comes before the silo is Active ends the process at once.
///
/// ```no_run
/// use emmer::config::{ConfigArgs, Settings};
/// use emmer::prelude::*;
/// # #[grain_interface(key = String)]
/// # pub trait Cart {}
/// # #[derive(Grain)]
/// # struct CartGrain {}
/// # #[grain]
/// # impl Cart for CartGrain {}
///
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     emmer::exit(serve().await)
/// }
///
/// async fn serve() -> emmer::Result<()> {
///     let settings = Settings::of_process(&ConfigArgs::default(), Vec::new())?;
///     emmer::run(&settings, |silo| silo.host::<dyn Cart, CartGrain>()).await
/// }
/// ```
///
/// # Errors
/// A setting is wrong, the silo did not start, or it has ended by itself. [`exit`](crate::exit)
/// makes the documented exit code of it.
pub async fn run(
    settings: &Settings,
    describe: impl FnOnce(SiloBuilder) -> SiloBuilder,
) -> Result<()> {
    let options = settings.silo_options()?;
    let store = settings.required("store", "--store")?.text.as_str();
    let placement = settings.placement()?;
    let silo = Silo::builder().options(options).store(store).default_placement(placement);
    Ok(describe(silo).run().await?)
}
