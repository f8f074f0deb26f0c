//! What a silo knows of what the others host.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_core::{GrainTypeId, SiloAddress};

use super::{HostedType, Manifest};

/// So many grain types are named in a text.
const NAMED_MAX: usize = 20;

/// What every Active silo hosts, at one moment of one silo.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hosted {
    own: Arc<Manifest>,
    /// The Active silos, in the order of their addresses, each with what it hosts if that is known.
    silos: Vec<(SiloAddress, Option<Arc<Manifest>>)>,
    /// What silos hosted that are Active no more.
    past: Vec<Arc<Manifest>>,
    /// No silo is known to host something else than this one.
    is_uniform: bool,
}

impl Hosted {
    /// `silos`: in the order of their addresses, each once.
    pub(super) fn new(
        own: Arc<Manifest>,
        silos: Vec<(SiloAddress, Option<Arc<Manifest>>)>,
        past: Vec<Arc<Manifest>>,
    ) -> Self {
        let differs = |manifest: &Arc<Manifest>| manifest.number() != own.number();
        let is_uniform = !silos.iter().filter_map(|(_, manifest)| manifest.as_ref()).any(differs);
        Self { own, silos, past, is_uniform }
    }

    /// Whether all Active silos can host a grain of this type, as far as is known. Who has said
    /// nothing yet is taken for one like this silo: that is what it mostly is, and a silo passes on
    /// what it cannot host.
    pub fn is_everywhere(&self, grain_type: GrainTypeId) -> bool {
        self.own.get(grain_type).is_some()
            && (self.is_uniform || self.silos.iter().all(|(silo, _)| self.hosts(silo, grain_type)))
    }

    /// Whether a silo can host a grain of this type, as far as is known.
    pub fn hosts(&self, silo: &SiloAddress, grain_type: GrainTypeId) -> bool {
        let Ok(place) = self.silos.binary_search_by_key(silo, |(silo, _)| *silo) else {
            return false;
        };
        let manifest = self.silos[place].1.as_ref().unwrap_or(&self.own);
        manifest.get(grain_type).is_some()
    }

    /// What is said of a grain type, by this silo if it hosts it.
    pub fn hosted_type(&self, grain_type: GrainTypeId) -> Option<&HostedType> {
        let others = self.silos.iter().filter_map(|(_, manifest)| manifest.as_ref());
        let mut all = [&self.own].into_iter().chain(others).chain(&self.past);
        all.find_map(|manifest| manifest.get(grain_type))
    }

    /// Whether there are Active silos of which nothing is known.
    pub fn is_incomplete(&self) -> bool {
        self.silos.iter().any(|(_, manifest)| manifest.is_none())
    }

    /// The grain types that are hosted, and by how many silos, as a text.
    pub fn summary(&self) -> String {
        let mut silos = BTreeMap::<&str, usize>::new();
        for manifest in self.silos.iter().filter_map(|(_, manifest)| manifest.as_ref()) {
            for hosted in manifest.types() {
                *silos.entry(&hosted.name).or_default() += 1;
            }
        }
        let more = silos.len().saturating_sub(NAMED_MAX);
        let line = |(name, count): (&str, usize)| match count {
            1 => format!("{name} by one silo"),
            count => format!("{name} by {count}"),
        };
        let mut lines: Vec<_> = silos.into_iter().take(NAMED_MAX).map(line).collect();
        if more > 0 {
            lines.push(format!("{more} more"));
        }
        if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(names: &[&str]) -> Option<Arc<Manifest>> {
        let hosted = |name: &&str| HostedType {
            name: (*name).to_owned(),
            placement: None,
            is_worker: false,
        };
        Some(Arc::new(Manifest::new(names.iter().map(hosted).collect())))
    }

    fn silo(n: u8) -> SiloAddress {
        format!("10.0.0.{n}:1:1").parse().unwrap()
    }

    fn hosted(silos: &[Option<Arc<Manifest>>], past: &[&str]) -> Hosted {
        let own = silos[0].clone().unwrap();
        let silos = (1..).map(silo).zip(silos.iter().cloned()).collect();
        Hosted::new(own, silos, manifest(past).into_iter().collect())
    }

    #[test]
    fn a_type_is_where_it_was_said_to_be_and_perhaps_where_nothing_was_said() {
        let (a, b) = (GrainTypeId::of("A"), GrainTypeId::of("B"));
        let same = hosted(&[manifest(&["A"]), manifest(&["A"]), None], &[]);
        assert!(same.is_everywhere(a) && !same.is_everywhere(b));
        assert!((1..=3).all(|n| same.hosts(&silo(n), a) && !same.hosts(&silo(n), b)));
        assert!(!same.hosts(&silo(9), a), "nobody knows that silo");
        let mixed = hosted(&[manifest(&["A"]), manifest(&["A", "B"]), None], &["C"]);
        assert!(mixed.is_everywhere(a) && mixed.is_incomplete());
        assert_eq!([1, 2, 3].map(|n| mixed.hosts(&silo(n), b)), [false, true, false]);
        let apart = hosted(&[manifest(&["A"]), manifest(&["B"])], &["C"]);
        assert!(!apart.is_everywhere(a) && !apart.is_everywhere(b) && !apart.is_incomplete());
        let known = ["A", "B", "C", "D"]
            .map(|name| apart.hosted_type(GrainTypeId::of(name)).map(|hosted| &*hosted.name));
        assert_eq!(known, [Some("A"), Some("B"), Some("C"), None]);
    }

    #[test]
    fn the_summary_says_how_many_silos_host_a_type_and_has_an_end() {
        let few = hosted(&[manifest(&["A"]), manifest(&["B", "A"])], &["C"]);
        assert_eq!(few.summary(), "A by 2, B by one silo");
        assert_eq!(hosted(&[manifest(&[])], &[]).summary(), "nothing");
        let names: Vec<_> = (0..25).map(|n| format!("Type{n:02}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let many = hosted(&[manifest(&names)], &[]).summary();
        assert!(many.ends_with("Type19 by one silo, 5 more"), "{many}");
    }
}
