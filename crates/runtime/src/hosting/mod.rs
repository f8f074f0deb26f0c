//! Hosting of grains. An activation is one grain in the memory of one silo.
//!
//! An activation has no task and no channel. A lock around the grain is its queue: turns are
//! admitted in order of arrival, `&mut self` alone, `&self` together. The first turn activates the
//! grain (registers it in the directory, reads its state, runs its hook). A turn that finds it
//! closed resolves the call again.
//!
//! Its life is one value under that lock, `Life`. A turn that panics, or finds that the state in
//! memory is not the stored one, breaks it. Then only the closer enters, and the waiting turns get
//! a fresh activation.

mod activation;
mod admission;
mod ages;
mod arrival;
mod arriving;
mod aside;
pub(crate) mod catalog;
mod class;
mod collection;
mod context;
mod crowd;
mod departures;
mod ends;
mod failures;
mod filtered;
mod flush;
mod gate;
mod host;
mod instant;
mod kept;
pub(crate) mod late;
mod lifecycle;
mod looking;
mod mover;
mod pieces;
mod queues;
mod requests;
mod services;
mod shortage;
mod slot;
mod standing;
mod states;
mod stays;
mod timers;
mod traced;
mod turn;
mod workers;

pub use self::activation::{Activation, Exclusive, Shared};
pub(crate) use self::activation::{AnyGrain, AnyRoom, Held};
pub(crate) use self::arriving::arriving_at;
pub(crate) use self::catalog::Given;
pub use self::class::{ArriveMethod, Instant, MethodEntry, Ran, StartMethod};
pub(crate) use self::class::{Class, ClassInfo, Constructor, Lack, MethodCollision};
pub(crate) use self::collection::Collection;
pub use self::context::TurnContext;
pub(crate) use self::departures::Departures;
pub use self::ends::{Closed, Elsewhere, TurnEnd, TurnOutcome};
pub(crate) use self::ends::{FollowPlace, StartError};
pub(crate) use self::host::{Classes, Host};
pub(crate) use self::kept::Kept;
pub(crate) use self::looking::{Wanted, millis};
pub use self::pieces::InterleaveError;
pub(crate) use self::pieces::Stay;
pub use self::services::{ServiceField, ServiceNeed, Services};
pub(crate) use self::shortage::Shortage;
pub use self::slot::Slot;
pub(crate) use self::slot::{Ends, Has, Input, Sink, empty, other_version};
pub(crate) use self::states::States;
pub(crate) use self::stays::Stays;
pub(crate) use self::timers::{Entry as TimerEntry, Expected as ExpectedTimer, Timed};
pub(crate) use self::turn::{
    Begun, Progress, Work, poll_begun, run_to_end, standing, turn, until_begun,
};
pub use self::turn::{BoxTurn, Turn};
