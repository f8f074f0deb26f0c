//! Next events.

use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_membership::{
    ConnectionEvent, DialId, DialOutcome, HealthSample, Message, OpId, TableOutcome, TableRequest,
};

use super::World;
use super::look::Look;
use super::shell::GrainEvent;
use super::shown::{Brief, Shown};
use crate::grains::Packet;
use crate::invariants::Violation;
use crate::net::{RETRANSMIT_FIRST, RETRANSMITS_MAX, Transport, Verdict};
use crate::process::{LATE, Life};
use crate::store::Answer;
use crate::table::Author;
use crate::time::VirtualTime;

/// Number of times a machine may ask to be woken again at the same moment before that counts as
/// spinning.
const TIMER_SPINS_MAX: u32 = 1_000;

/// Received bytes are reported to the membership machine this often per peer, not for every read,
/// as by the runtime.
const HEARD_EVERY: Duration = Duration::from_millis(100);

/// An event in the queue. Processes and hosts are meant by number.
#[derive(Debug)]
pub(super) enum Event {
    /// A process starts on the host.
    Start { host: u32 },
    /// The supervisor of the host looks whether its process still runs.
    Supervise { host: u32 },
    /// A step of the scenario begins.
    StepBegins(u32),
    /// A step of the scenario ends.
    StepEnds(u32),
    /// The safety phase is over.
    Calm,
    /// The process's deadline.
    Timer { process: u32 },
    /// The process's IO runs again: what waited for it continues.
    Resume { process: u32 },
    /// The process's IO sends a request to the store.
    Ask { author: Author, op: OpId, request: TableRequest },
    /// A packet is handed to the network (again, after `tries` retransmissions).
    Transmit { from: u32, to: u32, tries: u8, number: u64, packet: Packet },
    /// A packet arrives.
    Deliver { from: u32, to: u32, number: u64, packet: Packet },
    /// Something happens to the grains of the process.
    Grain { process: u32, event: GrainEvent },
    /// The process ends its connection with `peer`, which it knows to be Dead, with a goodbye.
    Part { process: u32, peer: u32 },
    /// A request arrives at the store.
    Request { author: Author, op: OpId, request: TableRequest, late: bool },
    /// The store's answer arrives.
    Reply { process: u32, op: OpId, outcome: TableOutcome },
    /// A connection attempt arrives at the host of `to`.
    Dialled { process: u32, dial: DialId, to: SiloAddress, host: u32, deadline: VirtualTime },
    /// A connection attempt has ended.
    DialEnds { process: u32, dial: DialId, to: SiloAddress, outcome: DialOutcome },
    /// The process notices something about its connection with `peer`.
    Noticed { process: u32, peer: u32, event: ConnectionEvent },
    /// The process dials `peer` for a lifeline; the pause after that is for the next attempt.
    Lifeline { process: u32, peer: u32, pause: Duration },
    /// The process measures itself.
    Health { process: u32 },
    /// Application bytes flow on the process's connections.
    Traffic { process: u32 },
    /// The host of a leaving silo has finished its turns.
    FinishLeave { process: u32 },
    /// `by` may grant a grain of `process`, a silo that is Dead and still runs, to another silo
    /// from now on.
    Granted { process: u32, by: u32 },
    /// The time has come to look at something.
    Look(Look),
}

