//! Do the invariants bite? Each known bug is planted into every silo; the simulator has to find it, and the same
//! scenario without the bug has to pass.

use std::time::Duration;

use emmer_membership::planted::Bug;
use emmer_sim::net::{Direction, HostSet, Latency};
use emmer_sim::{Fault, Prepare, Profile, Scenario, Swarm, VirtualTime, run, run_prepared};

/// More seeds than any bug needs; each takes some milliseconds.
const SEEDS_MAX: u64 = 3_000;

/// How long a bug may take to be found.
const TIME_MAX: Duration = Duration::from_secs(60);

/// From a seed to a scenario.
type Class = fn(u64) -> Scenario;

/// The first seed that finds `bug` by one of `invariants`.
fn find(bug: Bug, class: Class, invariants: &[&str]) -> Option<u64> {
    let plant = Prepare::new(move |machine| machine.plant(bug));
    let started = std::time::Instant::now();
    for seed in 0..SEEDS_MAX {
        let scenario = class(seed);
        if let Some(violation) = run_prepared(&scenario, &plant).violation {
            let secs = started.elapsed().as_secs_f64();
            println!("{bug:?}: seed {seed} after {secs:.1} s: {violation}");
            if invariants.contains(&violation.invariant) {
                assert_eq!(run(&scenario).violation, None, "seed {seed} without {bug:?}");
                return Some(seed);
            }
        }
        if started.elapsed() > TIME_MAX {
            break;
        }
    }
    None
}

/// Anything may happen.
fn anything(seed: u64) -> Scenario {
    Swarm::default().scenario(seed)
}

fn at(millis: u64) -> VirtualTime {
    VirtualTime::from_millis(millis)
}

/// A quiet cluster of four to eight.
fn quiet(seed: u64, calm_at: u64) -> Scenario {
    let hosts = 4 + u32::try_from(seed % 5).unwrap_or(0);
    Scenario::calm(Profile::Default, hosts, seed).calm_at(at(calm_at), Duration::from_secs(300))
}

/// Two processes race for one endpoint, on a network on which messages take their time.
fn race(seed: u64) -> Scenario {
    let mut scenario = quiet(seed, 60_000);
    scenario.network.latency = Latency::even(Duration::from_millis(1), Duration::from_millis(120));
    for n in 0..8 {
        let start = 20_000 + n * 4_000;
        let gap = 5 + (seed * 7 + n * 13) % 150;
        scenario = scenario.at(at(start), Fault::Start(1)).at(at(start + gap), Fault::Start(1));
    }
    scenario
}

/// A host is cut off for a while early in a long outage of the store.
fn old_evidence(seed: u64) -> Scenario {
    let mut scenario = quiet(seed, 250_000).during(at(40_000), at(240_000), Fault::StoreOutage).during(
        at(42_000),
        at(50_000),
        cut(1),
    );
    scenario.config.death_vote_expiration_timeout = Duration::from_secs(8);
    scenario
}

fn cut(host: u32) -> Fault {
    Fault::Cut { inside: HostSet::from_iter([host]), direction: Direction::Both, flip: None }
}

/// Silos are told to leave while they are being declared dead.
fn leave_while_dying(seed: u64) -> Scenario {
    let mut scenario = quiet(seed, 60_000);
    scenario.network.latency = Latency::even(Duration::from_millis(1), Duration::from_millis(200));
    for n in 0..3 {
        let host = u32::try_from(n).unwrap_or(0);
        let start = 20_000 + n * 8_000;
        let told = start + 4_000 + (seed * 97 + n * 31) % 1_500;
        scenario = scenario
            .during(at(start), at(start + 5_500), Fault::Pause(host))
            .at(at(told), Fault::Leave(host));
    }
    scenario
}

