//! The process for which a call is being encoded: its streams become known to its hub.

use std::sync::Arc;

use super::hub::Hub;
use super::post::Place;

scoped_tls::scoped_thread_local! {
    static ENCODING: (Arc<Hub>, Place)
}

/// Runs `encode` for the process with this hub, which the other end will know by this place.
pub(crate) fn encoding<T>(hub: &Arc<Hub>, here: Place, encode: impl FnOnce() -> T) -> T {
    ENCODING.set(&(hub.clone(), here), encode)
}

/// The process for which this thread encodes a call; None outside.
pub(crate) fn at_encoding<T>(run: impl FnOnce(&Arc<Hub>, Place) -> T) -> Option<T> {
    ENCODING.is_set().then(|| ENCODING.with(|(hub, here)| run(hub, *here)))
}
