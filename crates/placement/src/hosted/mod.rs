//! The grain types that each silo hosts, as every silo knows them.
//!
//! Silos need not host the same types. Each has a [`Manifest`]: its metadata, its grain types,
//! their methods and their placement. The number of its manifest travels with its load report. A
//! silo that hears an unknown number asks a silo with that number ([`Learner`]). So silos that host
//! the same ask no questions. Placement uses the result ([`Hosted`]).

mod known;
mod learner;
mod manifest;
mod selector;

pub use known::Hosted;
pub use learner::{Effect, Learner, Message};
pub use manifest::{HostedType, Manifest};
pub use selector::{ParseSelectorError, VersionSelector};

#[cfg(test)]
mod kinds {
    //! Classes that the silos of the tests host.

    use std::sync::Arc;

    use super::{HostedType, Manifest};

    pub(super) const METHOD: u32 = 1;

    /// Types of version 1 with one method, where the name does not say another version: "A2" is
    /// version 2 of A, and has one method more.
    pub(super) fn manifest(names: &[&str]) -> Arc<Manifest> {
        let hosted = |name: &&str| {
            let (name, version) = name.split_once('2').map_or((*name, 1), |(name, _)| (name, 2));
            HostedType {
                name: name.to_owned(),
                placement: None,
                filters: Vec::new(),
                is_worker: false,
                version,
                data_version: 1,
                methods: (METHOD..=version).collect(),
            }
        };
        Arc::new(Manifest::new(names.iter().map(hosted).collect()))
    }
}
