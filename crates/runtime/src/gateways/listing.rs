//! The gateways of a client: from the system store, or from a list of its own.

use std::net::SocketAddr;

use emmer_core::{ClusterId, SiloAddress, SiloStatus, Timestamp};
use emmer_net::world;
use emmer_store::silos::SiloTable;
use emmer_store::{StoreErrorKind, history};
use parking_lot::Mutex;

use super::error::ConnectError;
use crate::options::OptionError;

/// The most gateways of a list.
const LIST_MAX: usize = 1_024;

/// The most clusters that an error names.
const NAMED_MAX: usize = 5;

/// Source of the gateways.
pub(crate) enum Listing {
    /// In the table of silos.
    Table(SiloTable),
    /// In a list: each is `ip:port` or `name:port`.
    List(Vec<String>),
    /// In such a list, and with those that gateways have named.
    Learnt(Vec<String>, Mutex<Vec<Listed>>),
}

/// A gateway that can be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(super) endpoint: SocketAddr,
    /// The silo behind it, if that is known.
    pub(super) silo: Option<SiloAddress>,
    /// The time at which that silo last said that it is alive, by its clock.
    pub(super) alive: Option<Timestamp>,
}

impl Listed {
    /// Returns true if it is this one.
    pub(super) fn is(&self, silo: SiloAddress, endpoint: SocketAddr) -> bool {
        self.silo.map_or(self.endpoint == endpoint, |listed| listed == silo)
    }
}

impl Listing {
    /// The gateways of a list, each as `host:port`.
    ///
    /// # Errors
    /// An error names the invalid one.
    pub(crate) fn of(gateways: Vec<String>) -> Result<Self, OptionError> {
        let refuse = |reason| Err(OptionError { option: "gateways".to_owned(), reason });
        if gateways.is_empty() || gateways.len() > LIST_MAX {
            let many = gateways.len();
            return refuse(format!("there are {many}: expected 1 to {LIST_MAX}"));
        }
        for gateway in &gateways {
            let port = gateway.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            let port = port.and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none_or(|port| port == 0) {
                let shown: String = gateway.chars().take(80).collect();
                return refuse(format!("{shown:?} is not a gateway: expected host:port"));
            }
        }
        Ok(Self::List(gateways))
    }

    /// Gateways are asked for others that the list does not have.
    pub(crate) fn asking(self) -> Self {
        match self {
            Self::List(gateways) => Self::Learnt(gateways, Mutex::default()),
            other => other,
        }
    }

    /// Returns true if gateways are asked for others.
    pub(super) const fn asks(&self) -> bool {
        matches!(self, Self::Learnt(..))
    }

    /// A gateway names all that there are. Returns true if some of them are news.
    pub(super) fn learn(&self, named: &[(SiloAddress, u16)]) -> bool {
        let Self::Learnt(_, learnt) = self else { return false };
        let mut fresh: Vec<_> = named
            .iter()
            .filter(|(_, port)| *port != 0)
            .take(LIST_MAX)
            .map(|(silo, port)| Listed {
                endpoint: SocketAddr::new(silo.ip(), *port),
                silo: Some(*silo),
                alive: None,
            })
            .collect();
        fresh.sort_unstable_by_key(|listed| listed.silo);
        let mut learnt = learnt.lock();
        // A gateway that knows of none has lost its view.
        if fresh.is_empty() || *learnt == fresh {
            return false;
        }
        *learnt = fresh;
        true
    }

    /// The table, where they stand in one.
    pub(super) const fn table(&self) -> Option<&SiloTable> {
        match self {
            Self::Table(table) => Some(table),
            Self::List(_) | Self::Learnt(..) => None,
        }
    }

    /// Says what there is where a cluster has no gateway.
    pub(super) async fn found_instead(&self, cluster: &ClusterId) -> String {
        let Self::Table(table) = self else { return "the list is empty".to_owned() };
        let silos = table.read_all().await.map_or_else(|_| Vec::new(), |(_, silos)| silos);
        if !silos.is_empty() {
            let active = silos.iter().filter(|silo| silo.status == SiloStatus::Active).count();
            return match active {
                0 => "none of its silos is Active".to_owned(),
                1 => "it has 1 Active silo, without a gateway: add `.gateway(..)`".to_owned(),
                _ => {
                    format!("it has {active} Active silos, none with a gateway: add `.gateway(..)`")
                }
            };
        }
        let clusters = history::clusters(&**table.store()).await.unwrap_or_default();
        let others: Vec<String> = clusters
            .iter()
            .filter(|(other, _)| other != cluster)
            .take(NAMED_MAX)
            .map(|(other, _)| other.to_string())
            .collect();
        if others.is_empty() {
            return "no silo of it has used the store".to_owned();
        }
        let more = if clusters.len() > NAMED_MAX { " and others" } else { "" };
        format!("the store has no such cluster; it has {}{more}", others.join(", "))
    }

