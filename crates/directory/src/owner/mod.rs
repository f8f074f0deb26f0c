//! The owner's side: the registrations of the ranges that this silo owns.

mod entries;

use emmer_core::{GrainId, SiloAddress};

use self::entries::Entries;
use crate::api::Effect;
use crate::facts::Facts;
use crate::message::{Answer, Message, Operation};
use crate::out::Out;
use crate::ranges::RangeSet;
use crate::registration::Registration;

/// Registrations that this silo holds as owner.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    entries: Entries,
}

impl Owner {
    /// Number of registrations held.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Every registration, in no particular but a repeatable order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GrainId, Registration)> + '_ {
        self.entries.iter()
    }

    /// The registration of `grain`, served or not.
    pub(crate) fn get(&self, grain: &GrainId) -> Option<Registration> {
        self.entries.get(grain)
    }

    /// Returns true if `grain` is registered for a silo that is Dead and may still run turns.
    pub(crate) fn is_fading(&self, facts: &Facts, grain: &GrainId) -> bool {
        !facts.fading().is_empty()
            && self.entries.get(grain).is_some_and(|held| facts.fades(&held.silo))
    }

    /// Executes `operation` of `from` on the entries. The caller has made sure that this silo
    /// serves `grain`.
    pub(crate) fn serve(
        &mut self,
        facts: &Facts,
        from: SiloAddress,
        grain: &GrainId,
        operation: Operation,
    ) -> Answer {
        let held = self.entries.get(grain);
        match operation {
            Operation::Lookup => Answer::Found(held),
            Operation::Register(activation) => {
                let wanted = Registration { silo: from, activation };
                match held {
                    Some(held) if held == wanted => Answer::Registered,
                    Some(held) => Answer::Taken(held),
                    None if self.entries.len() >= facts.config().entries_max => Answer::Full,
                    None => {
                        self.entries.insert(grain, wanted);
                        Answer::Registered
                    }
                }
            }
            Operation::Replace { activation, instead, .. } => {
                let wanted = Registration { silo: from, activation };
                match held {
                    Some(held) if held == wanted => Answer::Registered,
                    Some(held) if held == instead => {
                        self.entries.insert(grain, wanted);
                        Answer::Registered
                    }
                    Some(held) => Answer::Taken(held),
                    None => Answer::Absent,
                }
            }
            Operation::Unregister(activation) => {
                if held == Some(Registration { silo: from, activation }) {
                    self.entries.remove(grain);
                }
                Answer::Unregistered
            }
        }
    }

    /// Enters a recovery's registrations. Two activations of one grain cannot exist while every
    /// silo keeps the rules. If they do, the smaller registration stays and the other one ends.
    pub(crate) fn enter(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        entries: Vec<(GrainId, Registration)>,
    ) {
        for (grain, reported) in entries {
            let Some(held) = self.entries.get(&grain).filter(|held| *held != reported) else {
                self.entries.insert(&grain, reported);
                continue;
            };
            let (winner, loser) = if held < reported { (held, reported) } else { (reported, held) };
            self.entries.insert(&grain, winner);
            let activation = loser.activation;
            if loser.silo == facts.me() {
                out.effect(Effect::Evict { grain, activation });
            } else {
                out.send(loser.silo, Message::Evict { grain, activation });
            }
        }
    }

    /// Drops registrations outside of `ranges`, and those of silos that neither host grains nor
    /// fade.
    pub(crate) fn keep(&mut self, facts: &Facts, ranges: Option<&RangeSet>) {
        let keep = |silo: &SiloAddress| facts.keeps(silo);
        if ranges.is_some() || self.entries.names_silo_not(keep) {
            self.entries.retain(|hash| ranges.is_none_or(|ranges| ranges.contains(hash)), keep);
        }
    }

    /// Takes out what lies in `lost`.
    pub(crate) fn take(&mut self, lost: &RangeSet) -> Vec<(GrainId, Registration)> {
        self.entries.take(|hash| lost.contains(hash))
    }

    /// This silo is out.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}
