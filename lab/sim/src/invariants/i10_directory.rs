//! I10 of the directory: it ends. No command waits longer than its rules explain. Once the cluster
//! is whole, within a bound, no silo is recovering, no command waits, no range is locked, every
//! registration has an activation and every activation its registration; then a call of every grain
//! succeeds.

use std::time::Duration;

use emmer_core::SiloStatus;
use emmer_directory::Registration;

use crate::grains::{Activation, Asked, GrainTruth, Phase};
use crate::invariants::{Facts, Violation};
use crate::process::{LATE, Process, Stream};

/// Time after the last fault that may have lost messages for which a command may still wait: a lost
/// question is repeated after a second, a silent collector is given up after two, and a lost
/// request is repeated after one.
const AFTER_LOSS: Duration = Duration::from_millis(4_500);

/// Time limit of a command while no message is lost. The collector of a loss asks after 200 ms. A
/// new owner whose collector knows nothing asks after a second. A requester repeats a "Busy"
/// request after at most 100 ms.
const WITHOUT_LOSS: Duration = Duration::from_millis(1_600);

/// A loss older than this is over: nothing that was on its way then is still on its way.
const LOSS_IS_OVER: Duration = Duration::from_secs(20);

/// Maximum one-way trips of messages, in sequence, until a command is answered.
const TRIPS: u32 = 12;

/// Time after the last of the silos has faded and the cluster is whole within which the directory
/// comes to rest, besides the time of grains that are being deactivated.
pub(crate) const REST_WITHIN: Duration = Duration::from_secs(30);

/// Time that the calls of every grain may take then.
pub(crate) const CALLS_WITHIN: Duration = Duration::from_secs(5);

/// A command that was given to the directory of `number` has ended now, or is still waiting: was it
/// longer than explained? Counted from the last moment at which a view, a fault, a silo that faded,
/// or a list of registrations that went on gave it a reason to wait.
pub(crate) fn check_prompt(
    facts: &Facts<'_>,
    truth: &GrainTruth,
    number: u32,
    asked: &Asked,
) -> Result<(), Violation> {
    let me = &facts.processes[number as usize];
    let network = &facts.scenario.network;
    let travel = (network.latency.min + network.latency.spread) * TRIPS;
    let since = asked.at.max(truth.unsettled_at).max(truth.listed_at);
    if facts.now.since(since) <= WITHOUT_LOSS + travel || facts.noisy || me.dead_at.is_some() {
        return Ok(());
    }
    if views_are_on_their_way(facts) {
        return Ok(());
    }
    let Some(lost_at) = facts.trouble_at.max(truth.messages_lost_at) else {
        return too_long(facts, number, since);
    };
    let since = since.max(lost_at);
    let streams = facts.processes.iter().flat_map(|p| p.streams.values());
    let held = streams.map(|stream| stream.held_until.max(stream.late_until)).max();
    if held.is_some_and(|held| held + AFTER_LOSS >= facts.now) {
        // Messages behind a lost segment are sent again at growing intervals. Those that a slow
        // link held up come late.
        return Ok(());
    }
    let bound = if asked.at.since(lost_at) > LOSS_IS_OVER { WITHOUT_LOSS } else { AFTER_LOSS };
    if facts.now.since(since) <= bound + travel { Ok(()) } else { too_long(facts, number, since) }
}

/// Returns true if a process is gone that the table does not call Dead yet, or has not heard of the
/// newest version.
fn views_are_on_their_way(facts: &Facts<'_>) -> bool {
    let version = facts.table.version().number;
    let gone = |silo| facts.process(silo).is_none_or(|process| !process.is_running());
    facts.table.rows().any(|row| row.status != SiloStatus::Dead && gone(&row.address))
        || facts.processes.iter().any(|process| process.is_running() && process.installed < version)
}

fn too_long(
    facts: &Facts<'_>,
    number: u32,
    since: crate::time::VirtualTime,
) -> Result<(), Violation> {
    let me = facts.processes[number as usize].address;
    let what = format!("a command of the directory at {me} waits since {since} s without a reason");
    Err(facts.violated("I10", what))
}

/// Reason why the directories are not at rest, in words; none when they are.
pub(crate) fn why_not_at_rest(facts: &Facts<'_>, truth: &GrainTruth) -> Option<String> {
    if truth.calls_until > facts.now {
        return Some("a call is on its way".to_owned());
    }
    for process in facts.processes.iter().filter(|process| process.is_running()) {
        let Some(shell) = process.shell.as_deref() else { continue };
        if let Some(what) = shell.directory.unfinished() {
            return Some(format!("{what} at {}", process.address));
        }
        if !shell.waiting.is_empty() {
            return Some(format!("a command at {} was never answered", process.address));
        }
        if process.io_at(facts.now) > facts.now {
            return Some(format!("{} is still blocked", process.address));
        }
        let late = |stream: &&Stream| {
            stream.held_until > facts.now || stream.last_arrival > facts.now + LATE
        };
        if process.streams.values().any(|stream| late(&stream)) {
            return Some(format!("what {} sent is sent again later", process.address));
        }
        let busy =
            |held: &Activation| held.phase != Phase::Idle || held.closing || !held.queue.is_empty();
        if let Some((grain, held)) = shell.catalog.iter().find(|(_, held)| busy(held)) {
            return Some(format!("grain {grain} is {:?} at {}", held.phase, process.address));
        }
        if !shell.held.is_empty() || !shell.blocked.is_empty() {
            return Some(format!("a call waits for the fence of {}", process.address));
        }
    }
    if !facts.processes.iter().any(Process::is_running) {
        return None;
    }
    (0u32..).zip(&truth.ids).find_map(|(grain, id)| {
        let running = || facts.processes.iter().filter_map(|p| Some((p, p.shell.as_deref()?)));
        let entry = running()
            .find(|(_, shell)| shell.directory.owned_ranges().covers(id))
            .map(|(owner, shell)| (owner.address, shell.directory.entry(id)));
        let Some((owner, entry)) = entry else { return Some(format!("nobody owns grain {grain}")) };
        let mut there = running().filter_map(|(process, shell)| {
            let activation = shell.catalog.get(&grain).filter(|held| held.registered)?;
            Some(Registration { silo: process.address, activation: activation.number })
        });
        match (entry, there.next(), there.next()) {
            (_, Some(one), Some(two)) => Some(format!("grain {grain} is {one} and {two}")),
            (entry, there, _) if entry == there => None,
            (Some(entry), None, _) if truth.may_be_left(grain, entry, facts.now) => None,
            (entry, there, _) => {
                Some(format!("{owner} has {entry:?} for grain {grain}, which is {there:?}"))
            }
        }
    })
}
