//! The grain for which this thread decodes arguments that came from elsewhere.

use super::Held;

scoped_tls::scoped_thread_local! {
    static ARRIVING: Held
}

/// Runs `decode` for a call of this grain that came from elsewhere.
#[inline]
pub(crate) fn arriving<T>(grain: &Held, decode: impl FnOnce() -> T) -> T {
    ARRIVING.set(grain, decode)
}

/// Calls `look` with the grain whose call is being decoded, if any.
pub(crate) fn arriving_at<R>(look: impl FnOnce(&Held) -> R) -> Option<R> {
    ARRIVING.is_set().then(|| ARRIVING.with(look))
}
