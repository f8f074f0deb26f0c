//! Runs a scenario under a stricter judge than the invariants: every pair of a Dead silo and a silo
//! that may grant its grains is checked before every event, newcomers included.

use emmer_core::SiloStatus;
use emmer_sim::process::Process;
use emmer_sim::{Fault, Scenario, VirtualTime, World};

/// A promise that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Breach {
    /// Name of the promise, in a word.
    pub(crate) kind: String,
    /// Time of the observation.
    #[expect(dead_code, reason = "told in the message of a failing test")]
    pub(crate) at: VirtualTime,
    /// Description of the observation.
    #[expect(dead_code, reason = "told in the message of a failing test")]
    pub(crate) what: String,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Judged {
    /// The first promise that was broken.
    pub(crate) breach: Option<Breach>,
    /// The trace, when asked for.
    pub(crate) lines: Vec<String>,
}

/// Time from which `granter` may grant the grains of `victim`; None when it may not.
fn may_grant_from(now: VirtualTime, granter: &Process, victim: &Process) -> Option<VirtualTime> {
    let machine =
        granter.machine.as_ref().filter(|machine| machine.status() == SiloStatus::Active)?;
    let view = machine.view();
    if view.version() < victim.death_version? {
        return None;
    }
    let until = machine
        .fading()
        .into_iter()
        .find(|(silo, _)| *silo == victim.address)
        .map(|(_, until)| until);
    let from = until.map_or(now, |until| granter.clock.when(until));
    Some(from.max(now).max(granter.paused_until))
}

/// Time until which `victim` may start turns if nothing else happens; None when it may not now.
fn runs_until(now: VirtualTime, victim: &Process) -> Option<VirtualTime> {
    let at = now.max(victim.paused_until);
    victim.would_run_turns(at).then(|| victim.turns_until().unwrap_or(VirtualTime::MAX))
}

/// The first moment at which a silo that is Dead may run turns that another silo may be granted.
fn overlap(world: &World) -> Option<(VirtualTime, String)> {
    let now = world.now();
    let mut first: Option<(VirtualTime, String)> = None;
    for victim in world.processes().iter().filter(|p| p.dead_at.is_some() && p.is_running()) {
        let Some(until) = runs_until(now, victim) else { continue };
        for granter in
            world.processes().iter().filter(|p| p.is_running() && p.address != victim.address)
        {
            let Some(from) = may_grant_from(now, granter, victim) else { continue };
            if from < until && first.as_ref().is_none_or(|(at, _)| from < *at) {
                let zombie = if granter.dead_at.is_some() { " (itself Dead)" } else { "" };
                let fenced = granter.machine.as_ref().is_some_and(|m| m.is_fenced());
                let what = format!(
                    "{} may run turns until {until} s, dead since {} s; {}{zombie}{} may grant its \
                     grains from {from} s",
                    victim.address,
                    victim.dead_at.unwrap_or_default(),
                    granter.address,
                    if fenced { " (fenced)" } else { "" },
                );
                first = Some((from, what));
            }
        }
    }
    first
}

/// Returns true if a silo that is Dead and may run turns knows of no other silo.
fn somebody_dead_feels_alone(world: &World) -> bool {
    let runs = |p: &&Process| p.dead_at.is_some() && runs_until(world.now(), p).is_some();
    world.processes().iter().filter(runs).any(|p| {
        p.machine.as_ref().is_some_and(|machine| {
            machine.view().members().iter().filter(|row| row.status != SiloStatus::Dead).count()
                <= 1
        })
    })
}

/// The hosts that a fault makes look ill to others, the store's troubles and false refusals apart.
pub(crate) fn ill_hosts(scenario: &Scenario) -> Vec<u32> {
    let mut ill: Vec<u32> = Vec::new();
    for step in &scenario.steps {
        match &step.fault {
            Fault::Cut { inside, .. } => ill.extend(inside.iter()),
            Fault::BreakLink { from, to } => ill.extend([*from, *to]),
            Fault::Kill(host)
            | Fault::KillUnread(host)
            | Fault::LoseHost(host)
            | Fault::Start(host)
            | Fault::Leave(host)
            | Fault::Stop(host)
            | Fault::Pause(host)
            | Fault::Suspend { host, .. }
            | Fault::Slow { host, .. }
            | Fault::Lossy { host, .. }
            | Fault::Delay { host, .. } => ill.push(*host),
            _ => {}
        }
    }
    ill.sort_unstable();
    ill.dedup();
    ill
}

