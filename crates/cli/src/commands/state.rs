//! `emmer state`: the states of a grain, as JSON.

use emmer::GrainKey;
use emmer::config::ConfigArgs;
use emmer::console::payload;
use emmer::store::{GrainRef, StateTable, StoreErrorKind, reference};
use emmer::tables::ClusterId;
use serde::Serialize;
use serde_json::Value as Json;

use super::output::write_out;
use super::store::{self, ServiceArgs};
use crate::exit::{Failure, Result};
use crate::process::runtime;

/// The flags of `emmer state`.
#[derive(clap::Args)]
pub struct Args {
    /// The grain's type, as in the column GrainType
    #[arg(value_name = "TYPE")]
    grain_type: String,
    /// The grain's key: a text, a number or a UUID. Where two grains have the same key, write its
    /// kind first: s.17 (text), u.17, i.17 (integers), g.UUID
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: String,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Serialize)]
struct Document {
    store: String,
    service_id: String,
    states: Vec<State>,
}

#[derive(Serialize)]
struct State {
    /// Type and key, as `cart/s.ann`.
    grain: String,
    name: String,
    format: String,
    modified: String,
    bytes: usize,
    value: Json,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let (url, service) = args.service.settle(&args.config, log)?;
    let document = runtime()?.block_on(async {
        let opened = store::open_existing(&url).await?;
        let place = opened.describe();
        let table = StateTable::new(opened, service.clone());
        Ok::<_, Failure>(Document {
            store: place,
            service_id: service.to_string(),
            states: read(&table, &args.grain_type, &args.key).await?,
        })
    })?;
    if document.states.is_empty() {
        let at: Vec<_> =
            keys(&args.key).iter().map(|key| reference(&args.grain_type, key)).collect();
        return Err(Failure::other(no_state(&service, &at)));
    }
    let text = serde_json::to_string_pretty(&document).map_err(Failure::other)?;
    write_out(&format!("{text}\n"))
}

fn no_state(service: &ClusterId, at: &[String]) -> String {
    format!(
        "no state in the service {service} under {}: the grain has written none, or its type or \
         key is another",
        at.join(", ")
    )
}

/// The keys that the text may be.
fn keys(text: &str) -> Vec<GrainKey> {
    // The type does not matter here.
    let with_kind =
        format!("t/{text}").parse::<GrainRef>().ok().map(|grain| grain.id().key().clone());
    let number = text.parse::<u64>().ok().map(GrainKey::from);
    let signed = text.parse::<i64>().ok().map(GrainKey::from);
    let uuid = text.parse::<emmer::Uuid>().ok().map(GrainKey::from);
    [Some(GrainKey::from(text)), with_kind, number, signed, uuid].into_iter().flatten().collect()
}

async fn read(table: &StateTable, grain_type: &str, key: &str) -> Result<Vec<State>> {
    let mut states = Vec::new();
    for key in keys(key) {
        let found = match table.of_grain(grain_type, &key).await {
            Ok(found) => found,
            // No silo has written a state into this store.
            Err(error) if error.kind == StoreErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Failure::store(error)),
        };
        states.extend(found.into_iter().map(|(name, stored)| {
            let (value, unreadable) = match payload::of_state(&stored.format, &stored.payload) {
                Ok(value) => (value, None),
                Err(why) => (Json::Null, Some(why)),
            };
            State {
                grain: reference(grain_type, &key),
                name,
                format: stored.format.to_string(),
                modified: stored.modified.to_string(),
                bytes: stored.payload.len(),
                value,
                unreadable,
            }
        }));
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_text_and_whatever_else_it_reads_as() {
        let references = |text: &str| -> Vec<_> {
            keys(text).iter().map(|key| reference("cart", key)).collect()
        };
        assert_eq!(references("ann"), ["cart/s.ann"]);
        assert_eq!(references("17"), ["cart/s.17", "cart/u.17", "cart/i.17"]);
        assert_eq!(references("-1"), ["cart/s.-1", "cart/i.-1"]);
        assert_eq!(references("s.ann"), ["cart/s.s.ann", "cart/s.ann"]);
        assert_eq!(references("a/b"), ["cart/s.a%2Fb"]);
        assert_eq!(references("s.a%2Fb"), ["cart/s.s.a%252Fb", "cart/s.a%2Fb"]);
    }
}
