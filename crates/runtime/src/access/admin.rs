//! The rules about clients that look at the cluster, or act on it, by the admin interface.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{Access, Identity};
use crate::options::AdminOptions;
use crate::turn::contain;

/// Right that a question or an order of an operator needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To look: at silos, grains, keys and states.
    Look,
    /// To act: to end activations, to move grains, to give a silo another duty.
    Act,
}

/// A client that wants to look or to act.
pub struct AdminVisit<'a> {
    right: Right,
    identity: Option<&'a Identity>,
    from: Option<SocketAddr>,
    is_local: bool,
}

impl<'a> AdminVisit<'a> {
    /// A visit over a connection between these two ends.
    pub(crate) fn new(
        right: Right,
        identity: Option<&'a Identity>,
        from: Option<SocketAddr>,
        here: Option<SocketAddr>,
    ) -> Self {
        let is_local = from.is_some_and(|from| is_own_host(from.ip(), here.map(|here| here.ip())));
        Self { right, identity, from, is_local }
    }

    /// The right that is asked for.
    pub const fn right(&self) -> Right {
        self.right
    }

    /// The identity of the client; none if it has none.
    pub const fn identity(&self) -> Option<&Identity> {
        self.identity
    }

    /// The address that the client has connected from.
    pub const fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// Returns true if the client runs on the host of the silo. Whatever comes through a proxy on
    /// that host looks so, too.
    pub const fn is_local(&self) -> bool {
        self.is_local
    }
}

impl fmt::Debug for AdminVisit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { right, identity, from, .. } = self;
        write!(f, "AdminVisit({right:?} by {identity:?} from {from:?})")
    }
}

/// Returns true if a connection from `from` to `here` stays on one host. Of the addresses of the
/// loopback interface only the usual ones count: proxies connect from others.
fn is_own_host(from: IpAddr, here: Option<IpAddr>) -> bool {
    let from = from.to_canonical();
    from == IpAddr::from([127, 0, 0, 1])
        || from == IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])
        || here.is_some_and(|here| here.to_canonical() == from)
}

type Hook = dyn Fn(&AdminVisit<'_>) -> Access + Send + Sync;

/// The rules about such clients.
#[derive(Clone, Default)]
pub(crate) struct AdminRules {
    own: Option<Arc<Hook>>,
    options: AdminOptions,
}

impl AdminRules {
    pub(crate) fn new(rules: impl Fn(&AdminVisit<'_>) -> Access + Send + Sync + 'static) -> Self {
        Self { own: Some(Arc::new(rules)), options: AdminOptions::default() }
    }

    /// These rules; where the application has none, those of the settings.
    pub(crate) fn or_settings(mut self, options: &AdminOptions) -> Self {
        self.options = options.clone();
        self
    }

    /// Returns the name of the client for the log and the history.
    ///
    /// # Errors
    /// The client may not, in these words. Rules that panic allow nothing.
    pub(crate) fn ask(&self, visit: &AdminVisit<'_>) -> Result<String, String> {
        let access = match &self.own {
            None => Ok(by_settings(visit, &self.options)),
            Some(rules) => contain(|| rules(visit)),
        };
        let named = |identity: &Identity| format!("client {}", identity.name());
        match access {
            Ok(Access::Allow) => Ok(match (visit.identity, visit.from) {
                (Some(identity), _) => named(identity),
                (None, Some(from)) => format!("a client at {}", from.ip()),
                (None, None) => "a client".to_owned(),
            }),
            Ok(Access::AllowAs(identity)) => Ok(named(&identity)),
            Ok(Access::Refuse(why)) => Err(why),
            Err(panic) => {
                tracing::error!(panic, ?visit, "the rules of the admin interface panicked");
                Err("the silo could not check whether this is allowed".to_owned())
            }
        }
    }
}

/// Rules of a silo whose application gives none.
fn by_settings(visit: &AdminVisit<'_>, options: &AdminOptions) -> Access {
    let named = visit.identity.is_some_and(|identity| match visit.right {
        Right::Look => options.may_look(identity.name()),
        Right::Act => options.may_act(identity.name()),
    });
    Access::when(
        named || (options.local && visit.is_local()),
        "the admin interface serves programs on the host of the gateway, and clients that the \
         settings [admin] or the application (SiloBuilder::authorize_admin) name",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_of_the_silo_is_let_in_by_default() {
        let may = |from: &str, here: &str| {
            let (from, here) = (from.parse().unwrap(), here.parse().unwrap());
            let visit = AdminVisit::new(Right::Look, None, Some(from), Some(here));
            AdminRules::default().ask(&visit).is_ok()
        };
        assert!(may("127.0.0.1:5000", "127.0.0.1:30000"));
        assert!(may("[::1]:5000", "[::1]:30000"));
        assert!(may("[::ffff:127.0.0.1]:5000", "[::]:30000"));
        assert!(may("10.0.0.7:5000", "10.0.0.7:30000"));
        assert!(!may("10.0.0.8:5000", "10.0.0.7:30000"));
        // A proxy of a service mesh hands strangers on from there.
        assert!(!may("127.0.0.6:5000", "127.0.0.1:30000"));
        let unknown = AdminVisit::new(Right::Act, None, None, None);
        assert!(AdminRules::default().ask(&unknown).is_err());
    }

    #[test]
    fn settings_name_the_clients_that_may() {
        let options = AdminOptions { local: false, look: "ann".into(), act: "eve".into() };
        let rules = AdminRules::default().or_settings(&options);
        let may = |right, name: &str| {
            let (identity, here) = (Identity::new(name), Some("127.0.0.1:1".parse().unwrap()));
            rules.ask(&AdminVisit::new(right, Some(&identity), here, here)).is_ok()
        };
        assert!(may(Right::Look, "ann") && may(Right::Look, "eve") && may(Right::Act, "eve"));
        assert!(!may(Right::Act, "ann") && !may(Right::Look, "bob"));
    }

    #[test]
    fn rules_that_panic_allow_nothing() {
        let visit = AdminVisit::new(Right::Act, None, None, None);
        assert!(AdminRules::new(|_| panic!("no")).ask(&visit).is_err());
        let as_ann = AdminRules::new(|_| Access::AllowAs(Identity::new("ann")));
        assert_eq!(as_ann.ask(&visit), Ok("client ann".to_owned()));
    }
}
