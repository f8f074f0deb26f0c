//! The grain that an operator means: a type by its name, and a key in the form of the type.

use emmer::admin::{GrainName, TypeLook};
use emmer::console::key_of;

use super::super::reach::{Reached, failed};
use crate::exit::{Failure, Result};

/// The arguments that name a grain.
#[derive(clap::Args)]
pub(crate) struct GrainArgs {
    /// The grain's type, as `emmer grains` shows it
    #[arg(value_name = "TYPE")]
    grain_type: String,
    /// The grain's key: a text, a number or a UUID, as its type has them
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: String,
}

/// The grain that is meant, and its type.
pub(crate) async fn find(reached: &Reached, args: &GrainArgs) -> Result<(GrainName, TypeLook)> {
    let mut known = Vec::new();
    // The gateway hosts it, or another silo does.
    let gateways = [None].into_iter().chain(reached.active().map(|silo| Some(silo.address)));
    for silo in gateways {
        let types = match reached.admin.types(silo).await {
            Ok(types) => types,
            Err(_) if silo.is_some() => continue,
            Err(error) => return Err(failed(error)),
        };
        let is_it = |one: &&TypeLook| one.grain_type.eq_ignore_ascii_case(&args.grain_type);
        if let Some(found) = types.iter().find(is_it) {
            let key = key_of(&found.key, &args.key).map_err(Failure::usage)?;
            let grain = GrainName { grain_type: found.grain_type.clone(), key };
            return Ok((grain, found.clone()));
        }
        known.extend(types.into_iter().map(|one| one.grain_type));
    }
    known.sort();
    known.dedup();
    let wanted = &args.grain_type;
    Err(Failure::other(format!(
        "no silo hosts grains of the type {wanted:?}: expected one of {}",
        known.join(", ")
    )))
}
