//! Starting, killing and disturbing processes and what lies between them.

use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus};
use emmer_membership::{ConnectionEvent, Membership};

use super::effect::Farewell;
use super::event::Event;
use super::look::Look;
use super::{Prepare, World};
use crate::calm::Alone;
use crate::host::Hosts;
use crate::net::{Direction, HostSet};
use crate::process::{Life, Process, Slow};
use crate::scenario::{Fault, Step};
use crate::time::{Clock, VirtualTime};
use crate::trace::mix;

impl World {
    /// The identity of a process that starts on `host`. The shell takes the microseconds of the
    /// wall clock, and never less than the table has for its endpoint. So a clock that was set back
    /// can give an epoch below that of a process without a row; but no two processes have the same.
    fn new_address(&self, host: u32, clock: &Clock) -> SiloAddress {
        let endpoint = Hosts::endpoint(host);
        let mut address = SiloAddress::new(endpoint, clock.epoch());
        let rows = self.store.table.rows().filter(|row| row.address.same_endpoint(&address));
        let known = rows.map(|row| row.address.epoch()).max();
        address =
            SiloAddress::new(endpoint, address.epoch().max(known.map_or(0, |epoch| epoch + 1)));
        let others = self.hosts.incarnations(host);
        while others.iter().any(|n| self.processes[*n as usize].address == address) {
            address = SiloAddress::new(endpoint, address.epoch() + 1);
        }
        address
    }

    /// A new process on `host` joins the cluster.
    pub(super) fn start(&mut self, host: u32) {
        if !self.hosts.is_up(host) {
            return;
        }
        if !self.store.is_cut_off(host) {
            // A process makes missing tables before it joins.
            self.store.table.dropped = false;
        }
        let single =
            self.running_on(host).is_none().then_some(Alone::Start).filter(|_| self.is_calm());
        self.calm.disturb(self.now);
        self.expect(single);
        let number = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        let incarnation = self.hosts.incarnations(host).len() as u64;
        let seed = mix(mix(self.scenario.seed, u64::from(host)), incarnation);
        let clock = self.clock_of(host, seed);
        let address = self.new_address(host, &clock);
        self.trace.event(self.now, 14, u64::from(number), address.epoch());
        self.trace.line(self.now, format_args!("{number:>4} starts as {address}"));
        let now = clock.now(self.now);
        let mut entry = SiloEntry::new(address, SiloStatus::Created, now.wall);
        // Equal host names mean that the two processes run under one kernel, which gives an
        // `ip:port` to one of them at a time.
        let shared =
            self.hosts.incarnations(host).iter().any(|n| self.processes[*n as usize].is_running());
        entry.host_name =
            if shared { format!("host-{host}-{number}") } else { format!("host-{host}") }.into();
        let machine = match Membership::new(self.scenario.config.clone(), entry, seed, now) {
            Ok(mut machine) => {
                if let Some(memo) = &self.memo {
                    machine.share(memo.clone());
                }
                if let Some(Prepare(prepare)) = &self.prepare {
                    prepare(&mut machine);
                }
                Some(Box::new(machine))
            }
            Err(error) => {
                self.trace.line(self.now, format_args!("{number:>4} refuses its options: {error}"));
                None
            }
        };
        let life = if machine.is_some() { Life::Running } else { Life::Killed };
        let mut process = Process::new(address, host, clock, self.now, life, machine);
        process.shell = self.new_shell(address, seed, now.mono).filter(|_| life == Life::Running);
        self.processes.push(process);
        self.hosts.add(host, number, address);
        if let Some(period) = self.scenario.health_period {
            let at = self.now + self.rng.duration_below(period);
            self.queue.push(at, Event::Health { process: number });
        }
        if let Some(period) = self.scenario.traffic_period {
            let at = self.now + self.rng.duration_below(period);
            self.queue.push(at, Event::Traffic { process: number });
        }
        self.start_callers(number);
        let longest = self.scenario.config.max_join_attempt_time * 11 / 10 + Duration::from_secs(1);
        self.queue.push(self.now + longest, Event::Look(Look::Joined { process: number }));
        self.drive(number, Membership::join);
    }

    /// A host's clock is wrong in the same way for all of its processes.
    fn clock_of(&self, host: u32, seed: u64) -> Clock {
        let model = self.scenario.clocks;
        let own = mix(mix(self.scenario.seed, 0xc10c), u64::from(host));
        let within = |bits: u64, max: u32| {
            let span = 2 * u64::from(max) + 1;
            (bits % span).cast_signed() - i64::from(max)
        };
        let drift = within(own >> 7, model.drift_ppm_max);
        let offset =
            within(mix(own, 1) >> 7, model.offset_ms_max) + self.clock_steps[host as usize];
        // Up to some months of uptime: instants of different processes never look alike.
        Clock::new(self.now, mix(seed, 2) >> 10, drift, offset)
    }

    pub(super) fn supervise(&mut self, host: u32) {
        if self.running_on(host).is_none() && self.hosts.is_up(host) {
            self.start(host);
        }
    }

