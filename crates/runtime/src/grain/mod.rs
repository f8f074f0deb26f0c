//! A user's grain: the class, its interfaces, its context, its state, the calls to it.

mod any_error;
mod bond;
mod call;
mod carried;
mod class;
mod context;
mod future;
mod interface;
mod interleaved;
mod journal;
mod moving;
mod named;
mod persistent;
mod reference;
mod request_context;
mod room;
mod service;
mod stored;
mod travelling;
mod work;

pub use self::any_error::{Error, own_error};
pub use self::call::Call;
pub use self::carried::{Carried, CarriedFields};
pub use self::class::{Grain, Hooks, Lifecycle, NoHooks};
pub use self::context::Ctx;
pub use self::future::CallFuture;
pub use self::interface::{Hosted, Interface, Method, NoResult, Returned};
pub use self::interleaved::Interleaved;
pub use self::journal::{Apply, Journal, JournalSpec};
pub(crate) use self::named::call_named;
pub use self::persistent::Persistent;
pub use self::reference::{GrainFactory, RawRef};
pub(crate) use self::reference::{OwnClient, class_name};
pub use self::request_context::SetContextError;
pub(crate) use self::room::constructor;
pub use self::service::{FieldDefault, Shareable, service, shareable};
pub use self::stored::{FORMAT as STATE_FORMAT, Migrate, StateSpec, StoredState};
pub use self::work::{LocalSlot, arrive, boxed, not_admitted, poll_now, run_now};
pub use crate::hosting::{InterleaveError, ServiceField, ServiceNeed, Services, TurnContext};
pub use crate::turn::{
    ActivationError, CallError, CallTarget, ContextKey, DeactivationReason, IntoKey, KeyKind,
    KeyType, MethodInfo, NoError, Rejection, StateError,
};