/// One host pauses again and again for about as long as makes some of its monitors vote, but not enough; votes
/// expire in between.
fn almost_dead(seed: u64) -> Scenario {
    let mut scenario = quiet(seed, 270_000);
    scenario.config.death_vote_expiration_timeout = Duration::from_millis(6_500);
    scenario.config.vote_hold = Duration::ZERO;
    scenario.restart_after = Some(Duration::from_secs(1));
    for n in 0..8 {
        let start = 20_000 + n * 30_000 + (seed * 211 + n * 389) % 1_000;
        let length = 4_400 + (seed * 131 + n * 97) % 150;
        scenario = scenario.during(at(start), at(start + length), Fault::Pause(1));
    }
    scenario
}

/// The clocks of some hosts are an hour ahead while another host is lost.
fn wrong_clocks(seed: u64) -> Scenario {
    let mut scenario = quiet(seed, 40_000);
    for host in [0, 2] {
        scenario = scenario.during(at(20_000), at(900_000), Fault::StepClock { host, ms: 3_600_000 });
    }
    scenario.during(at(30_000), at(900_000), Fault::LoseHost(1)).calm_at(at(40_000), Duration::from_secs(120))
}

/// Several silos leave at once, each writing for itself: most of their commits are lost at first. Who does not try
/// again is found only by its monitors, after more than four seconds.
fn leave_together(seed: u64) -> Scenario {
    let mut scenario = quiet(seed, 30_000);
    scenario.config.batch_writes = false;
    for host in 0..4 {
        scenario = scenario.at(at(30_000), Fault::Stop(host));
    }
    scenario.calm_at(at(30_000), Duration::from_secs(4))
}

macro_rules! planted {
    ($($name:ident: $bug:ident in $class:ident violates $($invariant:literal)|+;)+) => {
        $(
            #[test]
            fn $name() {
                assert_ne!(find(Bug::$bug, $class, &[$($invariant),+]), None);
            }
        )+

        #[test]
        fn every_bug_is_looked_for() {
            let looked_for = [$(Bug::$bug),+];
            let left: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| !looked_for.contains(bug)).collect();
            assert_eq!(left, []);
        }
    };
}

planted! {
    vote_expiry_is_ignored: VoteExpiryIgnored in almost_dead violates "I6" | "I5";
    a_voter_is_counted_twice: VoterCountedTwice in anything violates "I6";
    anybody_votes: AnybodyVotes in anything violates "I6";
    one_vote_kills: OneVoteKills in anything violates "I6";
    an_unknown_commit_is_applied_twice: UnknownAppliedTwice in anything violates "I1" | "I3" | "I4";
    an_unknown_commit_is_taken_for_a_success: UnknownTakenForSuccess in anything violates "I2";
    its_own_cleaned_up_death_is_missed: OwnCleanedDeathMissed in anything violates "I7";
    its_own_death_is_ignored: OwnDeathIgnored in anything violates "I7";
    a_silo_is_resurrected_after_clean_up: ResurrectedAfterCleanup in anything violates "I3" | "I7";
    dead_is_not_final: DeadNotFinal in leave_while_dying violates "I3";
    a_torn_read_is_installed: TornReadInstalled in anything violates "I2";
    a_stale_read_is_installed: StaleReadInstalled in anything violates "I2";
    a_predecessor_is_not_killed: PredecessorNotKilled in anything violates "I4";
    a_successor_is_overlooked: SuccessorOverlooked in race violates "I3" | "I4" | "I5" | "I6";
    a_silo_is_active_without_connectivity: ActiveWithoutConnectivity in anything violates "J";
    old_evidence_is_used: OldEvidence in old_evidence violates "I5";
    a_delta_is_applied_over_a_gap: DeltaOverGap in anything violates "I2";
    the_fence_is_ignored: FenceIgnored in anything violates "I8";
    the_fence_trusts_old_echoes: FenceTrustsOldEchoes in anything violates "I8";
    a_wrong_clock_expires_votes: ClockJumpExpiresVotes in wrong_clocks violates "I10";
    there_is_no_anti_entropy: NoAntiEntropy in anything violates "I10";
    a_lost_commit_is_forgotten: LostCommitForgotten in leave_together violates "I10";
    a_delete_is_left_out_of_the_delta: DeleteLeftOutOfDelta in anything violates "I2";
}