    /// The gateways there are now. A name may stand for several.
    ///
    /// # Errors
    /// The store does not answer, or no name is known.
    pub(super) async fn read(&self) -> Result<Vec<Listed>, ConnectError> {
        match self {
            Self::Table(table) => {
                let rows = match table.gateways().await {
                    // No silo ever used this store.
                    Err(error) if error.kind == StoreErrorKind::NotFound => Vec::new(),
                    rows => rows?,
                };
                let listed = rows.iter().map(|row| Listed {
                    endpoint: SocketAddr::new(row.address.ip(), row.proxy_port),
                    silo: Some(row.address),
                    alive: Some(row.i_am_alive_time),
                });
                Ok(listed.collect())
            }
            Self::List(gateways) => resolved(gateways).await,
            Self::Learnt(gateways, learnt) => {
                let learnt = learnt.lock().clone();
                let listed = match resolved(gateways).await {
                    Ok(listed) => listed,
                    Err(_) if !learnt.is_empty() => Vec::new(),
                    Err(error) => return Err(error),
                };
                let is_learnt = |one: &Listed| learnt.iter().any(|l| l.endpoint == one.endpoint);
                let others = listed.into_iter().filter(|one| !is_learnt(one));
                Ok(others.chain(learnt.iter().copied()).collect())
            }
        }
    }
}

/// The addresses behind the names of a list.
async fn resolved(gateways: &[String]) -> Result<Vec<Listed>, ConnectError> {
    let (mut listed, mut unknown) = (Vec::<Listed>::new(), None);
    for gateway in gateways {
        match world::resolve(gateway).await {
            Ok(found) => listed.extend(found.into_iter().map(|endpoint| Listed {
                endpoint,
                silo: None,
                alive: None,
            })),
            Err(error) => unknown = Some(format!("{gateway}: {error}")),
        }
    }
    listed.sort_unstable_by_key(|listed| listed.endpoint);
    listed.dedup();
    match unknown.filter(|_| listed.is_empty()) {
        None => Ok(listed),
        Some(detail) => Err(ConnectError::Unresolved(detail)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_hosts_and_ports() {
        let of = |text: &str| Listing::of(vec![text.to_owned()]);
        for good in ["10.0.0.1:30000", "gateway.shop:30000", "[::1]:1"] {
            assert!(of(good).is_ok(), "{good}");
        }
        for bad in ["", "gateway", "gateway:", ":30000", "gateway:0", "gateway:70000", "g:1:x"] {
            let Err(error) = of(bad) else { panic!("{bad} was taken") };
            assert!(error.to_string().contains(&format!("{bad:?} is not a gateway")), "{error}");
        }
        assert!(Listing::of(Vec::new()).is_err());
    }

    #[tokio::test]
    async fn what_gateways_name_stands_beside_the_list_until_they_name_others() {
        let listing = Listing::of(vec!["127.0.0.1:1".to_owned()]).unwrap();
        assert!(!listing.learn(&[]) && !listing.asks());
        let listing = listing.asking();
        let silo = |port: u16| SiloAddress::new(([127, 0, 0, 1], port + 100).into(), 7);
        let ports = |listed: Vec<Listed>| {
            let mut ports: Vec<_> = listed.iter().map(|one| one.endpoint.port()).collect();
            ports.sort_unstable();
            ports
        };
        assert_eq!(ports(listing.read().await.unwrap()), [1]);
        assert!(listing.learn(&[(silo(1), 1), (silo(2), 2), (silo(3), 0)]));
        assert_eq!(ports(listing.read().await.unwrap()), [1, 2]);
        assert!(!listing.learn(&[(silo(2), 2), (silo(1), 1)]), "no news");
        assert!(!listing.learn(&[]), "one that knows none is not believed");
        assert!(listing.learn(&[(silo(4), 4)]));
        assert_eq!(ports(listing.read().await.unwrap()), [1, 4]);
        let many: Vec<_> = (1..5_000).map(|port| (silo(port), port)).collect();
        assert!(listing.learn(&many));
        assert_eq!(listing.read().await.unwrap().len(), LIST_MAX);
    }
}
