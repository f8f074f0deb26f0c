//! The parts of a call and its turn that every room may know: the method and the key, the context,
//! the caller that may give the call up, and the failures.

mod call_target;
mod context_key;
mod error;
mod failure;
mod key;
mod method;

pub(crate) use emmer_net::asker::Asked;
pub use emmer_net::asker::Asker;
pub(crate) use emmer_net::contain::{contain, contained, let_go, let_go_by};

pub(crate) use self::call_target::Names;
pub use self::call_target::{CallTarget, Rejection};
pub use self::context_key::ContextKey;
pub(crate) use self::context_key::Extra;
pub use self::error::{ActivationError, CallError, DeactivationReason, StateError};
pub(crate) use self::failure::Failure;
pub use self::key::{IntoKey, KeyKind, KeyType};
pub use self::method::{MethodInfo, NoError};
