//! The silos that placement chooses from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_core::{Duty, GrainTypeId, SiloAddress, SiloEntry, Timestamp};
use emmer_placement::hosted::{Hosted, HostedType, VersionSelector};
use emmer_placement::load::Loads;
use emmer_placement::{PlaceError, SiloFilter, Surroundings};

/// The silos that placement chooses from. It passes over full, suspected and cordoned ones while
/// others are left.
#[derive(Default)]
pub(super) struct Choice {
    /// The Active silos, in the order of their addresses.
    active: Vec<Candidate>,
    /// Silos that can be chosen where each can host the grain.
    silos: Vec<SiloAddress>,
    /// Silos of each role.
    by_role: BTreeMap<Arc<str>, Vec<SiloAddress>>,
    /// Loads of the silos.
    pub(super) loads: Arc<Loads>,
    /// Types that the silos host.
    pub(super) hosted: Arc<Hosted>,
    /// All that directors see of them.
    pub(super) known: Arc<Surroundings>,
}

/// Needs of a call: a method of a grain type.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    grain_type: GrainTypeId,
    method: u32,
    /// Description of the type by a silo that has the method.
    pub(super) hosted: Option<&'a HostedType>,
    /// All silos have it.
    everywhere: bool,
}

struct Candidate {
    silo: SiloAddress,
    role: Arc<str>,
    merit: Merit,
    /// No operator wants it to have fewer grains.
    takes: bool,
}

/// Merit of a silo as the place of a new grain. Those of less merit are for want of others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Merit {
    /// An operator empties it.
    Drained,
    /// It is full, suspected or cordoned.
    Poor,
    Good,
}

fn best(candidates: &[&Candidate]) -> Vec<SiloAddress> {
    let most = candidates.iter().map(|one| one.merit).max();
    let best = candidates.iter().filter(|one| Some(one.merit) == most);
    best.map(|one| one.silo).collect()
}

impl Choice {
    /// Before any silo is known.
    pub(super) fn of_nobody(hosted: Arc<Hosted>) -> Self {
        Self { hosted, ..Self::default() }
    }

    /// `active`: in the order of their addresses. Votes after `votes_since` count.
    pub(super) fn of(
        loads: Arc<Loads>,
        hosted: Arc<Hosted>,
        active: &[Arc<SiloEntry>],
        votes_since: Timestamp,
    ) -> Self {
        let known = Surroundings::new(active.to_vec(), hosted.clone(), loads.clone());
        let known = Arc::new(known);
        let candidate = |silo: &Arc<SiloEntry>| {
            let is_active = |voter| active.binary_search_by_key(voter, |silo| silo.address).is_ok();
            let is_suspected =
                silo.votes.iter().any(|vote| vote.at > votes_since && is_active(&vote.voter));
            Candidate {
                silo: silo.address,
                role: silo.role_name.clone(),
                merit: match silo.duty {
                    Duty::Draining | Duty::Drained | Duty::Leaving => Merit::Drained,
                    Duty::Full | Duty::Giving
                        if !is_suspected && !loads.is_overloaded(&silo.address) =>
                    {
                        Merit::Good
                    }
                    Duty::Full | Duty::Giving | Duty::Cordoned => Merit::Poor,
                },
                takes: silo.duty.takes_grains(),
            }
        };
        let active: Vec<_> = active.iter().map(candidate).collect();
        let mut roles: BTreeMap<_, Vec<&Candidate>> = BTreeMap::new();
        for one in &active {
            roles.entry(one.role.clone()).or_default().push(one);
        }
        let by_role = roles.into_iter().map(|(role, all)| (role, best(&all))).collect();
        let silos = best(&active.iter().collect::<Vec<_>>());
        Self { active, silos, by_role, loads, hosted, known }
    }

    /// Returns true if both silos are Active, take new grains and have one role.
    pub(super) fn share_grains(&self, one: &SiloAddress, other: &SiloAddress) -> bool {
        let role = |silo: &SiloAddress| {
            let at = self.active.binary_search_by_key(silo, |candidate| candidate.silo).ok()?;
            self.active.get(at).filter(|one| one.takes).map(|one| &one.role)
        };
        role(one).is_some() && role(one) == role(other)
    }

