//! Message loss everywhere: wrong deaths in a long quiet run, and how much later a silent crash is
//! noticed.

use std::time::Duration;

use super::{Options, Times, settle, world};
use crate::net::Transport;
use crate::scenario::{Fault, Profile, Scenario, Step};
use crate::time::VirtualTime;
use emmer_report::{Cell, Goal, Report};

pub(super) fn run(options: &Options) -> Report {
    let silos = options.silos_or(100, 30);
    let seeds = options.seeds_or(3, 1);
    let losses: &[f64] =
        if options.quick { &[0.0, 0.01] } else { &[0.0, 0.001, 0.01, 0.05, 0.1, 0.2] };
    let quiet = Duration::from_secs(if options.quick { 120 } else { 1_800 });
    let columns = [
        "profile",
        "transport",
        "loss %",
        "silo-hours",
        "wrong deaths",
        "per 1000 silo-hours",
        "trials",
        "silent p50 s",
        "silent p99 s",
    ];
    let title =
        format!("Message loss on every link, {silos} silos, {seeds} seeds (emmer-lab sim loss)");
    let mut report = Report::new("loss", title, &columns);
    for profile in options.profiles_or(&[Profile::Default, Profile::Fast, Profile::Classic]) {
        for transport in [Transport::Datagram, Transport::Stream] {
            let name = if transport == Transport::Datagram { "datagram" } else { "stream" };
            let mut base = None;
            for &loss in losses {
                let seen = one(profile, transport, loss, silos, seeds, quiet);
                let rate = seen.wrong / seen.silo_hours * 1_000.0;
                let p99 = seen.times.at(0.99);
                if loss == 0.0 {
                    base = p99;
                } else if (loss - 0.01).abs() < 1e-9
                    && matches!(profile, Profile::Default | Profile::Fast)
                {
                    let ratio = base.and_then(|base| p99.map(|p99| p99 / base));
                    report.goals.push(Goal::at_most(
                        format!("{profile}, {name}, 1 %: p99 beside no loss"),
                        ratio,
                        1.25,
                    ));
                    let what = format!(
                        "{profile}, {name}, 1 %: wrong deaths in {:.0} silo-hours",
                        seen.silo_hours
                    );
                    report.goals.push(Goal::at_most(what, seen.wrong, 0.0));
                }
                report.push(vec![
                    profile.name().into(),
                    name.into(),
                    Cell::Number(loss * 100.0, 1),
                    Cell::Number(seen.silo_hours, 1),
                    Cell::Number(seen.wrong, 0),
                    Cell::Number(rate, 2),
                    seen.times.len().into(),
                    seen.times.cell(0.5),
                    seen.times.cell(0.99),
                ]);
            }
        }
    }
    report
}

struct Seen {
    wrong: f64,
    silo_hours: f64,
    times: Times,
}

fn one(
    profile: Profile,
    transport: Transport,
    loss: f64,
    silos: u32,
    seeds: u32,
    quiet: Duration,
) -> Seen {
    let mut seen = Seen { wrong: 0.0, silo_hours: 0.0, times: Times::default() };
    for seed in 0..u64::from(seeds) {
        let mut scenario = Scenario::calm(profile, silos, seed);
        scenario.network.transport = transport;
        scenario.network.loss = loss;
        // A silo that was wrongly killed comes back: the cluster stays as large as it is.
        scenario.restart_after = Some(Duration::from_secs(1));
        let mut world = world(scenario);
        settle(&mut world, Duration::from_secs(10), Duration::from_secs(900));
        world.reset_measures();
        let from = world.now();
        world.run_until(from + quiet);
        #[expect(clippy::cast_precision_loss, reason = "a few deaths")]
        let wrong = world.measures().wrong_deaths() as f64;
        seen.wrong += wrong;
        seen.silo_hours += f64::from(silos) * world.now().since(from).as_secs_f64() / 3_600.0;
        for host in (0..silos).step_by(4).take(8) {
            let Some(number) = world.running_on(host) else { continue };
            let silo = world.processes()[number as usize].address;
            let at = world.now() + Duration::from_micros(u64::from(host) * 7_919);
            world.inject(Step { at, until: VirtualTime::MAX, fault: Fault::LoseHost(host) });
            let limit = at + Duration::from_secs(200);
            world.run_while(limit, Duration::from_millis(100), |w| {
                w.measures().death_of(&silo).is_some()
            });
            if let Some(died) = world.measures().death_of(&silo) {
                seen.times.push(died.since(at));
            }
        }
    }
    seen
}
