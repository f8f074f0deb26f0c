//! Carrying out what the machines ask for.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloStatus};
use emmer_membership::{
    ConnectionEvent, DialId, DialOutcome, Effect, Message, OpId, TableRequest, TerminateReason, View,
};

use super::World;
use super::event::Event;
use crate::net::Verdict;
use crate::process::Life;
use crate::table::Author;
use crate::trace::mix;

impl World {
    /// Carries out one effect of the process `number`. True when the invariants want to look after this step.
    pub(super) fn carry_out(&mut self, number: u32, effect: Effect) -> bool {
        match effect {
            Effect::Send { to, message } => self.send(number, &to, message),
            Effect::Table { op, request } => self.ask_table(number, op, request),
            Effect::Dial { dial, to, timeout } => self.dial(number, dial, to, timeout),
            Effect::Install(view) => {
                self.install(number, &view);
                return true;
            }
            Effect::Fence(closed) => {
                self.trace.event(self.now, 8, u64::from(number), u64::from(closed));
                self.measures.fences += u64::from(closed);
                let what = if closed { "closes" } else { "opens" };
                self.trace.line(self.now, format_args!("{number:>4} fence {what}"));
            }
            Effect::Event(noted) => self.note(number, &noted),
            Effect::Terminate(reason) => {
                self.terminate(number, reason);
                return true;
            }
        }
        false
    }

    fn send(&mut self, from: u32, to: &SiloAddress, message: Message) {
        self.measures.sent(from, &message);
        let Some(to) = self.process_of(to) else { return };
        if self.processes[to as usize].is_running() {
            self.processes[from as usize].connections.insert(to);
        }
        self.transmit(from, to, 0, message);
    }

    fn ask_table(&mut self, number: u32, op: OpId, request: TableRequest) {
        if self.trace.keeps_lines() {
            self.trace.line(self.now, format_args!("{number:>4} => {request:?}"));
        }
        let process = &self.processes[number as usize];
        let author = Author { process: number, wall: process.now(self.now).wall };
        let at = process.io_at(self.now) + self.store.travel();
        self.queue.push(at, Event::Request { author, op, request, late: false });
    }

    fn dial(&mut self, number: u32, dial: DialId, to: SiloAddress, timeout: Duration) {
        self.measures.dials += 1;
        let process = &self.processes[number as usize];
        let (from_host, ready, deadline) = (process.host, process.io_at(self.now), self.now + timeout);
        let host = self.hosts.host_of(&to).filter(|host| self.hosts.is_up(*host));
        let verdict = match host {
            Some(host) => self.network.judge(from_host, host, self.now),
            None => Verdict::Lost,
        };
        let event = match (verdict, host) {
            (Verdict::Arrives(delay), Some(host)) if ready + delay < deadline => {
                let event = Event::Dialled { process: number, dial, to, host, deadline };
                self.queue.push(ready + delay, event);
                return;
            }
            _ => Event::DialEnds { process: number, dial, to, outcome: DialOutcome::NoAnswer },
        };
        self.queue.push(deadline, event);
    }

    fn install(&mut self, number: u32, view: &Arc<View>) {
        self.trace.event(self.now, 9, u64::from(number), mix(view.version(), view.digest()));
        if self.trace.keeps_lines() {
            let (version, active) = (view.version(), view.active_count());
            let text = format_args!("{number:>4} installs version {version} with {active} active");
            self.trace.line(self.now, text);
        }
        let previous = self.processes[number as usize].installed;
        self.check(|checks, facts| checks.on_install(facts, number, view, previous));
        let process = &mut self.processes[number as usize];
        process.installed = view.version();
        process.seen_itself |= view.get(&process.address).is_some();
        // How fast views reach the living: not those that are dead in it, or disturbed themselves.
        if process.faulty_at.is_none() {
            self.measures.installed(self.now, view.version());
        }
    }