impl World {
    pub(super) fn dispatch(&mut self, event: Event) {
        match event {
            Event::Start { host } => self.start(host),
            Event::Supervise { host } => self.supervise(host),
            Event::StepBegins(step) => self.begin(step),
            Event::StepEnds(step) => self.end(step),
            Event::Calm => self.calm(),
            Event::Timer { process } => self.timer(process),
            Event::Resume { process } => self.resume(process),
            Event::Ask { author, op, request } => self.ask(author, op, request),
            Event::Transmit { from, to, tries, number, packet } => {
                self.transmit(from, to, tries, number, packet);
            }
            Event::Deliver { from, to, number, packet } => self.deliver(from, to, number, packet),
            Event::Grain { process, event } => self.grain_event(process, event),
            Event::Part { process, peer } => self.part(process, peer),
            Event::Request { author, op, request, late } => {
                self.request(author, op, &request, late);
            }
            Event::Reply { process, op, outcome } => self.reply(process, op, outcome),
            Event::Dialled { process, dial, to, host, deadline } => {
                self.dialled(process, dial, to, host, deadline);
            }
            Event::DialEnds { process, dial, to, outcome } => {
                self.dial_ends(process, dial, to, outcome);
            }
            Event::Noticed { process, peer, event } => self.noticed(process, peer, event),
            Event::Lifeline { process, peer, pause } => self.lifeline(process, peer, pause),
            Event::Health { process } => self.health(process),
            Event::Traffic { process } => self.traffic(process),
            Event::FinishLeave { process } => self.finish_leave(process),
            Event::Granted { process, by } => self.granted(process, by),
            Event::Look(look) => self.look(look),
        }
    }

    /// The shell shuts the fence, waits for the code of grains that runs, and then asks for the
    /// silo's own death, as the runtime does.
    fn finish_leave(&mut self, process: u32) {
        if let Some(until) = self.shut_turns(process) {
            self.queue.push(until, Event::FinishLeave { process });
            return;
        }
        self.trace.event(self.now, 13, u64::from(process), 0);
        self.drive(process, |machine, now| machine.finish_leave(now));
    }

    fn timer(&mut self, number: u32) {
        let now = self.now;
        let process = &mut self.processes[number as usize];
        if process.timer_at != now || !process.is_running() {
            return;
        }
        if process.paused_until > now {
            let late = process.paused_until.since(now);
            process.stalled = process.stalled.max(late);
            process.timer_at = process.paused_until;
            self.queue.push(process.timer_at, Event::Timer { process: number });
            return;
        }
        process.timer_at = VirtualTime::MAX;
        let local = process.now(now).mono;
        let Some(machine) = process.machine.as_ref() else { return };
        if machine.poll_timeout().is_some_and(|deadline| deadline <= local) {
            self.trace.event(now, 1, u64::from(number), 0);
            self.drive(number, |machine, now| machine.handle_timeout(now));
            self.guard_against_spinning(number);
        } else {
            self.arm(number);
        }
    }

    fn guard_against_spinning(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        if process.timer_at > self.now {
            process.timer_spins = 0;
            return;
        }
        process.timer_spins += 1;
        if process.timer_spins > TIMER_SPINS_MAX && self.violation.is_none() {
            let what =
                format!("{} asks to be woken over and over at the same moment", process.address);
            self.violation = Some(Violation { invariant: "progress", at: self.now, what });
        }
    }

    pub(super) fn transmit(&mut self, from: u32, to: u32, tries: u8, number: u64, packet: Packet) {
        let now = self.now;
        let (sender, receiver) = (&self.processes[from as usize], &self.processes[to as usize]);
        if !sender.is_running() {
            return;
        }
        let ready = sender.io_at(now);
        if ready > now {
            self.wait_for_io(from, ready, Event::Transmit { from, to, tries, number, packet });
            return;
        }
        let (from_host, to_host) = (sender.host, receiver.host);
        let stream = self.network.transport() == Transport::Stream;
        if stream && tries == 0 {
            let held =
                sender.streams.get(&to).map_or(VirtualTime::ZERO, |stream| stream.held_until);
            if held > now {
                self.queue.push(held, Event::Transmit { from, to, tries, number, packet });
                return;
            }
        }
        let verdict = if self.hosts.is_up(to_host) {
            self.network.judge(from_host, to_host, now)
        } else {
            Verdict::Lost
        };
        match verdict {
            Verdict::Arrives(delay) => {
                let mut at = now + delay;
                if stream {
                    at = self.in_order(from, to, at);
                }
                if matches!(packet, Packet::Call(_)) {
                    self.truth.calls_until = self.truth.calls_until.max(at);
                }
                if tries == 0
                    && matches!(packet, Packet::Membership(_))
                    && self.network.duplicates()
                {
                    self.sometimes.reach("a membership message that comes twice");
                    let (again, packet) = (at + delay, packet.clone());
                    self.queue.push(again, Event::Deliver { from, to, number, packet });
                }
                self.queue.push(at, Event::Deliver { from, to, number, packet });
            }
            Verdict::Lost if stream => self.retransmit(from, to, tries, number, packet),
            Verdict::Lost => self.measures.messages_lost += 1,
        }
    }