    /// The safety phase is over: random faults stop; open windows were planned to close now.
    pub(super) fn calm(&mut self) {
        self.trace.line(self.now, format_args!("---- calm ----"));
        self.store.calm();
        self.network.calm();
        self.trouble_at = self.trouble_at.max((self.open_troubles > 0).then_some(self.now));
        if self.scenario.network.loss > 0.0 || self.scenario.network.latency.tail > 0.0 {
            self.open_troubles = self.open_troubles.saturating_sub(1);
        }
    }

    pub(super) fn begin(&mut self, step: u32) {
        let Step { until, fault, .. } = self.scenario.steps[step as usize].clone();
        self.trace.event(self.now, 15, u64::from(step), 0);
        self.trace.line(self.now, format_args!("---- begins: {fault:?}"));
        self.trouble(&fault, true);
        let single = self.single(&fault);
        self.calm.step(self.now, &fault, true);
        self.expect(single);
        match fault {
            Fault::Start(host) => self.start(host),
            Fault::Leave(host) => self.leave(host),
            Fault::Stop(host) => self.stop(host),
            Fault::Kill(host) => self.kill(host, Farewell::Kernel),
            Fault::KillUnread(host) => self.kill(host, Farewell::Resets),
            Fault::LoseHost(host) => self.lose_host(host),
            Fault::Pause(host) => self.pause(host, until),
            Fault::Suspend { host, clock_stops } => self.suspend(step, host, until, clock_stops),
            Fault::Slow { host, block, run } => {
                self.slow(host, Slow { since: self.now, block, run });
            }
            Fault::StepClock { host, ms } => self.step_clock(host, ms),
            Fault::Cut { inside, direction, flip } => {
                self.network.cut(step, inside, direction, flip, self.now);
            }
            Fault::BreakLink { from, to } => self.network.break_link(step, from, to),
            Fault::Lossy { host, loss_in, loss_out } => {
                self.network.set_loss(host, loss_in, loss_out);
            }
            Fault::Delay { host, extra } => self.network.set_extra_delay(host, extra),
            Fault::Refuse(host) => {
                self.network.refuse(step, host);
                self.reset_connections(host);
            }
            Fault::Reset(host) => self.reset_connections(host),
            Fault::StoreForgets(commits) => self.store_forgets(commits),
            Fault::StoreEmptied => {
                self.store_forgets(u32::MAX);
                self.store.table.dropped = true;
                self.went_back = true;
                self.sometimes.reach("a table that was dropped");
            }
            Fault::StoreOutage => self.store.fail(),
            Fault::StoreCut(hosts) => self.store.cut(step, hosts),
        }
    }

    pub(super) fn end(&mut self, step: u32) {
        let fault = self.scenario.steps[step as usize].fault.clone();
        self.trace.event(self.now, 16, u64::from(step), 0);
        self.trace.line(self.now, format_args!("---- ends: {fault:?}"));
        self.trouble(&fault, false);
        self.calm.step(self.now, &fault, false);
        match fault {
            Fault::LoseHost(host) => self.hosts.set_up(host, true),
            Fault::StepClock { host, ms } => self.step_clock(host, -ms),
            Fault::Slow { host, .. } => {
                for number in self.hosts.incarnations(host).to_vec() {
                    self.processes[number as usize].slow = None;
                    self.resume(number);
                }
            }
            Fault::Cut { .. }
            | Fault::BreakLink { .. }
            | Fault::Suspend { .. }
            | Fault::Refuse(_) => {
                self.network.heal(step);
            }
            Fault::Lossy { host, .. } => self.network.set_loss(host, 0.0, 0.0),
            Fault::Delay { host, .. } => self.network.set_extra_delay(host, Duration::ZERO),
            Fault::StoreOutage => self.store.recover(),
            Fault::StoreCut(_) => self.store.heal(step),
            Fault::Pause(_)
            | Fault::Start(_)
            | Fault::Leave(_)
            | Fault::Stop(_)
            | Fault::Kill(_)
            | Fault::KillUnread(_)
            | Fault::Reset(_)
            | Fault::StoreForgets(_)
            | Fault::StoreEmptied => {}
        }
    }

    /// Keeps book of when anything but the store gave a living silo a reason to look dead.
    fn trouble(&mut self, fault: &Fault, begins: bool) {
        let hosts: HostSet = match fault {
            Fault::Pause(host)
            | Fault::Slow { host, .. }
            | Fault::Suspend { host, .. }
            | Fault::Lossy { host, .. }
            | Fault::Delay { host, .. } => HostSet::from_iter([*host]),
            Fault::BreakLink { from, to } => HostSet::from_iter([*from, *to]),
            // Both sides of a cut miss the other one.
            Fault::Cut { .. } => (0..self.scenario.hosts).collect(),
            _ => return,
        };
        if let Fault::Cut { inside, direction: Direction::Both, flip: None } = fault
            && let (Some(host), 1) = (inside.iter().next(), inside.iter().count())
        {
            let troubles = &mut self.host_troubles[host as usize];
            troubles.exiled_at = (begins && troubles.open == 0).then_some(self.now);
        }
        if begins {
            self.open_troubles += 1;
        } else {
            self.open_troubles = self.open_troubles.saturating_sub(1);
        }
        self.trouble_at = Some(self.now);
        for host in hosts.iter() {
            let Some(troubles) = self.host_troubles.get_mut(host as usize) else { continue };
            troubles.open =
                if begins { troubles.open + 1 } else { troubles.open.saturating_sub(1) };
            troubles.at = Some(self.now);
            let disturbed = !matches!(fault, Fault::Cut { inside, .. } if !inside.contains(host));
            if let Some(number) = self.running_on(host).filter(|_| disturbed) {
                self.processes[number as usize].faulty_at = Some(self.now);
            }
        }
    }

