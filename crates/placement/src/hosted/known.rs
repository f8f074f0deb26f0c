//! The knowledge of a silo about the types that the others host.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use emmer_core::{GrainTypeId, SiloAddress};

use super::{HostedType, Manifest};
use crate::error::PlaceError;
use crate::placement::Metadata;

/// Number of grain types that are named in a text.
const NAMED_MAX: usize = 20;

/// Types that every Active silo hosts, at one moment of one silo.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hosted {
    own: Arc<Manifest>,
    /// The Active silos, in the order of their addresses, each with its manifest if that is known.
    silos: Vec<(SiloAddress, Option<Arc<Manifest>>)>,
    /// Manifests of silos that are no longer Active.
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
        let differs = |manifest: &Arc<Manifest>| manifest.types_number() != own.types_number();
        let is_uniform = !silos.iter().filter_map(|(_, manifest)| manifest.as_ref()).any(differs);
        Self { own, silos, past, is_uniform }
    }

    /// This silo's description of a grain type, if all Active silos can serve a method of it and
    /// read the same data, as far as is known. A silo without a known manifest counts as one like
    /// this: mostly it is, and a silo passes on calls that it cannot serve.
    pub fn everywhere(&self, grain_type: GrainTypeId, method: u32) -> Option<&HostedType> {
        let own = self.own.get(grain_type).filter(|own| own.serves(method))?;
        let serves = |manifest: &Option<Arc<Manifest>>| {
            let hosted = manifest.as_ref().unwrap_or(&self.own).get(grain_type);
            let alike = |hosted: &&HostedType| hosted.data_version == own.data_version;
            hosted.filter(alike).is_some_and(|hosted| hosted.serves(method))
        };
        let all = self.is_uniform || self.silos.iter().all(|(_, manifest)| serves(manifest));
        all.then_some(own)
    }

    /// Returns true if no silo is known to host something else than this one.
    pub const fn is_uniform(&self) -> bool {
        self.is_uniform
    }

    /// Returns true if a silo can serve a call of a method of a grain type, as far as is known.
    pub fn serves(&self, silo: &SiloAddress, grain_type: GrainTypeId, method: u32) -> bool {
        self.on(silo, grain_type).is_some_and(|hosted| hosted.serves(method))
    }

    /// Returns true if a silo serves the methods of a grain type that this silo serves, as far as
    /// is known.
    pub fn serves_the_same(&self, silo: &SiloAddress, grain_type: GrainTypeId) -> bool {
        let (its, own) = (self.on(silo, grain_type), self.own.get(grain_type));
        self.is_uniform || its.map(|hosted| &hosted.methods) == own.map(|hosted| &hosted.methods)
    }

    /// Returns true if a silo could serve it that is Active or was, as far as is known. This silo
    /// counts too: it may be about to leave.
    pub fn was_served(&self, grain_type: GrainTypeId, method: u32) -> bool {
        self.all(grain_type).any(|hosted| hosted.serves(method))
    }

    /// Descriptions of a grain type: by this silo, by others, by silos that were Active.
    fn all(&self, grain_type: GrainTypeId) -> impl Iterator<Item = &HostedType> {
        let others = self.silos.iter().filter_map(|(_, manifest)| manifest.as_ref());
        let all = [&self.own].into_iter().chain(others).chain(&self.past);
        all.filter_map(move |manifest| manifest.get(grain_type))
    }

    /// Description of a grain type by a silo, as far as is known; none when it does not host it.
    pub fn on(&self, silo: &SiloAddress, grain_type: GrainTypeId) -> Option<&HostedType> {
        let place = self.silos.binary_search_by_key(silo, |(silo, _)| *silo).ok()?;
        self.silos[place].1.as_ref().unwrap_or(&self.own).get(grain_type)
    }

    /// Description of a grain type, by this silo if it hosts it.
    pub fn hosted_type(&self, grain_type: GrainTypeId) -> Option<&HostedType> {
        self.all(grain_type).next()
    }

    /// An Active silo that reads newer data of a grain type than `version`, as far as is known.
    pub fn with_newer_data(&self, grain_type: GrainTypeId, version: u32) -> Option<SiloAddress> {
        let newer = |(silo, manifest): &(SiloAddress, Option<Arc<Manifest>>)| {
            let hosted = manifest.as_ref()?.get(grain_type)?;
            (hosted.data_version > version).then_some((hosted.data_version, *silo))
        };
        if self.is_uniform {
            return None;
        }
        self.silos.iter().filter_map(newer).max().map(|(_, silo)| silo)
    }

    /// The grain type called `name`. Capitals may differ if only one type fits then.
    pub fn type_called(&self, name: &str) -> Option<String> {
        let manifests = self.silos.iter().filter_map(|(_, manifest)| manifest.as_ref());
        let names: BTreeSet<&str> = manifests
            .flat_map(|manifest| manifest.types())
            .map(|hosted| hosted.name.as_str())
            .filter(|known| known.eq_ignore_ascii_case(name))
            .collect();
        match (names.contains(name), names.len()) {
            (true, _) => Some(name.to_owned()),
            (false, 1) => names.first().map(|known| (*known).to_owned()),
            (false, _) => None,
        }
    }

    /// The first Active silo that hosts a grain type, as far as is known.
    pub fn host_of(&self, grain_type: GrainTypeId) -> Option<SiloAddress> {
        let hosts = |(silo, manifest): &(SiloAddress, Option<Arc<Manifest>>)| {
            manifest.as_ref()?.get(grain_type).map(|_| *silo)
        };
        self.silos.iter().find_map(hosts)
    }

    /// The metadata of this silo.
    pub fn own_metadata(&self) -> &Metadata {
        self.own.metadata()
    }

    /// The metadata of a silo; None while they are unknown.
    pub fn metadata(&self, silo: &SiloAddress) -> Option<&Metadata> {
        let place = self.silos.binary_search_by_key(silo, |(silo, _)| *silo).ok()?;
        Some(self.silos.get(place)?.1.as_ref()?.metadata())
    }

    /// Description of a grain type by a silo that serves a method of it, by this silo if it does.
    pub fn serving_type(&self, grain_type: GrainTypeId, method: u32) -> Option<&HostedType> {
        self.all(grain_type).find(|hosted| hosted.serves(method))
    }

    /// Returns true if there are Active silos of which nothing is known.
    pub fn is_incomplete(&self) -> bool {
        self.silos.iter().any(|(_, manifest)| manifest.is_none())
    }

    /// Why no Active silo serves a call: who hosts the grain's type in which version, or else which
    /// types are hosted.
    pub fn why_not(&self, grain_type: GrainTypeId) -> PlaceError {
        let known = self.silos.iter().filter_map(|(_, manifest)| manifest.as_ref());
        let mut versions = BTreeMap::<u32, usize>::new();
        for hosted in known.clone().filter_map(|manifest| manifest.get(grain_type)) {
            *versions.entry(hosted.version).or_default() += 1;
        }
        if let Some(hosted) = self.hosted_type(grain_type).filter(|_| !versions.is_empty()) {
            let line = |(version, count)| format!("version {version} by {}", silos(count));
            let versions: Vec<_> = versions.into_iter().map(line).collect();
            return PlaceError::NotServed {
                grain_type: hosted.name.clone(),
                versions: versions.join(", "),
            };
        }
        let mut types = BTreeMap::<&str, usize>::new();
        for hosted in known.flat_map(|manifest| manifest.types()) {
            *types.entry(&hosted.name).or_default() += 1;
        }
        let more = types.len().saturating_sub(NAMED_MAX);
        let line = |(name, count): (&str, usize)| format!("{name} by {}", silos(count));
        let mut lines: Vec<_> = types.into_iter().take(NAMED_MAX).map(line).collect();
        if more > 0 {
            lines.push(format!("{more} more"));
        }
        let hosted = if lines.is_empty() { "nothing".to_owned() } else { lines.join(", ") };
        PlaceError::NotHosted(hosted)
    }
}

