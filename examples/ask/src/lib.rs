//! Sessions with a model that answers word by word.

pub mod model;
pub mod session;
pub mod web;

use std::sync::Arc;

use emmer::SiloBuilder;

use self::model::Model;
use self::session::{Session, SessionGrain};

/// Adds the sessions and their model to a silo.
pub fn sessions(silo: SiloBuilder, model: Arc<dyn Model>) -> SiloBuilder {
    silo.shared_service(model).host::<dyn Session, SessionGrain>()
}
