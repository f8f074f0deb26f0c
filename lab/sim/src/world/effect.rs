//! Carrying out what the machines ask for.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus};
use emmer_membership::{
    ConnectionEvent, DialId, DialOutcome, Effect, Message, OpId, TableRequest, TerminateReason,
    View,
};

use super::World;
use super::event::Event;
use crate::bytes;
use crate::grains::Packet;
use crate::invariants::Violation;
use crate::measure::Overrun;
use crate::net::{HostSet, Verdict};
use crate::process::Life;
use crate::table::{Author, Change};
use crate::time::VirtualTime;
use crate::trace::mix;

/// The share of a dead process's connections on which bytes lay unread: its kernel resets those.
const UNREAD_SHARE: f64 = 0.1;

/// Time for which a silo that is Dead in the view is still talked to, as by the runtime.
const FAREWELL: Duration = Duration::from_secs(2);

/// Last signs to peers of a process that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// It said goodbye.
    Goodbye,
    /// Its kernel ended its connections.
    Kernel,
    /// The kernel resets all its connections: bytes lay unread on them.
    Resets,
    /// Nothing: its host is gone.
    Silence,
}

impl World {
    /// Carries out one effect of the process `number`. True when the invariants want to look after
    /// this step.
    pub(super) fn carry_out(&mut self, number: u32, effect: Effect) -> bool {
        match effect {
            Effect::Send { to, message } => self.send(number, &to, message),
            Effect::Table { op, request } => self.ask_table(number, op, request),
            Effect::Dial { dial, to, timeout } => self.dial(number, dial, to, timeout),
            Effect::Watch(silos) => self.watch(number, &silos),
            // Connections of this world never fall silent.
            Effect::Renew(_) => {}
            Effect::Install(view) => {
                self.install(number, &view);
                return true;
            }
            Effect::Fence(closed) => {
                self.trace.event(self.now, 8, u64::from(number), u64::from(closed));
                self.measures.fences += u64::from(closed);
                let process = &mut self.processes[number as usize];
                if !closed && process.fence_closed {
                    self.sometimes.reach("a fence that closed and opened");
                }
                process.fence_closed = closed;
                process.fence_closes = closed;
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
        if matches!(message, Message::Ack { .. }) {
            self.check(|checks, facts| checks.on_answer(facts, from, to));
        }
        self.send_packet(from, to, Packet::Membership(message));
    }

    /// Sends over the silos' own connection. The runtime's messages go to the Dead as well: their
    /// connection ends a while after the view of their death.
    pub(super) fn send_packet(&mut self, from: u32, to: &SiloAddress, packet: Packet) {
        let Some(to) = self.process_of(to) else { return };
        if self.processes[to as usize].is_running() {
            self.processes[from as usize].connections.insert(to);
            if self.processes[from as usize].parted.contains(to) {
                self.part_later(from, to);
            }
        }
        let packet = if self.scenario.through_bytes { self.through_bytes(packet) } else { packet };
        let mut number = 0;
        if self.scenario.grains.is_some() {
            // The directory counts on the order of one connection, and on nothing that comes out of
            // an older one after that.
            let stream = self.processes[from as usize].streams.entry(to).or_default();
            stream.sent += 1;
            number = stream.sent;
        }
        self.transmit(from, to, 0, number, packet);
    }

    /// The packet as it comes out at the other end of a connection.
    fn through_bytes(&mut self, packet: Packet) -> Packet {
        let passed = match &packet {
            Packet::Membership(message) => bytes::through(message).map(Packet::Membership),
            Packet::Directory(message) => {
                bytes::through(&**message).map(|m| Packet::Directory(Box::new(m)))
            }
            Packet::Call(_)
            | Packet::Found { .. }
            | Packet::Arrive { .. }
            | Packet::MoveWord { .. } => return packet,
        };
        match passed {
            Ok(passed) => passed,
            Err(error) => {
                let what = format!("{packet:?} does not come out of its bytes: {error}");
                self.violated(Violation { invariant: "wire", at: self.now, what });
                packet
            }
        }
    }

    /// Ends the connection with a peer that is Dead, when it has had the time to be told so.
    fn part_later(&mut self, number: u32, peer: u32) {
        self.queue.push(self.now + FAREWELL, Event::Part { process: number, peer });
    }

    fn ask_table(&mut self, number: u32, op: OpId, request: TableRequest) {
        if self.trace.keeps_lines() {
            self.trace.line(self.now, format_args!("{number:>4} => {request:?}"));
        }
        self.processes[number as usize].asked += 1;
        let process = &self.processes[number as usize];
        let author = Author { process: number, wall: process.now(self.now).wall, at: self.now };
        self.ask(author, op, request);
    }

    fn dial(&mut self, number: u32, dial: DialId, to: SiloAddress, timeout: Duration) {
        self.measures.dials += 1;
        let process = &self.processes[number as usize];
        let (from_host, ready, deadline) =
            (process.host, process.io_at(self.now), self.now + timeout);
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
        process.hosted |=
            process.machine.as_ref().is_some_and(|m| m.status() == SiloStatus::Active);
        // Speed at which views reach living and undisturbed silos.
        if process.faulty_at.is_none() {
            self.measures.installed(self.now, view.version());
        }
        self.learns_of_deaths(number, view, previous);
        self.shell_installs(number, view);
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
        let (hosts, processes) = (&self.hosts, &self.processes);
        let runs = |row: &SiloEntry| {
            hosts
                .process_of(processes, &row.address)
                .is_some_and(|n| processes[n as usize].is_running())
        };
        self.sometimes.committed(record, processes[record.writer as usize].address, runs);
        let dead: Vec<u32> = record
            .changes
            .iter()
            .filter(|change| {
                change.after.as_ref().is_some_and(|row| row.status == SiloStatus::Dead)
            })
            .filter_map(|change| self.process_of(&change.address))
            .collect();
        self.note_overlooked();
        self.check(|checks, facts| checks.on_commit(facts));
        self.expect_spread(version);
        for victim in dead {
            let process = &mut self.processes[victim as usize];
            if process.dead_at.is_none() {
                (process.dead_at, process.death_version) = (Some(self.now), Some(version));
                let silo = process.address;
                if process.is_running() {
                    self.doomed.push(victim);
                    self.expect_end(victim);
                }
                self.truth.died(&silo);
            }
        }
    }

    /// Notes it when the newest commit makes a silo Active that has not heard an Active one.
    fn note_overlooked(&mut self) {
        let Some(record) = self.store.table.history().last().filter(|_| self.scenario.thorough)
        else {
            return;
        };
        let (hosts, processes) = (&self.hosts, &self.processes);
        let is_active = |row: &SiloEntry| row.status == SiloStatus::Active;
        let joined = |change: &&Change| {
            change.after.as_ref().is_some_and(is_active)
                && !change.before.as_ref().is_some_and(is_active)
        };
        let joiner = record.changes.iter().find(joined);
        let Some(joiner) = joiner.and_then(|joiner| hosts.process_of(processes, &joiner.address))
        else {
            return;
        };
        let joiner = (joiner, &processes[joiner as usize]);
        let overlooked = |row: &SiloEntry| {
            let number =
                hosts.process_of(processes, &row.address).filter(|number| *number != joiner.0);
            is_active(row) && number.is_some_and(|number| !joiner.1.has_heard(number))
        };
        if self.store.table.rows().any(overlooked) {
            self.sometimes.reach("a silo that was gone or stale overlooked by a joiner");
        }
    }

    /// Process `number` has installed `view`, and had `previous` before. It knows of the deaths in
    /// between, and grants the grains of those silos to others once they no longer count as fading.
    fn learns_of_deaths(&mut self, number: u32, view: &View, previous: u64) {
        if self.doomed.is_empty() {
            return;
        }
        for victim in self.doomed.clone() {
            let died = self.processes[victim as usize].death_version;
            let learns =
                died.is_some_and(|at| previous < at && at <= view.version()) && victim != number;
            if learns && self.processes[number as usize].parted.insert(victim) {
                self.part_later(number, victim);
            }
        }
        if self.scenario.config.fence_timeout.is_zero() {
            return;
        }
        let learner = &self.processes[number as usize];
        if view.status_of(&learner.address) != Some(SiloStatus::Active) {
            // A silo that is not Active owns no range, and grants nothing.
            return;
        }
        let fading = learner.machine.as_ref().map(|machine| machine.fading()).unwrap_or_default();
        let mut due = Vec::new();
        for victim in &self.doomed {
            let process = &self.processes[*victim as usize];
            let learns =
                process.death_version.is_some_and(|at| previous < at && at <= view.version());
            if learns && *victim != number {
                let until = fading
                    .iter()
                    .find(|(silo, _)| *silo == process.address)
                    .map(|(_, until)| *until);
                due.push((
                    *victim,
                    until.map_or(self.now, |until| learner.clock.when(until).max(self.now)),
                ));
            }
        }
        for (victim, at) in due {
            self.queue.push(at, Event::Granted { process: victim, by: number });
        }
    }

    /// From now on `by`, if it still runs, may grant a grain of `number` to another silo.
    pub(super) fn granted(&mut self, number: u32, by: u32) {
        let granter = &self.processes[by as usize];
        if !granter.is_running() || !self.processes[number as usize].is_running() {
            return;
        }
        if granter.paused_until > self.now {
            let at = granter.paused_until;
            self.queue.push(at, Event::Granted { process: number, by });
            return;
        }
        let process = &mut self.processes[number as usize];
        if process.granted_at.is_some() {
            return;
        }
        process.granted_at = Some(self.now);
        self.sometimes
            .reach("a silo that ran on when its grains could be granted, its fence closed");
        self.trace.event(self.now, 11, u64::from(number), u64::from(by));
        self.trace.line(self.now, format_args!("{by:>4} may grant the grains of {number}"));
        self.look_at_fence(number);
    }

    /// Looks at a silo whose grains may be granted to others: it may run no turn (invariant I8).
    pub(super) fn look_at_fence(&mut self, number: u32) {
        let process = &self.processes[number as usize];
        let Some(granted_at) = process.granted_at else { return };
        if !self.scenario.measure_overruns {
            self.check(|checks, facts| checks.on_granted(facts, number));
            return;
        }
        let at = self.now.max(process.paused_until);
        let open =
            process.would_run_turns(at).then(|| process.turns_until().unwrap_or(VirtualTime::MAX));
        let overrun =
            self.measures.overruns.entry(number).or_insert_with(|| Overrun::new(granted_at));
        overrun.look(self.now, open);
    }

    fn terminate(&mut self, number: u32, reason: TerminateReason) {
        self.trace.event(self.now, 12, u64::from(number), 0);
        self.trace.line(self.now, format_args!("{number:>4} ends: {reason}"));
        self.sometimes.ended(reason);
        self.check(|checks, facts| checks.on_end(facts, number, reason));
        let left = reason == TerminateReason::Left;
        let farewell = if left { Farewell::Goodbye } else { Farewell::Kernel };
        self.gone(number, Life::Ended(reason), farewell);
        self.measures.terminated(reason);
    }

    /// The process is over; its host's kernel closes its connections: in good order, or with a
    /// reset where bytes lay unread.
    pub(super) fn gone(&mut self, number: u32, life: Life, farewell: Farewell) {
        let process = &mut self.processes[number as usize];
        process.life = life;
        process.ended_at = Some(self.now);
        process.machine = None;
        if process.shell.take().is_some_and(|shell| shell.directory.is_recovering()) {
            self.sometimes.reach("a silo went while it took ranges over");
        }
        self.look_at_fence(number);
        self.doomed.retain(|doomed| *doomed != number);
        let process = &mut self.processes[number as usize];
        let peers = std::mem::take(&mut process.connections);
        let host = process.host;
        let mut told = HostSet::default();
        for peer in peers.iter() {
            if self.processes[peer as usize].is_running() {
                let event = match farewell {
                    Farewell::Silence => continue,
                    Farewell::Goodbye => ConnectionEvent::Goodbye,
                    Farewell::Resets => ConnectionEvent::Broken,
                    Farewell::Kernel if self.rng.chance(UNREAD_SHARE) => ConnectionEvent::Broken,
                    Farewell::Kernel => ConnectionEvent::Closed,
                };
                if event == ConnectionEvent::Closed {
                    told.insert(peer);
                }
                self.notify(peer, number, event);
            }
        }
        let in_order = matches!(farewell, Farewell::Kernel | Farewell::Resets);
        self.end_lifelines(number, in_order, &told);
        if let Some(after) = self.scenario.restart_after
            && life != Life::Ended(TerminateReason::Left)
        {
            self.queue.push(self.now + after, Event::Supervise { host });
        }
    }
}
