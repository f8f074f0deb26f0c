//! The rules about calls from outside the cluster.

use crate::access::Authorize;
use crate::hosting::Classes;

/// The rules about calls from outside.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(super) authorize: Option<Authorize>,
    /// Clients hear which types there are.
    pub(super) lists_types: bool,
    /// There is something to look at: rules of the application, or internal methods.
    pub(super) are_some: bool,
}

impl Rules {
    pub(crate) fn new(authorize: Option<Authorize>, lists_types: bool, classes: &Classes) -> Self {
        let mut all = classes.values();
        let has_internal = all.any(|class| {
            class.method_numbers().into_iter().any(|number| class.is_internal(number))
        });
        let are_some = authorize.is_some() || has_internal;
        Self { authorize, lists_types, are_some }
    }
}
