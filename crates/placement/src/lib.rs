//! Where a new activation goes: placement strategies and the directors that carry them out (the
//! *placement description* of `docs/sources.md`).
//!
//! A grain type names a [`Strategy`]; a [`PlacementTable`] maps strategies to [`Director`]s and
//! holds the silo's default. Sans-IO: random choices grow from a seed.
//!
//! Placement is a guess that the grain directory corrects: two silos may choose differently for one
//! grain at the same time, and only one activation gets registered.

mod directors;
pub mod hosted;
pub mod load;
mod strategy;
mod table;

pub use directors::{
    ActivationCountDirector, Director, HashDirector, PlacementContext, PlacementTarget,
    PreferLocalDirector, RandomDirector, ResourceDirector,
};
pub use strategy::{CustomStrategy, ParseStrategyError, Strategy};
pub use table::{PlaceError, PlacementTable};
