//! Why no silo was chosen.

use emmer_core::SiloAddress;

use crate::strategy::Strategy;

/// Why no silo was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No Active silo can host the grain, or none of those that can is reached.
    #[error("no active silo that can be reached can host the grain")]
    NoCandidate,
    /// No Active silo hosts the grain's type, and none is known that did.
    #[error("no active silo hosts grains of this type. Hosted are: {0}")]
    NotHosted(String),
    /// Active silos host the grain's type, but in no version that has the method.
    #[error("no active silo has this method of {grain_type}: {versions}")]
    NotServed {
        /// The name of the grain type.
        grain_type: String,
        /// Versions, with the number of silos that host each.
        versions: String,
    },
    /// The silos that hosted the grain's type are gone, or it is not known yet what some host.
    #[error("no active silo is known to serve this call")]
    NoHostKnown,
    /// No Active silo has the role that the strategy asks for.
    #[error("no active silo has the role {0:?}, where the grain belongs")]
    NoSiloOfRole(String),
    /// No Active silo that can host the grain passes this filter of its class.
    #[error("no active silo has the metadata that the grain requires: {0}")]
    NoSiloPasses(String),
    /// No director is registered for the strategy.
    #[error("no placement director is registered as {:?}: add one where the silo is \
        built", .0.name())]
    NoDirector(Strategy),
    /// The strategy's director found none of the candidates fit.
    #[error("the placement director {:?} chose none of the silos that can host the \
        grain", .0.name())]
    NothingChosen(Strategy),
    /// The strategy's director panicked.
    #[error("the placement director {0:?} panicked: {1}")]
    Panicked(String, String),
    /// The strategy's director could not answer.
    #[error("the placement director {:?} failed: {why}", .strategy.name())]
    Failed {
        /// The strategy.
        strategy: Strategy,
        /// Words of the director.
        why: String,
    },
    /// The strategy's director chose a silo that is no candidate.
    #[error("the placement director {:?} chose {chosen}, which cannot host the \
        grain", .strategy.name())]
    NotACandidate {
        /// The strategy.
        strategy: Strategy,
        /// Choice of its director.
        chosen: SiloAddress,
    },
}
