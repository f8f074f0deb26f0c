//! The answerer's side of a recovery: telling a new owner what this silo has in its ranges.

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::api::{Effect, ReportId};
use crate::directory::Directory;
use crate::message::Message;
use crate::ranges::RangeSet;
use crate::streams::Body;

/// A new owner's question.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Who asks; this silo itself when it recovers.
    pub(crate) to: SiloAddress,
    /// The asker's number, or [`Message::UNASKED`].
    pub(crate) recovery: u64,
    /// The view it names; once it is being answered, the view it is answered at.
    pub(crate) view: u64,
    /// What it asks for.
    pub(crate) ranges: RangeSet,
}

impl Directory {
    /// Another silo asks. A question about a view not installed here waits for it.
    pub(crate) fn handle_recover(&mut self, now: Instant, question: Question) {
        if question.view <= self.version {
            self.start_answer(now, question);
            return;
        }
        let key = (question.to, question.recovery);
        if self.deferred.len() < self.config.questions_max || self.deferred.contains_key(&key) {
            self.deferred.insert(key, question);
        }
    }

    /// A view was installed: questions that waited for it are answered.
    pub(crate) fn answer_deferred(&mut self, now: Instant) {
        let waiting = std::mem::take(&mut self.deferred);
        for question in waiting.into_values() {
            self.handle_recover(now, question);
        }
    }

    /// From here on older grants in the ranges do not count; then the shell collects what counts
    /// already.
    pub(crate) fn start_answer(&mut self, now: Instant, mut question: Question) {
        // An asker that is not Active here loses the ranges as soon as it has this view too.
        if !self.silos.is_active(&question.to) {
            return;
        }
        let same = |q: &Question| q.to == question.to && q.recovery == question.recovery;
        let full = question.to != self.me && self.answering.len() >= self.config.questions_max;
        let asked = question.recovery != Message::UNASKED;
        if asked && (full || self.answering.values().any(same)) {
            return;
        }
        self.disown_grants(now, &question.ranges);
        question.view = self.version;
        let report = ReportId(self.next_number());
        self.effects
            .push_back(Effect::ReportLocal { report, ranges: question.ranges.to_ring_ranges() });
        self.answering.insert(report, question);
    }

    /// The shell's answer to [`Effect::ReportLocal`]: the confirmed local activations in its
    /// ranges. What is being unregistered is left out here, should the shell have named it. A
    /// report nobody waits for is ignored.
    pub fn handle_local_report(
        &mut self,
        now: Instant,
        report: ReportId,
        entries: Vec<(GrainId, u64)>,
    ) {
        let Some(question) = self.answering.remove(&report) else { return };
        let removed = self.being_removed();
        let entries: Vec<_> = entries
            .into_iter()
            .filter(|(grain, activation)| {
                question.ranges.covers(grain)
                    && (removed.is_empty() || !removed.contains(&(grain, *activation)))
            })
            .collect();
        let Question { to, recovery, view, .. } = question;
        if to == self.me {
            self.handle_report(now, to, recovery, (view, report.0, 0, true), entries);
            return;
        }
        self.open_stream(now, to, Body::Report { recovery, view, entries });
    }
}
