//! The silo's HTTP endpoint for metrics and health, where the program was built with it.

use std::net::SocketAddr;

use emmer::SiloBuilder;

#[cfg(not(feature = "telemetry"))]
use crate::exit::Failure;
use crate::exit::Result;

/// Refuses an address that this program cannot serve.
#[cfg(not(feature = "telemetry"))]
pub(super) fn check(address: Option<SocketAddr>) -> Result<()> {
    match address {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "telemetry: this program was built without it: build it with --features telemetry",
        )),
    }
}

/// The silo without an endpoint.
#[cfg(not(feature = "telemetry"))]
pub(super) async fn observe(
    builder: SiloBuilder,
    _: Option<SocketAddr>,
) -> Result<(SiloBuilder, Option<SocketAddr>)> {
    std::future::ready(Ok((builder, None))).await
}

/// Refuses an address that this program cannot serve: none.
#[cfg(feature = "telemetry")]
pub(super) const fn check(_: Option<SocketAddr>) -> Result<()> {
    Ok(())
}

/// The silo with an endpoint on `address`, if there is one, and where that listens.
#[cfg(feature = "telemetry")]
pub(super) async fn observe(
    builder: SiloBuilder,
    address: Option<SocketAddr>,
) -> Result<(SiloBuilder, Option<SocketAddr>)> {
    use crate::exit::{Code, Failure};

    let Some(address) = address else { return Ok((builder, None)) };
    let endpoint = emmer::telemetry::Endpoint::bind(address);
    let endpoint = endpoint.await.map_err(|error| Failure::new(Code::Listen, error))?;
    let address = endpoint.address();
    Ok((builder.observer(endpoint), Some(address)))
}