    /// Arrival time of a message on a stream: not before the message before it. In large clusters,
    /// where remembering this for every pair would cost more than the rest of the run, only a
    /// connection that lost something keeps its order.
    fn in_order(&mut self, from: u32, to: u32, at: VirtualTime) -> VirtualTime {
        let streams = &mut self.processes[from as usize].streams;
        let stream = if self.scenario.thorough || self.scenario.grains.is_some() {
            streams.entry(to).or_default()
        } else {
            let Some(stream) = streams.get_mut(&to) else { return at };
            stream
        };
        stream.last_arrival = stream.last_arrival.max(at);
        if stream.last_arrival > self.now + LATE {
            stream.late_until = stream.last_arrival;
        }
        stream.last_arrival
    }

    fn retransmit(&mut self, from: u32, to: u32, tries: u8, number: u64, packet: Packet) {
        if tries >= RETRANSMITS_MAX {
            self.measures.messages_lost += 1;
            self.processes[from as usize].renew_stream(to);
            if self.processes[from as usize].connections.remove(to) {
                let event = ConnectionEvent::Broken;
                self.queue.push(self.now, Event::Noticed { process: from, peer: to, event });
            }
            return;
        }
        let at = self.now + RETRANSMIT_FIRST * (1 << tries);
        let stream = self.processes[from as usize].streams.entry(to).or_default();
        stream.held_until = stream.held_until.max(at);
        self.queue.push(at, Event::Transmit { from, to, tries: tries + 1, number, packet });
    }

    fn deliver(&mut self, from: u32, to: u32, number: u64, packet: Packet) {
        let Some(ready) = self.receptive_at(to) else {
            self.refuse_message(from, to);
            return;
        };
        if ready > self.now {
            self.wait_for_io(to, ready, Event::Deliver { from, to, number, packet });
            return;
        }
        if number > 0 {
            let stream = self.processes[from as usize].streams.entry(to).or_default();
            if number < stream.delivered {
                self.measures.messages_lost += 1;
                return;
            }
            stream.delivered = number;
        }
        self.trace.event(self.now, 2, u64::from(to), u64::from(from));
        if self.trace.keeps_lines() {
            self.trace.line(self.now, format_args!("{to:>4} <- {from:<4} {}", Shown(&packet)));
        }
        let address = self.processes[from as usize].address;
        let receiver = &mut self.processes[to as usize];
        if matches!(packet, Packet::Membership(Message::Ack { .. })) {
            receiver.answered.insert(from);
            receiver.answered_at.get_or_insert(self.now);
        }
        // A connection is known to both of its ends.
        receiver.connections.insert(from);
        self.bytes_from(to, from, address);
        match packet {
            Packet::Membership(message) => {
                self.measures.delivered(to, &message, self.scenario.measure_bytes);
                self.sometimes.delivered(&message);
                self.drive(to, |machine, now| machine.handle_message(now, address, message));
            }
            Packet::Directory(message) => self.directory_message(to, address, *message),
            Packet::Call(call) => self.call_arrives(to, call),
            Packet::Found { grain, at } => self.found_arrives(to, grain, at),
            Packet::Arrive { grain, memory, instead } => {
                self.grain_arrives(to, grain, memory, instead);
            }
            Packet::MoveWord { grain, instead, word } => self.move_word(to, grain, instead, word),
        }
    }