fn breach(kind: &str, at: VirtualTime, what: String) -> Option<Breach> {
    Some(Breach { kind: kind.to_owned(), at, what })
}

/// Runs `scenario`.
pub(crate) fn judge(scenario: &Scenario, trace: bool) -> Judged {
    let mut world = World::new(scenario.clone(), trace);
    let found = run(&mut world, scenario);
    let alone = if somebody_dead_feels_alone(&world) { " alone" } else { "" };
    let (trace, _, _, violation) = world.into_parts();
    let mut found = violation
        .map(|v| Breach { kind: v.invariant.to_owned(), at: v.at, what: v.what })
        .or(found);
    if let Some(found) = found.as_mut().filter(|found| found.kind == "I8" || found.kind == "STRICT")
    {
        found.kind.push_str(alone);
    }
    Judged { breach: found, lines: trace.into_lines() }
}

fn run(world: &mut World, scenario: &Scenario) -> Option<Breach> {
    let restores = scenario.steps.iter().any(|step| matches!(step.fault, Fault::StoreForgets(_)));
    let quiet = scenario.network.loss == 0.0 && scenario.network.latency.tail == 0.0;
    let ill = ill_hosts(scenario);
    // With one ill host among three or more, only that host speaks against the others.
    let guarded = quiet && ill.len() <= 1 && scenario.hosts >= 3 && !restores;
    let fenced = !scenario.config.fence_timeout.is_zero();
    let mut due: Option<(VirtualTime, String)> = None;
    let mut version = 0;
    while world.step(scenario.calm_at) {
        if restores {
            continue;
        }
        if let Some((_, what)) = due.take().filter(|(from, _)| *from < world.now()) {
            return breach("STRICT", world.now(), what);
        }
        if fenced {
            due = overlap(world);
        }
        let newest = world.store().table.version().number;
        if guarded && newest != version {
            version = newest;
            let now = world.now();
            let table = &world.store().table;
            // The victim, and a third healthy silo that could have said no.
            let fit = world.processes().iter().filter(|p| {
                p.is_running()
                    && !ill.contains(&p.host)
                    && p.active_at.is_some()
                    && (p.dead_at == Some(now)
                        || table
                            .row(&p.address)
                            .is_some_and(|row| row.status == SiloStatus::Active))
            });
            let fit = fit.count();
            let wronged = world.processes().iter().find(|p| {
                p.dead_at == Some(world.now())
                    && fit >= 2
                    && p.active_at.is_some()
                    && p.is_running()
                    && !p.leaving
                    && !ill.contains(&p.host)
                    && world
                        .running_on(p.host)
                        .is_some_and(|n| world.processes()[n as usize].address == p.address)
            });
            if let Some(wronged) = wronged {
                let what =
                    format!("{} is healthy and was declared dead; ill: {ill:?}", wronged.address);
                return breach("HEALTHY", world.now(), what);
            }
        }
    }
    if world.violation().is_some() || scenario.liveness_bound.is_zero() {
        return None;
    }
    let look_every = std::time::Duration::from_millis(500);
    let until = scenario.calm_at + scenario.liveness_bound;
    if world.run_while(until, look_every, |world| world.is_whole() && agree(world)).is_none()
        && world.violation().is_none()
    {
        let why = world.why_not_whole().unwrap_or_else(|| "views differ from the table".to_owned());
        return breach("WHOLE", world.now(), why);
    }
    None
}

/// Returns true if every silo's view shows what the table shows.
fn agree(world: &World) -> bool {
    world.processes().iter().filter_map(|p| p.machine.as_ref()).all(|machine| {
        let view = machine.view();
        world.store().table.rows().all(|row| view.status_of(&row.address) == Some(row.status))
    })
}
