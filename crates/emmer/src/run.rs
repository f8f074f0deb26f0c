//! A process that is nothing but a silo.

use crate::config::Settings;
use crate::{Result, Silo, SiloBuilder};

/// Serves a silo with these settings until the process is asked to stop (Ctrl-C, or SIGTERM where
/// there is one). `describe` adds the hosted classes.
///
/// The silo leaves in good order, and logs what it still waits for. A second request makes it leave
/// in haste. A request before the silo is Active ends the process at once.
///
/// systemd is notified when the silo is ready and when it stops
/// ([`notify_systemd`](crate::notify_systemd)).
///
/// With the feature `telemetry` it serves `/metrics`, `/healthz` and `/readyz` where the setting
/// `telemetry` says. With the feature `log` it writes the log to stderr, as the settings `log` and
/// `log_format` say. To have the log elsewhere, the program installs a subscriber of `tracing`
/// before. Traces need `emmer::telemetry::Otlp`.
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
/// #[emmer::main]
/// async fn main() -> emmer::Result<()> {
///     let settings = Settings::of_process(&ConfigArgs::default(), Vec::new())?;
///     emmer::run(&settings, |silo| silo.host::<dyn Cart, CartGrain>()).await
/// }
/// ```
///
/// # Errors
/// A setting is wrong, or one that this program does not obey; the silo did not start, or it has
/// ended by itself. [`exit`](crate::exit) makes the documented exit code of it.
pub async fn run(
    settings: &Settings,
    describe: impl FnOnce(SiloBuilder) -> SiloBuilder,
) -> Result<()> {
    for key in ["otlp", "traces"] {
        if let Some(entry) = settings.get(key) {
            let why = "this program sends no traces by its settings: write emmer::telemetry::Otlp";
            return Err(entry.wrong(key, why).into());
        }
    }
    let options = settings.silo_options()?;
    #[cfg(feature = "log")]
    settings.start_log()?;
    let store = settings.required("store", "--store")?.text.as_str();
    let placement = settings.placement()?;
    let silo = Silo::builder().options(options).store(store).default_placement(placement);
    let silo = secured(settings, silo)?;
    let silo = observed(settings, silo).await?;
    Ok(describe(crate::notify_systemd(silo)).run().await?)
}

/// The silo with TLS, where the settings ask for it (the table `[tls]`).
///
/// # Errors
/// A setting about TLS is wrong, or this program was built without the feature `tls`.
#[cfg(feature = "tls")]
pub fn secured(settings: &Settings, silo: SiloBuilder) -> Result<SiloBuilder> {
    Ok(match settings.tls()? {
        Some(tls) => silo.tls(tls),
        None => silo,
    })
}

/// The silo as it is: this program has no TLS.
///
/// # Errors
/// A setting asks for it.
#[cfg(not(feature = "tls"))]
pub fn secured(settings: &Settings, silo: SiloBuilder) -> Result<SiloBuilder> {
    match settings.asks_for_tls() {
        None => Ok(silo),
        Some((key, entry)) => {
            let why = "this program was built without TLS: build it with the feature tls";
            Err(entry.wrong(key, why).into())
        }
    }
}

/// The silo with its endpoint for metrics and health, where one is asked for.
#[cfg(feature = "telemetry")]
async fn observed(settings: &Settings, silo: SiloBuilder) -> Result<SiloBuilder> {
    let token = settings.telemetry_token()?;
    let Some(address) = settings.address("telemetry")? else { return Ok(silo) };
    let endpoint = crate::telemetry::Endpoint::bind(address).await?;
    #[cfg(feature = "tls")]
    let endpoint = match settings.telemetry_tls()? {
        Some(tls) => endpoint.tls(tls)?,
        None => endpoint,
    };
    let endpoint = match token {
        Some(token) => endpoint.token(token)?,
        None => endpoint,
    };
    Ok(silo.observer(endpoint))
}

/// The silo as it is: this program has no endpoint.
#[cfg(not(feature = "telemetry"))]
async fn observed(settings: &Settings, silo: SiloBuilder) -> Result<SiloBuilder> {
    std::future::ready(()).await;
    let found = ["telemetry", "telemetry_token"].into_iter();
    match found.filter_map(|key| Some((key, settings.get(key)?))).next() {
        None => Ok(silo),
        Some((key, entry)) => {
            let why = "this program was built without it: build it with the feature telemetry";
            Err(entry.wrong(key, why).into())
        }
    }
}