    /// Needs of a call of a method.
    pub(super) fn wanted(&self, grain_type: GrainTypeId, method: u32) -> Wanted<'_> {
        let everywhere = self.hosted.everywhere(grain_type, method);
        let hosted = everywhere.or_else(|| self.hosted.serving_type(grain_type, method));
        Wanted { grain_type, method, hosted, everywhere: everywhere.is_some() }
    }

    /// The silos that can host a grain, in the order of their addresses: with `role` if one is
    /// given, without those in `avoid`, and of the versions that `selector` allows.
    ///
    /// # Errors
    /// Why no silo can have it. No error when no silo is known, or all of them are to be avoided.
    pub(super) fn candidates(
        &self,
        wanted: Wanted<'_>,
        role: Option<&str>,
        selector: VersionSelector,
        avoid: &[SiloAddress],
    ) -> Result<Cow<'_, [SiloAddress]>, PlaceError> {
        let Wanted { grain_type, method, everywhere, hosted } = wanted;
        let filters = hosted.map_or(&[][..], |hosted| &hosted.filters);
        let of_role = || PlaceError::NoSiloOfRole(role.unwrap_or_default().to_owned());
        let any_version = self.hosted.is_uniform() || selector == VersionSelector::Any;
        let any = any_version && everywhere && avoid.is_empty() && filters.is_empty();
        if self.active.is_empty() || any {
            return match role {
                None => Ok(Cow::Borrowed(&self.silos)),
                Some(role) => self.by_role.get(role).map(Cow::from).ok_or_else(of_role),
            };
        }
        let mut serving: Vec<_> = self.active.iter().collect();
        serving.retain(|one| self.hosted.serves(&one.silo, grain_type, method));
        if serving.is_empty() {
            let may_come =
                self.hosted.is_incomplete() || self.hosted.was_served(grain_type, method);
            return Err(if may_come {
                PlaceError::NoHostKnown
            } else {
                self.hosted.why_not(grain_type)
            });
        }
        serving.retain(|one| role.is_none_or(|role| *one.role == *role));
        if serving.is_empty() {
            return Err(of_role());
        }
        let passes = |filter: &SiloFilter, silo: &SiloAddress| {
            filter.passes(Some(self.hosted.own_metadata()), self.hosted.metadata(silo))
        };
        for filter in filters.iter().filter(|filter| !filter.is_preferred()) {
            serving.retain(|one| passes(filter, &one.silo));
            if serving.is_empty() {
                return Err(PlaceError::NoSiloPasses(filter.to_string()));
            }
        }
        serving.retain(|one| !avoid.contains(&one.silo));
        // An older silo could not read what a newer one has written.
        let data = |one: &&Candidate| {
            self.hosted.on(&one.silo, grain_type).map_or(0, |hosted| hosted.data_version)
        };
        let newest = serving.iter().map(data).max();
        serving.retain(|one| Some(data(one)) == newest);
        let mut silos = best(&serving);
        for filter in filters.iter().filter(|filter| filter.is_preferred()) {
            if silos.iter().any(|silo| passes(filter, silo)) {
                silos.retain(|silo| passes(filter, silo));
            }
        }
        let version = |silo: &SiloAddress| {
            self.hosted.on(silo, grain_type).map_or(0, |hosted| hosted.version)
        };
        if let Some(picked) = selector.pick(silos.iter().map(version)) {
            silos.retain(|silo| version(silo) == picked);
        }
        Ok(Cow::Owned(silos))
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{Instant, SiloStatus, Vote};
    use emmer_placement::hosted::{HostedType, Learner, Manifest, Message};
    use emmer_placement::load::{Known, LoadReport};

    use super::*;

    fn silo(n: u8, role: &str) -> SiloEntry {
        let address = format!("10.0.0.{n}:1:1").parse().unwrap();
        let mut entry = SiloEntry::new(address, SiloStatus::Active, Timestamp::from_millis(0));
        entry.role_name = role.into();
        entry
    }

    const METHOD: u32 = 1;

    /// "A2" is version 2 of A, and has one method more.
    fn manifest(types: &[&str]) -> Arc<Manifest> {
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
        Arc::new(Manifest::new(types.iter().map(hosted).collect()))
    }

    /// A choice: the first silo asks. Each silo hosts the given types, or has not told its types
    /// yet.
    fn choice(silos: &[SiloEntry], full: &[SiloAddress], hosts: &[Option<&[&str]>]) -> Choice {
        choice_of(silos, full, hosts.iter().map(|types| types.map(manifest)).collect())
    }

    fn choice_of(
        silos: &[SiloEntry],
        full: &[SiloAddress],
        manifests: Vec<Option<Arc<Manifest>>>,
    ) -> Choice {
        let known = silos.iter().zip(&manifests).map(|(silo, manifest)| {
            let overloaded = full.contains(&silo.address);
            let report = LoadReport { overloaded, ..LoadReport::default() };
            Known {
                report: Some((report, Instant::ZERO)),
                manifest: manifest.as_ref().map(|manifest| manifest.number()),
                ..Known::new(silo.address, Instant::ZERO)
            }
        });
        let loads = Arc::new(Loads::new(known.collect()));
        let own = manifests[0].clone().unwrap();
        let mut learner = Learner::new(silos[0].address, own);
        learner.handle_loads(Instant::ZERO, &loads);
        for (silo, manifest) in silos.iter().zip(manifests) {
            if let Some(manifest) = manifest {
                let types = manifest.types().cloned().collect();
                let metadata = manifest.metadata().clone();
                let told = Message::Describe(manifest.number(), types, metadata);
                learner.handle_message(Instant::ZERO, silo.address, told);
            }
        }
        let active: Vec<_> = silos.iter().cloned().map(Arc::new).collect();
        let hosted = Arc::new(learner.hosted());
        Choice::of(loads, hosted, &active, Timestamp::from_millis(1_000))
    }

    fn candidates(
        choice: &Choice,
        (name, method): (&str, u32),
        role: Option<&str>,
        selector: VersionSelector,
        avoid: &[SiloAddress],
    ) -> Result<Vec<SiloAddress>, PlaceError> {
        let wanted = choice.wanted(GrainTypeId::of(name), method);
        choice.candidates(wanted, role, selector, avoid).map(Cow::into_owned)
    }

    fn can_host(choice: &Choice, name: &str, role: Option<&str>) -> Vec<SiloAddress> {
        let any = VersionSelector::Any;
        candidates(choice, (name, METHOD), role, any, &[]).unwrap_or_default()
    }

    /// Silos that can be chosen among all, and among those of the role "front".
    fn chosen(silos: &[SiloEntry], full: &[SiloAddress]) -> (Vec<SiloAddress>, Vec<SiloAddress>) {
        let choice = choice(silos, full, &vec![Some(&["A"][..]); silos.len()]);
        (can_host(&choice, "A", None), can_host(&choice, "A", Some("front")))
    }

    #[test]
    fn full_and_suspected_silos_are_passed_over_while_others_of_their_role_are_left() {
        let mut silos = [silo(1, "front"), silo(2, "back"), silo(3, "front"), silo(4, "back")];
        let [a, b, c, d] = silos.each_ref().map(|silo| silo.address);
        assert_eq!(chosen(&silos, &[]), (vec![a, b, c, d], vec![a, c]));
        assert_eq!(chosen(&silos, &[a]), (vec![b, c, d], vec![c]));
        assert_eq!(chosen(&silos, &[a, c]), (vec![b, d], vec![a, c]));
        assert_eq!(chosen(&silos, &[a, b, c, d]), (vec![a, b, c, d], vec![a, c]));
        let vote = |at| Vote { voter: b, at: Timestamp::from_millis(at), gone: false };
        silos[2].votes = vec![vote(1_000)];
        assert_eq!(chosen(&silos, &[]), (vec![a, b, c, d], vec![a, c]), "it is over");
        let stranger = "10.0.0.9:1:1".parse().unwrap();
        silos[2].votes.push(Vote { voter: stranger, ..vote(2_000) });
        assert_eq!(chosen(&silos, &[]), (vec![a, b, c, d], vec![a, c]), "its voter is not Active");
        silos[2].votes.push(vote(1_001));
        assert_eq!(chosen(&silos, &[]), (vec![a, b, d], vec![a]));
        assert_eq!(chosen(&silos, &[a]), (vec![b, d], vec![a, c]));
        assert_eq!(chosen(&silos[1..2], &[]).1, []);
    }

    #[test]
    fn a_type_goes_to_silos_that_host_it_the_full_ones_last() {
        let silos = [silo(1, "front"), silo(2, "back"), silo(3, "front"), silo(4, "back")];
        let [a, b, c, d] = silos.each_ref().map(|silo| silo.address);
        let hosts: [Option<&[&str]>; 4] =
            [Some(&["A"]), Some(&["A", "B"]), Some(&["A", "B"]), Some(&["B"])];
        let all = choice(&silos, &[], &hosts);
        assert_eq!(can_host(&all, "A", None), [a, b, c]);
        assert_eq!(can_host(&all, "B", None), [b, c, d]);
        assert_eq!(can_host(&all, "B", Some("front")), [c]);
        let some_full = choice(&silos, &[b, c], &hosts);
        assert_eq!(can_host(&some_full, "A", None), [a]);
        assert_eq!(can_host(&some_full, "B", None), [d]);
        assert_eq!(can_host(&some_full, "B", Some("front")), [c], "there is no other");
        let all_full = choice(&silos, &[b, c, d], &hosts);
        assert_eq!(can_host(&all_full, "B", None), [b, c, d]);
    }

    #[test]
    fn who_has_said_nothing_is_taken_for_one_like_this_silo() {
        let silos = [silo(1, "front"), silo(2, "back"), silo(3, "front")];
        let [a, b, c] = silos.each_ref().map(|silo| silo.address);
        let one_kind = choice(&silos, &[], &[Some(&["A"]), Some(&["A"]), None]);
        assert_eq!(can_host(&one_kind, "A", None), [a, b, c]);
        let two_kinds = choice(&silos, &[], &[Some(&["A"]), Some(&["B"]), None]);
        assert_eq!(can_host(&two_kinds, "A", None), [a, c]);
        assert_eq!(can_host(&two_kinds, "B", None), [b]);
    }

    #[test]
    fn of_several_versions_those_are_taken_that_have_the_method_and_are_selected() {
        let silos = [silo(1, "front"), silo(2, "back"), silo(3, "front")];
        let [a, b, c] = silos.each_ref().map(|silo| silo.address);
        let hosts: [Option<&[&str]>; 3] = [Some(&["A"]), Some(&["A2"]), Some(&["A2"])];
        let all = choice(&silos, &[], &hosts);
        let taken = |choice: &Choice, method, selector| {
            candidates(choice, ("A", method), None, selector, &[])
        };
        use VersionSelector::{Any, Newest, Oldest};
        assert_eq!(taken(&all, 1, Any), Ok(vec![a, b, c]));
        assert_eq!(taken(&all, 1, Newest), Ok(vec![b, c]));
        assert_eq!(taken(&all, 1, Oldest), Ok(vec![a]));
        for selector in VersionSelector::ALL {
            assert_eq!(taken(&all, 2, selector), Ok(vec![b, c]));
            assert!(matches!(taken(&all, 3, selector), Err(PlaceError::NotServed { .. })));
        }
        let full = choice(&silos, &[b, c], &hosts);
        assert_eq!(taken(&full, 1, Newest), Ok(vec![a]), "those with room come first");
        assert_eq!(taken(&full, 2, Oldest), Ok(vec![b, c]));
        let without =
            |avoid: &[SiloAddress], selector| candidates(&all, ("A", 1), None, selector, avoid);
        assert_eq!(without(&[b], Newest), Ok(vec![c]));
        assert_eq!(without(&[b, c], Newest), Ok(vec![a]), "another version is left");
        assert_eq!(without(&[a, b, c], Any), Ok(vec![]));
        assert_eq!(without(&[a], Any), Ok(vec![b, c]));
    }

    #[test]
    fn silos_that_pass_a_filter_come_first_and_full_ones_after_others_that_do_not_pass() {
        let silos = [silo(1, "front"), silo(2, "front"), silo(3, "front")];
        let [a, b, c] = silos.each_ref().map(|silo| silo.address);
        let choice = |filter: SiloFilter, full: &[SiloAddress]| {
            let of = |disk: &str| {
                let plain = manifest(&["A"]);
                let types = plain.types().cloned();
                let types = types.map(|one| HostedType { filters: vec![filter.clone()], ..one });
                let metadata = [("disk".to_owned(), disk.to_owned())].into();
                Some(Arc::new(Manifest::new(types.collect()).with_metadata(metadata)))
            };
            choice_of(&silos, full, vec![of("hdd"), of("ssd"), of("ssd")])
        };
        let required = SiloFilter::require("disk", "ssd");
        let preferred = required.clone().preferred();
        for filter in [&required, &preferred] {
            assert_eq!(can_host(&choice(filter.clone(), &[]), "A", None), [b, c]);
            assert_eq!(can_host(&choice(filter.clone(), &[b]), "A", None), [c]);
        }
        assert_eq!(can_host(&choice(required, &[b, c]), "A", None), [b, c], "no other passes");
        assert_eq!(can_host(&choice(preferred, &[b, c]), "A", None), [a], "the others are full");
        let tape = SiloFilter::require("disk", "tape");
        assert_eq!(can_host(&choice(tape.clone().preferred(), &[]), "A", None), [a, b, c]);
        let any = VersionSelector::Any;
        let none = candidates(&choice(tape, &[]), ("A", METHOD), None, any, &[]);
        assert!(matches!(none, Err(PlaceError::NoSiloPasses(_))), "{none:?}");
    }

    #[test]
    fn what_nobody_hosts_is_told_from_what_somebody_may() {
        let silos = [silo(1, "front"), silo(2, "back")];
        let why = |choice: &Choice, name, role| {
            candidates(choice, (name, METHOD), role, VersionSelector::Any, &[]).unwrap_err()
        };
        let known = choice(&silos, &[], &[Some(&["A"]), Some(&["B"])]);
        let nobody = PlaceError::NotHosted("A by one silo, B by one silo".to_owned());
        assert_eq!(why(&known, "C", None), nobody);
        let of_role = |role: &str| PlaceError::NoSiloOfRole(role.to_owned());
        assert_eq!(why(&known, "B", Some("front")), of_role("front"));
        assert_eq!(why(&known, "A", Some("middle")), of_role("middle"));
        let unknown = choice(&silos, &[], &[Some(&["A"]), None]);
        assert_eq!(why(&unknown, "C", None), PlaceError::NoHostKnown);
        assert_eq!(can_host(&Choice::default(), "C", None), [], "no silo is known");
    }
}
