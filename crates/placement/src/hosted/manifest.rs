//! The types that one silo hosts.

use std::collections::BTreeMap;

use emmer_core::{GrainTypeId, hash};
use serde::{Deserialize, Serialize};

use crate::placement::{Metadata, SiloFilter};
use crate::strategy::Strategy;

/// Description of a grain type by a silo that hosts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedType {
    /// The name of the type.
    #[serde(rename = "n")]
    pub name: String,
    /// Placement of its activations. None: the default strategy of the silo that places.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Strategy>,
    /// Needs that silos for its activations have to meet.
    #[serde(rename = "f", default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<SiloFilter>,
    /// True if it is a stateless worker: silos have activations of their own, which the directory
    /// does not know.
    #[serde(rename = "w", default)]
    pub is_worker: bool,
    /// The newest version of its interfaces.
    #[serde(rename = "v")]
    pub version: u32,
    /// Version of the data of its states: 1, and one more with each new version of a state. Silos
    /// with an older one cannot read a newer one's data.
    #[serde(rename = "d", default = "first", skip_serializing_if = "is_first")]
    pub data_version: u32,
    /// The numbers of the methods that can be called, those of older versions among them; in any
    /// order.
    #[serde(rename = "m")]
    pub methods: Vec<u32>,
}

const fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_first(version: &u32) -> bool {
    *version == first()
}

impl HostedType {
    /// Returns true if a call of the method of this number can be served.
    pub fn serves(&self, method: u32) -> bool {
        self.methods.binary_search(&method).is_ok()
    }
}

/// All types that a silo hosts, and its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    types: BTreeMap<GrainTypeId, HostedType>,
    metadata: Metadata,
    number: u64,
    /// Number that is the same for silos that host the same, whatever else they say.
    types_number: u64,
}

impl Manifest {
    /// The manifest of a silo that hosts `types`, each once.
    pub fn new(types: Vec<HostedType>) -> Self {
        let mut text = Vec::new();
        let sorted = |mut hosted: HostedType| {
            hosted.methods.sort_unstable();
            (GrainTypeId::of(&hosted.name), hosted)
        };
        let types: BTreeMap<_, _> = types.into_iter().map(sorted).collect();
        for hosted in types.values() {
            let HostedType { name, placement, filters, is_worker, version, .. } = hosted;
            let HostedType { data_version, methods, .. } = hosted;
            let (strategy, data) = placement.as_ref().map_or(("", ""), Strategy::parts);
            let custom = matches!(placement, Some(Strategy::Custom(_)));
            for part in [name, strategy, data] {
                // Names contain no such byte.
                text.extend(part.bytes().chain([0xff]));
            }
            text.extend([u8::from(*is_worker), u8::from(custom)]);
            text.extend(version.to_be_bytes());
            text.extend((methods.len() as u64).to_be_bytes());
            text.extend(methods.iter().flat_map(|method| method.to_be_bytes()));
            // Nothing without filters, so that the number of a manifest without filters never
            // changes.
            for filter in filters {
                text.extend(filter.to_string().bytes());
                text.extend([0xff, u8::from(filter.is_preferred())]);
            }
            // Nothing for the first version, so that the number of a first manifest never changes.
            if !is_first(data_version) {
                text.extend(data_version.to_be_bytes());
            }
        }
        let number = hash::stable64(&text);
        Self { number, types_number: number, types, metadata: Metadata::new() }
    }

    /// Adds the metadata of a silo.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        // Nothing without metadata: older silos know this number.
        let mut text = self.types_number.to_be_bytes().to_vec();
        for part in metadata.iter().flat_map(|(key, value)| [key, value]) {
            // Texts contain no such byte.
            text.extend(part.bytes().chain([0xff]));
        }
        self.number = if metadata.is_empty() { self.types_number } else { hash::stable64(&text) };
        self.metadata = metadata;
        self
    }

    /// The number under which other silos know it: silos that host the same have the same number.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Number that is the same for silos that host the same types.
    pub(super) const fn types_number(&self) -> u64 {
        self.types_number
    }

    /// The metadata of the silo.
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// One of its types; None when the silo does not host it.
    pub fn get(&self, grain_type: GrainTypeId) -> Option<&HostedType> {
        self.types.get(&grain_type)
    }

    /// All its types.
    pub fn types(&self) -> impl ExactSizeIterator<Item = &HostedType> {
        self.types.values()
    }

    /// The manifest that another silo knows by `number`.
    pub(super) fn told(number: u64, types: Vec<HostedType>, metadata: Metadata) -> Self {
        Self { number, ..Self::new(types).with_metadata(metadata) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosted(name: &str, placement: Option<Strategy>, is_worker: bool) -> HostedType {
        let (name, methods) = (name.to_owned(), vec![3, 1, 2]);
        let filters = vec![];
        HostedType { name, placement, filters, is_worker, version: 1, data_version: 1, methods }
    }

    #[test]
    fn silos_that_host_the_same_have_the_same_number_and_others_another() {
        let (a, b) = (|| hosted("A", None, false), || hosted("B", None, false));
        let both = Manifest::new(vec![a(), b()]);
        assert_eq!(both, Manifest::new(vec![b(), a()]));
        let custom = |name| Some(Strategy::custom(name));
        let zone = |filter| HostedType { filters: vec![filter], ..b() };
        let others = [
            vec![],
            vec![a()],
            vec![a(), hosted("C", None, false)],
            vec![a(), hosted("B", None, true)],
            vec![a(), hosted("B", Some(Strategy::Random), false)],
            vec![a(), hosted("B", custom("random"), false)],
            vec![a(), hosted("B", Strategy::custom_with("random", "x").ok(), false)],
            vec![a(), hosted("B", Some(Strategy::SiloRole("x".into())), false)],
            vec![a(), HostedType { version: 2, ..b() }],
            vec![a(), HostedType { data_version: 2, ..b() }],
            vec![a(), HostedType { methods: vec![1, 2], ..b() }],
            vec![a(), zone(SiloFilter::require("zone", "x"))],
            vec![a(), zone(SiloFilter::require("zone", "y"))],
            vec![a(), zone(SiloFilter::require("zone", "y").preferred())],
            vec![a(), zone(SiloFilter::require_same("zone"))],
        ];
        let mut numbers: Vec<_> =
            others.into_iter().map(|types| Manifest::new(types).number()).collect();
        numbers.push(both.number());
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 16);
        let shuffled = HostedType { methods: vec![2, 1, 3], ..b() };
        assert_eq!(both, Manifest::new(vec![a(), shuffled]));
        let said = |key: &str, value: &str| {
            let metadata = Metadata::from([(key.to_owned(), value.to_owned())]);
            Manifest::new(vec![a(), b()]).with_metadata(metadata)
        };
        let (x, y) = (said("zone", "x"), said("zone", "y"));
        assert!(x.number() != y.number() && x.number() != both.number());
        assert_ne!(said("ab", "c").number(), said("a", "bc").number());
        assert_eq!((x.types_number(), y.types_number()), (both.number(), both.number()));
        assert_eq!(both, Manifest::new(vec![a(), b()]).with_metadata(Metadata::new()));
    }

    #[test]
    fn a_type_serves_its_methods_and_no_others() {
        let told = Manifest::told(7, vec![hosted("A", None, false)], Metadata::new());
        let a = told.get(GrainTypeId::of("A")).unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4].map(|method| a.serves(method)),
            [false, true, true, true, false]
        );
    }
}