    /// Bytes came in over the connection with `from`: the machine hears of it, but not for every
    /// read. In worlds without grains only `traffic` tells it.
    fn bytes_from(&mut self, to: u32, from: u32, address: SiloAddress) {
        if self.scenario.grains.is_none() {
            return;
        }
        let heard = self.processes[to as usize].heard_at.entry(from).or_default();
        if *heard == VirtualTime::ZERO || self.now.since(*heard) >= HEARD_EVERY {
            *heard = self.now;
            self.drive(to, |machine, now| {
                machine.handle_connection(now, address, ConnectionEvent::Heard);
            });
        }
    }

    /// The silo has told its peer for long enough that it is Dead.
    fn part(&mut self, number: u32, peer: u32) {
        if self.processes[number as usize].is_running()
            && self.processes[number as usize].connections.remove(peer)
        {
            self.trace.event(self.now, 17, u64::from(number), u64::from(peer));
            self.processes[number as usize].renew_stream(peer);
            self.processes[peer as usize].connections.remove(number);
            self.notify(peer, number, ConnectionEvent::Goodbye);
        }
    }

    /// The process is gone and its host is up: the connection is reset.
    fn refuse_message(&mut self, from: u32, to: u32) {
        let host = self.processes[to as usize].host;
        if self.hosts.is_up(host) && self.processes[from as usize].connections.remove(to) {
            let event = ConnectionEvent::Broken;
            self.notify(from, to, event);
        }
    }

    /// Lets `process` notice `event` about its connection with `peer`, if a packet gets through.
    pub(super) fn notify(&mut self, process: u32, peer: u32, event: ConnectionEvent) {
        let (to, from) =
            (self.processes[process as usize].host, self.processes[peer as usize].host);
        let delay = match self.network.judge(from, to, self.now) {
            Verdict::Arrives(delay) => delay,
            // A lost FIN is sent again; across a cut it stays lost.
            Verdict::Lost if !self.network.is_cut(from, to, self.now) => RETRANSMIT_FIRST,
            Verdict::Lost => return,
        };
        self.queue.push(self.now + delay, Event::Noticed { process, peer, event });
    }

    fn request(&mut self, author: Author, op: OpId, request: &TableRequest, late: bool) {
        let number = author.process;
        self.trace.event(self.now, 3, u64::from(number), op.0);
        let host = self.processes[number as usize].host;
        match self.store.serve(self.now, author, host, request, late) {
            Answer::Reply { outcome, after, committed } => {
                if committed {
                    self.committed();
                    if late {
                        self.look_at_late(number, op);
                    }
                }
                if !late {
                    let at = self.now + after;
                    self.queue.push(at, Event::Reply { process: number, op, outcome });
                }
            }
            Answer::Silence { committed } => {
                self.sometimes.reach("a store request that is never answered");
                if committed {
                    self.committed();
                }
            }
            Answer::Late { report_after, arrive_after, request } => {
                let unknowns = self.processes[number as usize].unknowns;
                self.late.insert((number, op), (self.now, unknowns));
                let (report, arrive) = (self.now + report_after, self.now + arrive_after);
                self.queue.push(
                    report,
                    Event::Reply { process: number, op, outcome: TableOutcome::Unknown },
                );
                self.queue.push(arrive, Event::Request { author, op, request, late: true });
            }
            Answer::Malformed => {
                let writer = self.processes[number as usize].address;
                let what =
                    format!("{writer} sent a commit without rows or with more than a store takes");
                self.violation.get_or_insert(Violation { invariant: "I1", at: self.now, what });
            }
        }
    }

    fn reply(&mut self, number: u32, op: OpId, outcome: TableOutcome) {
        let Some(ready) = self.receptive_at(number) else { return };
        if ready > self.now {
            self.wait_for_io(number, ready, Event::Reply { process: number, op, outcome });
            return;
        }
        self.trace.event(self.now, 4, u64::from(number), op.0);
        self.processes[number as usize].unknowns += u32::from(outcome == TableOutcome::Unknown);
        if self.trace.keeps_lines() {
            self.trace.line(self.now, format_args!("{number:>4} <= {}", Brief(&outcome)));
        }
        self.drive(number, |machine, now| machine.handle_table(now, op, outcome));
    }

