//! A grain as a document.

use emmer_runtime::admin::{ActivationLook, FailureLook, GrainLook, ReminderLook, StateLook};
use serde::Serialize;
use serde_json::Value as Json;

use crate::payload;

/// A grain as a document.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct GrainDocument {
    /// The name of its type.
    pub grain_type: String,
    /// Its key.
    pub key: String,
    /// The silo that answered: that of the activation, if there is one.
    pub silo: String,
    /// The silo's name.
    pub silo_name: String,
    /// Its activations on that silo.
    pub activations: Vec<ActivationLook>,
    /// Its states as they are stored.
    pub states: Vec<StateDocument>,
    /// Its reminders.
    pub reminders: Vec<ReminderLook>,
    /// The last failures of its turns.
    pub failures: Vec<FailureLook>,
    /// Things that could not be read, in words.
    pub unread: Vec<String>,
}

/// A state of a grain as a document.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StateDocument {
    /// Its name.
    pub name: String,
    /// Name of the store; none for the usual one.
    pub store: Option<String>,
    /// Format of the payload.
    pub format: String,
    /// The etag.
    pub etag: String,
    /// The last write, as RFC 3339.
    pub modified: String,
    /// Length of the payload in bytes.
    pub bytes: u64,
    /// The value; null if it cannot be shown.
    pub value: Json,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl GrainDocument {
    /// The document of a look; `silo_name` is the name of the silo that answered.
    pub fn of(look: &GrainLook, silo_name: String) -> Self {
        Self {
            grain_type: look.grain_type.clone(),
            key: look.key.to_string(),
            silo: look.silo.to_string(),
            silo_name,
            activations: look.activations.clone(),
            states: look.states.iter().map(StateDocument::of).collect(),
            reminders: look.reminders.clone(),
            failures: look.failures.clone(),
            unread: look.unread.clone(),
        }
    }
}

impl StateDocument {
    fn of(look: &StateLook) -> Self {
        let read = match &look.payload {
            Some(bytes) => payload::of_state(&look.format, bytes),
            None => Err("it is larger than an answer has room for: see `emmer state`".to_owned()),
        };
        let (value, unreadable) = match read {
            Ok(value) => (value, None),
            Err(why) => (Json::Null, Some(why)),
        };
        Self {
            name: look.name.clone(),
            store: look.store.clone(),
            format: look.format.clone(),
            etag: look.etag.clone(),
            modified: look.modified.clone(),
            bytes: look.bytes,
            value,
            unreadable,
        }
    }
}
