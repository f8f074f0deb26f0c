//! The grain that an operator means: a type by its name, and a key in the form of the type.

use emmer::admin::{GrainName, TypeLook};
use emmer::{GrainKey, Uuid};

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
            let key = key_of(&found.key, &args.key)?;
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

/// The key of a type whose keys are of this kind.
fn key_of(kind: &str, text: &str) -> Result<GrainKey> {
    let key = match kind {
        "uint" => text.parse::<u64>().ok().map(GrainKey::from),
        "int" => text.parse::<i64>().ok().map(GrainKey::from),
        "uuid" => text.parse::<Uuid>().ok().map(GrainKey::from),
        _ => Some(GrainKey::from(text)),
    };
    let expected = match kind {
        "uint" => "a number that is not negative",
        "int" => "a number",
        _ => "a UUID",
    };
    key.ok_or_else(|| Failure::usage(format!("the key {text:?}: expected {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_form_that_its_type_says() {
        assert_eq!(key_of("text", "17").unwrap(), GrainKey::from("17"));
        assert_eq!(key_of("uint", "17").unwrap(), GrainKey::from(17_u64));
        assert_eq!(key_of("int", "-17").unwrap(), GrainKey::from(-17_i64));
        for (kind, text) in [("uint", "-1"), ("int", "x"), ("uuid", "17")] {
            assert!(key_of(kind, text).is_err(), "{kind} {text}");
        }
    }
}
