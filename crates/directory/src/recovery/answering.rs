//! The answerer's side of a recovery: telling a new owner what this silo has in its ranges.

use std::collections::{BTreeMap, BTreeSet};

use emmer_core::{GrainId, SiloAddress};

use crate::api::{Effect, ReportId};
use crate::facts::Facts;
use crate::inner::{Inner, Question};
use crate::list::Body;
use crate::message::Message;
use crate::out::Out;

/// The questions of new owners.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    /// Questions being answered: the shell collects activations.
    reports: BTreeMap<ReportId, Question>,
    /// Questions that name a view this silo has not installed, by asker and its number.
    deferred: BTreeMap<(SiloAddress, u64), Question>,
}

impl Answering {
    /// Returns true if no question is being answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.reports.is_empty()
    }

    /// Returns true if no question waits for its view.
    pub(crate) fn has_no_deferred(&self) -> bool {
        self.deferred.is_empty()
    }

    /// Another silo asks. A question about a view not installed here waits for it.
    pub(crate) fn on_question(&mut self, facts: &Facts, out: &mut Out, question: Question) {
        if question.view() <= facts.version() {
            out.tell(Inner::Answer(question));
            return;
        }
        let key = (question.to(), question.recovery());
        let has_room = self.deferred.len() < facts.config().questions_max;
        if has_room || self.deferred.contains_key(&key) {
            self.deferred.insert(key, question);
        }
    }

    /// A view was installed: questions that waited for it are answered.
    pub(crate) fn answer_deferred(&mut self, facts: &Facts, out: &mut Out) {
        for question in std::mem::take(&mut self.deferred).into_values() {
            self.on_question(facts, out, question);
        }
    }

    /// Returns true if a question is to be answered: its asker is Active, and does not get an
    /// answer to it already.
    pub(crate) fn accepts(&self, facts: &Facts, question: &Question) -> bool {
        // An asker that is not Active here loses the ranges as soon as it has this view too.
        if !facts.silos().is_active(&question.to()) {
            return false;
        }
        let same = |q: &Question| q.to() == question.to() && q.recovery() == question.recovery();
        let full =
            question.to() != facts.me() && self.reports.len() >= facts.config().questions_max;
        let asked = question.recovery() != Message::UNASKED;
        !asked || !(full || self.reports.values().any(same))
    }

    /// From here on older grants in the ranges do not count. Has the shell collect what counts
    /// already.
    pub(crate) fn start(&mut self, facts: &Facts, out: &mut Out, question: Question) {
        let report = ReportId(out.next_number());
        let ranges = question.ranges().to_ring_ranges();
        out.effect(Effect::ReportLocal { report, ranges });
        self.reports.insert(report, question.answered_at(facts.version()));
    }

    /// The shell's answer: the confirmed local activations in the ranges, without those in
    /// `removed`.
    pub(crate) fn on_local_report(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        report: ReportId,
        entries: Vec<(GrainId, u64)>,
        removed: &BTreeSet<(&GrainId, u64)>,
    ) {
        let Some(question) = self.reports.remove(&report) else { return };
        let entries: Vec<_> = entries
            .into_iter()
            .filter(|(grain, activation)| {
                question.ranges().covers(grain)
                    && (removed.is_empty() || !removed.contains(&(grain, *activation)))
            })
            .collect();
        let (to, recovery, view) = (question.to(), question.recovery(), question.view());
        out.tell(if to == facts.me() {
            Inner::Report(recovery, ((view, report.0, 0, true), entries))
        } else {
            Inner::Open(to, Body::Report { recovery, view, entries })
        });
    }

    /// This silo's own recoveries for which `is_over` says so need no answer.
    pub(crate) fn forget_own(&mut self, facts: &Facts, is_over: impl Fn(u64) -> bool) {
        self.reports.retain(|_, q| q.to() != facts.me() || !is_over(q.recovery()));
    }

    /// This silo is out.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
