//! The silos that a director chooses from, and the knowledge of each.

use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry};

use crate::hosted::Hosted;
use crate::load::{LoadReport, Loads};
use crate::placement::Metadata;

/// Knowledge of the Active silos at one moment: their rows, their metadata, their loads.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// In the order of their addresses.
    silos: Vec<Arc<SiloEntry>>,
    hosted: Arc<Hosted>,
    loads: Arc<Loads>,
}

impl Surroundings {
    /// `silos`: those that are Active.
    pub fn new(mut silos: Vec<Arc<SiloEntry>>, hosted: Arc<Hosted>, loads: Arc<Loads>) -> Self {
        silos.sort_unstable_by_key(|silo| silo.address);
        Self { silos, hosted, loads }
    }

    /// Loads of the silos.
    pub const fn loads(&self) -> &Arc<Loads> {
        &self.loads
    }

    /// Types that the silos host.
    pub const fn hosted(&self) -> &Arc<Hosted> {
        &self.hosted
    }

    /// Knowledge of one silo.
    pub fn of(&self, address: SiloAddress) -> Candidate<'_> {
        let place = self.silos.binary_search_by_key(&address, |silo| silo.address).ok();
        Candidate {
            address,
            row: place.and_then(|place| self.silos.get(place)).map(|silo| &**silo),
            metadata: self.hosted.metadata(&address),
            load: self.loads.of(&address).and_then(|known| known.report).map(|(load, _)| load),
        }
    }
}

/// A silo that an activation can go to, as a director sees it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    address: SiloAddress,
    row: Option<&'a SiloEntry>,
    metadata: Option<&'a Metadata>,
    load: Option<LoadReport>,
}

impl<'a> Candidate<'a> {
    /// Its address: what a director returns.
    pub const fn address(&self) -> SiloAddress {
        self.address
    }

    fn text(&self, of: impl FnOnce(&'a SiloEntry) -> &'a Arc<str>) -> &'a str {
        self.row.map(of).map_or("", |text| &**text)
    }

    /// Its name, as the option `name` says.
    pub fn name(&self) -> &'a str {
        self.text(|row| &row.instance_name)
    }

    /// Its role, as the option `role` says.
    pub fn role(&self) -> &'a str {
        self.text(|row| &row.role_name)
    }

    /// The name that the kernel has for its host.
    pub fn host(&self) -> &'a str {
        self.text(|row| &row.host_name)
    }

    /// The update zone: silos of one zone are updated together. 0 when the silo does not say.
    pub fn update_zone(&self) -> i32 {
        self.row.map_or(0, |row| row.update_zone)
    }

    /// The fault zone: silos of one zone fail together. 0 when the silo does not say.
    pub fn fault_zone(&self) -> i32 {
        self.row.map_or(0, |row| row.fault_zone)
    }

    /// One of its metadata. A silo that has joined a moment ago has not told them yet.
    pub fn metadata(&self, key: &str) -> Option<&'a str> {
        self.metadata?.get(key).map(String::as_str)
    }

    /// Load that it last reported; none before its first report.
    pub const fn load(&self) -> Option<LoadReport> {
        self.load
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{SiloStatus, Timestamp};

    use super::*;

    #[test]
    fn a_silo_is_shown_as_its_row_says_and_an_unknown_one_is_shown_empty() {
        let [a, b] = [1, 2].map(|n| format!("10.0.0.{n}:1:1").parse::<SiloAddress>().unwrap());
        let mut row = SiloEntry::new(a, SiloStatus::Active, Timestamp::from_millis(0));
        row.instance_name = "one".into();
        row.role_name = "front".into();
        row.host_name = "box".into();
        (row.update_zone, row.fault_zone) = (3, -4);
        let known = Surroundings::new(vec![Arc::new(row)], Arc::default(), Arc::default());
        let one = known.of(a);
        assert_eq!((one.name(), one.role(), one.host()), ("one", "front", "box"));
        assert_eq!((one.address(), one.update_zone(), one.fault_zone()), (a, 3, -4));
        let other = known.of(b);
        assert_eq!((other.address(), other.name(), other.fault_zone()), (b, "", 0));
        assert!(other.load().is_none() && other.metadata("zone").is_none());
    }
}