    fn leave(&mut self, host: u32) {
        if let Some(number) = self.running_on(host) {
            self.processes[number as usize].leaving = true;
            let after = self.rng.duration_below(Duration::from_secs(2));
            self.queue.push(self.now + after, Event::FinishLeave { process: number });
            self.drive(number, Membership::leave);
        }
    }

    fn stop(&mut self, host: u32) {
        if let Some(number) = self.running_on(host) {
            self.processes[number as usize].leaving = true;
            let after = self.rng.duration_below(Duration::from_millis(100));
            self.queue.push(self.now + after, Event::FinishLeave { process: number });
            self.drive(number, Membership::stop);
        }
    }

    fn kill(&mut self, host: u32, farewell: Farewell) {
        if let Some(number) = self.running_on(host) {
            self.trace.line(self.now, format_args!("{number:>4} is killed"));
            self.gone(number, Life::Killed, farewell);
        }
    }

    fn lose_host(&mut self, host: u32) {
        // Of two processes that ran at once both are gone.
        for number in self.hosts.incarnations(host).to_vec() {
            if self.processes[number as usize].is_running() {
                self.gone(number, Life::Killed, Farewell::Silence);
            }
        }
        self.hosts.set_up(host, false);
    }

    fn pause(&mut self, host: u32, until: VirtualTime) {
        if let Some(number) = self.running_on(host) {
            let process = &mut self.processes[number as usize];
            process.paused_until = process.paused_until.max(until);
            process.stalled = process.stalled.max(until.since(self.now));
        }
    }

    /// Something on the way resets every connection of the host's process; both ends hear of it.
    fn reset_connections(&mut self, host: u32) {
        let Some(number) = self.running_on(host) else { return };
        self.reset_lifelines(number);
        let peers = std::mem::take(&mut self.processes[number as usize].connections);
        for peer in peers.iter().filter(|peer| *peer != number) {
            if self.scenario.resets_lose {
                self.processes[number as usize].lose_stream(peer);
                self.processes[peer as usize].lose_stream(number);
                self.truth.messages_lost_at = Some(self.now);
            }
            self.processes[number as usize].renew_stream(peer);
            if self.processes[peer as usize].is_running() {
                self.processes[peer as usize].connections.remove(number);
                self.processes[peer as usize].renew_stream(number);
                self.notify(peer, number, ConnectionEvent::Broken);
                self.notify(number, peer, ConnectionEvent::Broken);
                self.way_broke(peer, number);
                self.way_broke(number, peer);
            }
        }
    }

    /// The store falls back. Facts of the lost commits no longer hold.
    fn store_forgets(&mut self, commits: u32) {
        if self.store.table.fall_back(self.now, commits as usize) == 0 {
            return;
        }
        let number = self.store.table.version().number;
        self.went_back = true;
        self.sometimes.reach("a table that went back");
        self.measures.committed_at.truncate(usize::try_from(number).unwrap_or(usize::MAX));
        for process in &mut self.processes {
            if process.death_version.is_some_and(|at| at > number) {
                (process.dead_at, process.death_version, process.granted_at) = (None, None, None);
            }
        }
        let processes = &self.processes;
        self.doomed.retain(|victim| processes[*victim as usize].dead_at.is_some());
    }

    /// The machine sleeps: its processes stand still, and nothing goes in or out.
    fn suspend(&mut self, step: u32, host: u32, until: VirtualTime, clock_stops: bool) {
        self.network.cut(step, HostSet::from_iter([host]), Direction::Both, None, self.now);
        for number in self.hosts.incarnations(host) {
            let process = &mut self.processes[*number as usize];
            if process.is_running() && process.paused_until <= self.now {
                process.paused_until = until;
                let stalled = if clock_stops { Duration::ZERO } else { until.since(self.now) };
                process.stalled = process.stalled.max(stalled);
                if clock_stops {
                    process.clock.sleep(self.now, until);
                }
            }
        }
    }

    /// Every process of the host has the host's clock.
    fn step_clock(&mut self, host: u32, ms: i64) {
        self.clock_steps[host as usize] += ms;
        for number in self.hosts.incarnations(host) {
            self.processes[*number as usize].clock.step_wall(ms);
        }
    }

    fn slow(&mut self, host: u32, slow: Slow) {
        if let Some(number) = self.running_on(host) {
            self.processes[number as usize].slow = Some(slow);
            // Events that wait for another stall wait for this one now.
            self.resume(number);
        }
    }
}