    /// A commit was applied: the newest record of the table's history is new.
    pub(super) fn committed(&mut self) {
        let Some(record) = self.store.table.history().last() else { return };
        let version = self.store.table.version().number;
        self.trace.event(self.now, 10, u64::from(record.writer), record.content);
        if self.trace.keeps_lines() {
            let mut text = format!("{:>4} writes version {version}:", record.writer);
            for change in &record.changes {
                match &change.after {
                    Some(row) => {
                        let votes = row.votes.len();
                        text.push_str(&format!(" {}={}/{votes}", change.address, row.status));
                    }
                    None => text.push_str(&format!(" {} deleted", change.address)),
                }
            }
            self.trace.line(self.now, format_args!("{text}"));
        }
        for change in &record.changes {
            let Some(after) = &change.after else { continue };
            let number = self.hosts.process_of(&self.processes, &change.address);
            if let Some(number) = number
                && after.status == SiloStatus::Active
            {
                self.processes[number as usize].active_at.get_or_insert(self.now);
            }
            let before = change.before.as_ref().map(|row| row.status);
            let process = number.map(|number| (number, &self.processes[number as usize]));
            self.measures.changed(self.now, before, after, process);
        }
        self.measures.committed_at.push(self.now);
        let watch: Vec<u32> = record
            .changes
            .iter()
            .filter(|change| change.after.as_ref().is_some_and(|row| row.status == SiloStatus::Dead))
            .filter_map(|change| self.process_of(&change.address))
            .filter(|victim| self.processes[*victim as usize].is_running())
            .collect();
        let alone: Vec<bool> = watch
            .iter()
            .map(|victim| record.was_alone(&self.store.table, &self.processes[*victim as usize].address))
            .collect();
        self.check(|checks, facts| checks.on_commit(facts));
        for (victim, alone) in watch.into_iter().zip(alone) {
            let process = &mut self.processes[victim as usize];
            if process.dead_at.is_none() {
                (process.dead_at, process.died_alone) = (Some(self.now), alone);
            }
            if let Some(at) = self.checks.fence_due(self.now, process.died_alone) {
                self.queue.push(at, Event::Watch { process: victim });
            }
        }
    }

    /// Looks whether a silo that was declared dead still runs turns, and when to look again.
    pub(super) fn watch(&mut self, number: u32) {
        let process = &self.processes[number as usize];
        if !process.is_running() {
            return;
        }
        if process.paused_until > self.now {
            // Just behind everything that bursts in when the pause ends.
            let at = process.paused_until + Duration::from_nanos(1);
            self.queue.push(at, Event::Watch { process: number });
            return;
        }
        self.trace.event(self.now, 11, u64::from(number), 0);
        self.check(|checks, facts| checks.on_watch(facts, number));
        let again = self.now + Duration::from_millis(500);
        self.queue.push(again, Event::Watch { process: number });
    }

    fn terminate(&mut self, number: u32, reason: TerminateReason) {
        self.trace.event(self.now, 12, u64::from(number), 0);
        self.trace.line(self.now, format_args!("{number:>4} ends: {reason}"));
        let left = reason == TerminateReason::Left;
        self.gone(
            number,
            Life::Ended(reason),
            if left { ConnectionEvent::Goodbye } else { ConnectionEvent::Broken },
        );
        self.measures.terminated(reason);
    }

    /// The process is over; its host's kernel closes its connections.
    pub(super) fn gone(&mut self, number: u32, life: Life, farewell: ConnectionEvent) {
        let process = &mut self.processes[number as usize];
        process.life = life;
        process.ended_at = Some(self.now);
        process.machine = None;
        let peers = std::mem::take(&mut process.connections);
        let host = process.host;
        for peer in peers.iter() {
            if self.processes[peer as usize].is_running() {
                self.notify(peer, number, farewell);
            }
        }
        if let Some(after) = self.scenario.restart_after
            && life != Life::Ended(TerminateReason::Left)
        {
            self.queue.push(self.now + after, Event::Supervise { host });
        }
    }
}
