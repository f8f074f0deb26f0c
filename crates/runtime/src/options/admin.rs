//! The options of the admin interface.

use serde::{Deserialize, Serialize};

/// The settings of the admin interface, where the application has no
/// [rules](crate::SiloBuilder::authorize_admin) of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AdminOptions {
    /// True if programs on the gateway's own host may look and act. Default true.
    pub local: bool,
    /// The clients that may look: names of identities, separated by commas. Default none.
    pub look: String,
    /// The clients that may look and act: names of identities, separated by commas. Default none.
    pub act: String,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self { local: true, look: String::new(), act: String::new() }
    }
}

impl AdminOptions {
    /// Returns true if the client of this name may look.
    pub(crate) fn may_look(&self, name: &str) -> bool {
        names(&self.look).any(|one| one == name) || self.may_act(name)
    }

    /// Returns true if the client of this name may act.
    pub(crate) fn may_act(&self, name: &str) -> bool {
        names(&self.act).any(|one| one == name)
    }
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_act_may_look() {
        let options = AdminOptions { look: "ann, bob".into(), act: " eve,".into(), local: true };
        let may = |name: &str| (options.may_look(name), options.may_act(name));
        assert_eq!(
            (may("ann"), may("bob"), may("eve")),
            ((true, false), (true, false), (true, true))
        );
        assert_eq!((may(""), may("ann, bob")), ((false, false), (false, false)));
    }
}
