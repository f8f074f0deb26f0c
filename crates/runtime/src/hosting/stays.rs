//! The reasons why a grain does not move.

use emmer_core::limits::GRAIN_MEMORY_BYTES_MAX;

/// Reason why a grain stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stays {
    /// No grain of its class moves.
    #[error("its class stays where it is")]
    Class,
    /// The grain itself refuses.
    #[error("the grain refuses to move")]
    Grain,
    /// Turns run that do not end soon, or too much is on its way.
    #[error("it is busy")]
    Busy,
    /// A turn has started a timer, which the hook of an arrival does not start.
    #[error("a timer runs that its activation did not start")]
    Timer,
    /// It is not active, or ends.
    #[error("it is not active")]
    Gone,
    /// Its memory is too large.
    #[error("its memory has {0} bytes, more than {GRAIN_MEMORY_BYTES_MAX}")]
    TooLarge(usize),
    /// A field does not encode, in these words.
    #[error("its memory does not encode: {0}")]
    Unpackable(String),
    /// The other silo did not take it.
    #[error("the other silo did not take it")]
    Refused,
    /// It has left the other silo a moment ago.
    #[error("it has left that silo a moment ago")]
    TooSoon,
    /// The other silo was lost, and the grain with it. The next call activates it.
    #[error("it was lost on its way")]
    Lost,
}
