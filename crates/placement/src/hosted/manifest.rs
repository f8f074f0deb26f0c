//! What one silo hosts.

use std::collections::BTreeMap;

use emmer_core::{GrainTypeId, hash};
use serde::{Deserialize, Serialize};

use crate::strategy::Strategy;

/// What a silo says of a grain type that it hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedType {
    /// The name of the type.
    #[serde(rename = "n")]
    pub name: String,
    /// Where its activations go. None: where the default strategy of the silo says that places.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Strategy>,
    /// Whether it is a stateless worker: silos have activations of their own, which the directory
    /// does not know.
    #[serde(rename = "w", default)]
    pub is_worker: bool,
    /// The newest version of its interfaces.
    #[serde(rename = "v")]
    pub version: u32,
    /// The numbers of the methods that can be called, those of older versions among them; in any
    /// order.
    #[serde(rename = "m")]
    pub methods: Vec<u32>,
}

impl HostedType {
    /// Whether a call of the method of this number can be served.
    pub fn serves(&self, method: u32) -> bool {
        self.methods.binary_search(&method).is_ok()
    }
}

/// All that a silo hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    types: BTreeMap<GrainTypeId, HostedType>,
    number: u64,
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
        for HostedType { name, placement, is_worker, version, methods } in types.values() {
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
        }
        Self { number: hash::stable64(&text), types }
    }

    /// The number under which other silos know it: the same for silos that host the same.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// One of its types; none when the silo does not host it.
    pub fn get(&self, grain_type: GrainTypeId) -> Option<&HostedType> {
        self.types.get(&grain_type)
    }

    /// All its types.
    pub fn types(&self) -> impl ExactSizeIterator<Item = &HostedType> {
        self.types.values()
    }

    /// The manifest that another silo knows by `number`.
    pub(super) fn told(number: u64, types: Vec<HostedType>) -> Self {
        Self { number, ..Self::new(types) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosted(name: &str, placement: Option<Strategy>, is_worker: bool) -> HostedType {
        let (name, methods) = (name.to_owned(), vec![3, 1, 2]);
        HostedType { name, placement, is_worker, version: 1, methods }
    }

    #[test]
    fn silos_that_host_the_same_have_the_same_number_and_others_another() {
        let (a, b) = (|| hosted("A", None, false), || hosted("B", None, false));
        let both = Manifest::new(vec![a(), b()]);
        assert_eq!(both, Manifest::new(vec![b(), a()]));
        let custom = |name| Some(Strategy::custom(name, ""));
        let others = [
            vec![],
            vec![a()],
            vec![a(), hosted("C", None, false)],
            vec![a(), hosted("B", None, true)],
            vec![a(), hosted("B", Some(Strategy::Random), false)],
            vec![a(), hosted("B", custom("random"), false)],
            vec![a(), hosted("B", Some(Strategy::custom("random", "x")), false)],
            vec![a(), hosted("B", Some(Strategy::SiloRole("x".into())), false)],
            vec![a(), HostedType { version: 2, ..b() }],
            vec![a(), HostedType { methods: vec![1, 2], ..b() }],
        ];
        let mut numbers: Vec<_> =
            others.into_iter().map(|types| Manifest::new(types).number()).collect();
        numbers.push(both.number());
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 11);
        let shuffled = HostedType { methods: vec![2, 1, 3], ..b() };
        assert_eq!(both, Manifest::new(vec![a(), shuffled]));
    }

    #[test]
    fn a_type_serves_its_methods_and_no_others() {
        let told = Manifest::told(7, vec![hosted("A", None, false)]);
        let a = told.get(GrainTypeId::of("A")).unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4].map(|method| a.serves(method)),
            [false, true, true, true, false]
        );
    }
}
