//! The placement of new activations: strategies and the directors that carry them out (the
//! *placement description* of `docs/membership.md`).
//!
//! A grain type names a [`Strategy`]; a [`PlacementTable`] maps strategies to [`Director`]s and
//! holds the silo's default. Sans-IO: random choices grow from a seed.
//!
//! Placement is a guess that the grain directory corrects: two silos may choose differently for one
//! grain at the same time, and only one activation gets registered.

mod balance;
mod candidates;
mod directors;
mod error;
pub mod hosted;
pub mod load;
mod placement;
pub mod repartition;
mod strategy;
mod table;

pub use balance::{BalanceConfig, Balancer, Transfer, even};
pub use candidates::{Candidate, Surroundings};
pub use directors::{
    ActivationCountDirector, AsyncDirector, Choosing, Director, DirectorError, FewestDirector,
    HashDirector, PlacementContext, PlacementRequest, PlacementTarget, PreferLocalDirector,
    RandomDirector, ResourceDirector,
};
pub use error::PlaceError;
pub use placement::{
    METADATA_ENTRIES_MAX, METADATA_KEY_BYTES_MAX, METADATA_VALUE_BYTES_MAX, Metadata, Placement,
    SiloFilter, check_metadata,
};
pub use strategy::{CustomStrategy, DATA_BYTES_MAX, DataError, ParseStrategyError, Strategy};
pub use table::{Placed, PlacementTable};