    fn dialled(
        &mut self,
        number: u32,
        dial: DialId,
        to: SiloAddress,
        host: u32,
        deadline: VirtualTime,
    ) {
        let found = self.running_on(host);
        let dialler = self.processes[number as usize].host;
        let answer = match found {
            Some(_) if dialler != host && self.network.refuses(host) => {
                self.sometimes.reach("a dial to a living silo is refused");
                (self.now, DialOutcome::Refused)
            }
            Some(found) => {
                let process = &self.processes[found as usize];
                let ready = process.io_at(self.now);
                let outcome = if process.address == to {
                    DialOutcome::Answered
                } else {
                    DialOutcome::OtherEpoch(process.address)
                };
                (ready, outcome)
            }
            None => (self.now, DialOutcome::Refused),
        };
        let (at, outcome) = match self.network.judge(host, dialler, self.now) {
            Verdict::Arrives(delay) if answer.0 + delay < deadline => (answer.0 + delay, answer.1),
            _ => (deadline, DialOutcome::NoAnswer),
        };
        self.queue.push(at, Event::DialEnds { process: number, dial, to, outcome });
    }

    fn dial_ends(&mut self, number: u32, dial: DialId, to: SiloAddress, outcome: DialOutcome) {
        let Some(ready) = self.receptive_at(number) else { return };
        if ready > self.now {
            self.wait_for_io(number, ready, Event::DialEnds { process: number, dial, to, outcome });
            return;
        }
        self.trace.event(self.now, 5, u64::from(number), dial.0);
        if self.trace.keeps_lines() {
            self.trace.line(self.now, format_args!("{number:>4} dial {to} {outcome:?}"));
        }
        if outcome == DialOutcome::Answered
            && let Some(peer) = self.process_of(&to)
        {
            self.processes[number as usize].dialled.insert(peer);
            self.processes[peer as usize].reached |= peer != number;
        }
        self.drive(number, |machine, now| machine.handle_dial(now, dial, outcome));
    }

    fn noticed(&mut self, number: u32, peer: u32, event: ConnectionEvent) {
        let Some(ready) = self.receptive_at(number) else { return };
        if ready > self.now {
            self.wait_for_io(number, ready, Event::Noticed { process: number, peer, event });
            return;
        }
        self.trace.event(self.now, 6, u64::from(number), u64::from(peer));
        if self.trace.keeps_lines() && event != ConnectionEvent::Heard {
            self.trace.line(self.now, format_args!("{number:>4} {event:?} {peer}"));
        }
        let address = self.processes[peer as usize].address;
        if event != ConnectionEvent::Heard {
            self.forget_locations(number, peer);
        }
        self.drive(number, |machine, now| machine.handle_connection(now, address, event));
    }

    fn health(&mut self, number: u32) {
        let Some(period) = self.scenario.health_period else { return };
        let now = self.now;
        let process = &mut self.processes[number as usize];
        if process.life != Life::Running {
            return;
        }
        if process.paused_until > now {
            let late = process.paused_until.since(now);
            process.stalled = process.stalled.max(late);
            self.queue.push(process.paused_until, Event::Health { process: number });
            return;
        }
        let delay = std::mem::replace(&mut process.stalled, Duration::ZERO);
        let sample = HealthSample { scheduler_delay: delay, timer_delay: delay };
        self.trace.event(now, 7, u64::from(number), crate::time::nanos(delay));
        self.queue.push(now + period, Event::Health { process: number });
        self.drive(number, |machine, now| machine.handle_health(now, sample));
    }

    /// Every peer that the process has a connection with hears from it.
    fn traffic(&mut self, number: u32) {
        let Some(period) = self.scenario.traffic_period else { return };
        let process = &self.processes[number as usize];
        if process.life != Life::Running {
            return;
        }
        self.queue.push(self.now + period, Event::Traffic { process: number });
        if process.io_at(self.now) > self.now {
            return;
        }
        let peers: Vec<u32> = process.connections.iter().collect();
        for peer in peers {
            self.notify(peer, number, ConnectionEvent::Heard);
        }
    }
}
