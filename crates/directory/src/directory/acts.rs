//! Inputs, and questions between the parts, handed to the part that they concern.

use emmer_core::{GrainId, SiloAddress};

use super::Directory;
use crate::api::Effect;
use crate::inner::{Batch, Inner, Question};
use crate::message::{Answer, Ask, Message, Operation};
use crate::out::{Act, Timer};
use crate::ranges::RangeSet;

impl Directory {
    /// Executes the requests of the parts, depth first: the consequences of an event come before
    /// the next event, and before later effects.
    pub(super) fn drain(&mut self) {
        for act in self.out.take_pending().into_iter().flatten() {
            match act {
                Act::Effect(effect) => self.out.effect(effect),
                Act::Inner(inner) => {
                    self.act(inner);
                    self.drain();
                }
            }
        }
    }

    fn act(&mut self, inner: Inner) {
        let (facts, out) = (&self.facts, &mut self.out);
        match inner {
            Inner::Answer(question) => self.answer_question(question),
            Inner::Report(id, batch) => self.on_report(self.facts.me(), id, batch),
            Inner::Collected { view, at, missing, entries } => {
                let (me, told) = (facts.me(), (view, at, true));
                self.recoveries.take_collected(facts, out, me, told, &missing, entries);
            }
            Inner::Enter(entries) => self.owner.enter(facts, out, entries),
            Inner::Keep(ranges) => self.owner.keep(facts, Some(&ranges)),
            Inner::Settle => self.settle_own(),
            Inner::Open(to, body) => self.lists.open(facts, out, to, body),
        }
    }

    /// Takes what another silo's directory sent.
    pub(super) fn hear(&mut self, from: SiloAddress, message: Message) {
        let (facts, out) = (&self.facts, &mut self.out);
        match message {
            Message::Requests { view, asks } => {
                let answer = |Ask { id, operation, grain }: Ask| {
                    (id, self.answer(from, view, &grain, operation))
                };
                let answers = asks.into_iter().map(answer).collect();
                let view = self.facts.version();
                self.out.send(from, Message::Responses { view, answers });
            }
            Message::Responses { answers, .. } => {
                self.requester.on_responses(facts, out, from, answers);
            }
            Message::Recover { recovery, view, ranges } => {
                let ranges = RangeSet::from_ring_ranges(&ranges);
                let question = Question::new(from, recovery, view, ranges);
                self.answering.on_question(facts, out, question);
            }
            Message::Report { recovery, view, series, batch, last, entries } => {
                self.on_report(from, recovery, ((view, series, batch, last), entries));
            }
            Message::Credit { series, batches } => {
                self.lists.advance(facts, out, from, series, batches);
            }
            Message::Collected { view, at, series, batch, last, missing, entries } => {
                if self.recoveries.on_collected(out, from, (series, batch), view) {
                    let told = (view, at, last);
                    self.recoveries.take_collected(facts, out, from, told, &missing, entries);
                }
            }
            Message::Await { view } => self.on_await(from, view),
            Message::Awaited { view, known } => {
                self.recoveries.on_awaited(facts, out, from, view, known);
            }
            Message::Take { view } => self.on_take(from, view),
            Message::Handed { view, series, batch, last, fading, entries } => {
                let place = (view, last);
                let id = self.recoveries.on_handed(out, from, (series, batch), place);
                if let Some(id) = id {
                    for due in self.facts.note_told_fading(&fading) {
                        self.out.set(due, Timer::Fading);
                    }
                    self.recoveries.take_handed(&self.facts, &mut self.out, id, entries);
                }
            }
            Message::Unheld { view } => self.recoveries.on_unheld(facts, out, from, view),
            Message::Evict { grain, activation } => {
                out.effect(Effect::Evict { grain, activation });
            }
        }
    }

    /// As the owner, to one request: the serving rule of the crate's page.
    fn answer(
        &mut self,
        from: SiloAddress,
        view: u64,
        grain: &GrainId,
        operation: Operation,
    ) -> Answer {
        if view.max(operation.view()) > self.facts.version() {
            return Answer::Busy;
        }
        if !self.facts.owned().covers(grain) {
            return Answer::WrongView;
        }
        if !self.may_serve(grain, operation) {
            return Answer::Busy;
        }
        if operation.registers().is_some() && !self.facts.is_host(&from) {
            return Answer::WrongView;
        }
        self.owner.serve(&self.facts, from, grain, operation)
    }

    /// Begins to answer a new owner's question.
    fn answer_question(&mut self, question: Question) {
        if self.answering.accepts(&self.facts, &question) {
            self.requester.disown_grants(&self.facts, &mut self.out, question.ranges());
            self.answering.start(&self.facts, &mut self.out, question);
        }
    }

    /// A host tells its activations: to a recovery of this silo, or to a collection.
    fn on_report(&mut self, from: SiloAddress, id: u64, batch: Batch) {
        let (facts, out) = (&self.facts, &mut self.out);
        let (view, ..) = batch.0;
        let told = if id == Message::UNASKED { Some(view) } else { self.collecting.asked_as(id) };
        match told {
            Some(view) => self.collecting.on_told(facts, out, from, view, batch),
            None => self.recoveries.on_report(facts, out, from, id, batch),
        }
    }

    /// A new owner waits for longer than it thinks it should.
    fn on_await(&mut self, from: SiloAddress, view: u64) {
        if self.lists.repeat(&self.facts, &mut self.out, from, view, false) {
            return;
        }
        // A view that is not installed here yet may still begin a collection.
        let known = self.collecting.collects(view) || view > self.facts.version();
        self.out.send(from, Message::Awaited { view, known });
    }

    /// A new owner wants what this silo had before `view`.
    pub(super) fn on_take(&mut self, from: SiloAddress, view: u64) {
        let (facts, out) = (&self.facts, &mut self.out);
        if !self.handover.take(facts, out, from, view)
            && !self.lists.repeat(facts, out, from, view, true)
        {
            out.send(from, Message::Unheld { view });
        }
    }

    /// Serves this silo's own commands that waited for an unlocking, in the order they were given.
    pub(super) fn settle_own(&mut self) {
        let may_serve = |grain: &GrainId, operation| self.may_serve(grain, operation);
        for id in self.requester.served_here(&self.facts, may_serve) {
            let (facts, me) = (&self.facts, self.facts.me());
            let serve = |grain: &GrainId, operation| self.owner.serve(facts, me, grain, operation);
            self.requester.settle(&mut self.out, id, serve);
        }
    }

    /// A silo has faded: its registrations go, and waiting requests are served.
    pub(super) fn fading_due(&mut self) {
        self.facts.forget_faded();
        self.owner.keep(&self.facts, None);
        self.recoveries.finish(&self.facts, &mut self.out);
        self.drain();
        self.settle_own();
    }
}
