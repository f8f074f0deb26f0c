//! A grain as a document.

use emmer::admin::{ActivationLook, FailureLook, GrainLook, ReminderLook, StateLook};
use serde::Serialize;
use serde_json::Value as Json;

use super::super::payload;

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) grain_type: String,
    pub(super) key: String,
    /// The silo that answered: that of the activation, if there is one.
    pub(super) silo: String,
    pub(super) silo_name: String,
    pub(super) activations: Vec<ActivationLook>,
    pub(super) states: Vec<State>,
    pub(super) reminders: Vec<ReminderLook>,
    pub(super) failures: Vec<FailureLook>,
    /// Things that could not be read, in words.
    pub(super) unread: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) store: Option<String>,
    pub(super) format: String,
    pub(super) etag: String,
    pub(super) modified: String,
    pub(super) bytes: u64,
    pub(super) value: Json,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unreadable: Option<String>,
}

impl Document {
    pub(super) fn of(look: &GrainLook, silo_name: String) -> Self {
        Self {
            grain_type: look.grain_type.clone(),
            key: look.key.to_string(),
            silo: look.silo.to_string(),
            silo_name,
            activations: look.activations.clone(),
            states: look.states.iter().map(State::of).collect(),
            reminders: look.reminders.clone(),
            failures: look.failures.clone(),
            unread: look.unread.clone(),
        }
    }
}

impl State {
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