fn silos(count: usize) -> String {
    if count == 1 { "one silo".to_owned() } else { format!("{count} silos") }
}

#[cfg(test)]
mod tests {
    use super::super::kinds::{METHOD, manifest as kind};
    use super::*;

    fn manifest(names: &[&str]) -> Option<Arc<Manifest>> {
        Some(kind(names))
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
        assert!(same.everywhere(a, METHOD).is_some() && same.everywhere(b, METHOD).is_none());
        let serves = |hosted: &Hosted, n, of| hosted.serves(&silo(n), of, METHOD);
        assert!((1..=3).all(|n| serves(&same, n, a) && !serves(&same, n, b)));
        assert!(!serves(&same, 9, a), "nobody knows that silo");
        let mixed = hosted(&[manifest(&["A"]), manifest(&["A", "B"]), None], &["C"]);
        assert!(
            mixed.everywhere(a, METHOD).is_some() && mixed.is_incomplete() && !mixed.is_uniform()
        );
        assert_eq!([1, 2, 3].map(|n| serves(&mixed, n, b)), [false, true, false]);
        let apart = hosted(&[manifest(&["A"]), manifest(&["B"])], &["C"]);
        assert!(apart.everywhere(a, METHOD).is_none() && apart.everywhere(b, METHOD).is_none());
        assert!(!apart.is_incomplete());
        let known = ["A", "B", "C", "D"]
            .map(|name| apart.hosted_type(GrainTypeId::of(name)).map(|hosted| &*hosted.name));
        assert_eq!(known, [Some("A"), Some("B"), Some("C"), None]);
    }

    #[test]
    fn a_method_is_where_its_version_is() {
        let a = GrainTypeId::of("A");
        let versions = hosted(&[manifest(&["A"]), manifest(&["A2"]), None], &[]);
        assert_eq!([1, 2, 3].map(|n| versions.serves(&silo(n), a, 2)), [false, true, false]);
        assert!(versions.everywhere(a, 1).is_some() && versions.everywhere(a, 2).is_none());
        assert!(versions.was_served(a, 2) && !versions.was_served(a, 3));
        assert_eq!([1, 2].map(|method| versions.serving_type(a, method).unwrap().version), [1, 2]);
        assert!(versions.serving_type(a, 3).is_none());
        let gone = hosted(&[manifest(&["A"])], &["A2"]);
        assert!(gone.was_served(a, 2) && gone.everywhere(a, 2).is_none());
    }

    #[test]
    fn the_reason_says_how_many_silos_host_what_and_has_an_end() {
        let why = |hosted: &Hosted, name| hosted.why_not(GrainTypeId::of(name)).to_string();
        let few = hosted(&[manifest(&["A"]), manifest(&["B", "A2"])], &["C"]);
        assert!(why(&few, "D").ends_with("Hosted are: A by 2 silos, B by one silo"));
        let told = why(&few, "A");
        assert!(told.ends_with("of A: version 1 by one silo, version 2 by one silo"), "{told}");
        assert!(why(&few, "C").ends_with("Hosted are: A by 2 silos, B by one silo"));
        assert!(why(&hosted(&[manifest(&[])], &[]), "A").ends_with("nothing"));
        let names: Vec<_> =
            (10..35).map(|n| format!("Type{}", n.to_string().replace('2', "x"))).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let many = why(&hosted(&[manifest(&names)], &[]), "A");
        assert!(many.ends_with(" by one silo, 5 more"), "{many}");
    }
}
