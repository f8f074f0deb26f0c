//! A scenario: everything that determines a run, as plain data.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use emmer_membership::Config;

use crate::grains::{GrainLoad, MoveBug};
use crate::net::{Direction, HostSet, NetworkModel};
use crate::store::StoreModel;
use crate::time::VirtualTime;

/// A named parameter set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The numbers and rules of the original's description to the letter.
    Classic,
    /// Ours.
    Default,
    /// Ours, for networks where pauses above a second do not happen.
    Fast,
    /// The original's current parameters, for comparison.
    Orleans2026,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 4] = [Self::Classic, Self::Default, Self::Fast, Self::Orleans2026];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Default => "default",
            Self::Fast => "fast",
            Self::Orleans2026 => "orleans-2026",
        }
    }

    /// Its parameters.
    pub fn config(self) -> Config {
        match self {
            Self::Classic => Config::classic(),
            Self::Default => Config::default(),
            Self::Fast => Config::fast(),
            Self::Orleans2026 => Config::orleans_2026(),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseProfileError(String);

impl fmt::Display for ParseProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a profile: expected classic, default, fast or orleans-2026", self.0)
    }
}

impl std::error::Error for ParseProfileError {}

impl FromStr for Profile {
    type Err = ParseProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == text)
            .ok_or_else(|| ParseProfileError(text.chars().take(40).collect()))
    }
}

/// Something that happens to the world. Hosts are numbered from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A new process starts on the host, whatever runs there already.
    Start(u32),
    /// The host's process leaves in good order.
    Leave(u32),
    /// The host's process is asked to stop in haste.
    Stop(u32),
    /// The host's process dies; the host stays up and refuses connections (kill -9).
    Kill(u32),
    /// Kills the process, with unread bytes in all its connections: its kernel resets them. Its
    /// lifelines end in good order.
    KillUnread(u32),
    /// The host vanishes with everything on it (power loss). At the end of the step it is up again,
    /// empty.
    LoseHost(u32),
    /// The process stands still, its sockets stay open (SIGSTOP, a collector's pause); then
    /// everything that came in meanwhile bursts in.
    Pause(u32),
    /// The machine is suspended: nothing on it runs, its kernel answers no packet.
    Suspend {
        /// Number of the host.
        host: u32,
        /// True if the monotonic clock of its processes stands still meanwhile.
        clock_stops: bool,
    },
    /// The process's IO blocks for `block`, runs for `run`, and so on; its timers run all the while
    /// (Lifeguard's anomaly).
    Slow {
        /// Number of the host.
        host: u32,
        /// Time for which IO stands still.
        block: Duration,
        /// Time for which it runs in between.
        run: Duration,
    },
    /// The wall clock of the host's process is stepped, and stepped back at the end of the step.
    StepClock {
        /// Number of the host.
        host: u32,
        /// By how much, backwards when below zero.
        ms: i64,
    },
    /// The hosts are cut off from the others.
    Cut {
        /// Hosts inside.
        inside: HostSet,
        /// Direction of the cut.
        direction: Direction,
        /// On for this long, off for as long, and so on.
        flip: Option<Duration>,
    },
    /// One directed link is dead.
    BreakLink {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
    },
    /// The host's links lose messages.
    Lossy {
        /// Number of the host.
        host: u32,
        /// The share of incoming messages lost.
        loss_in: f64,
        /// The share of outgoing messages lost.
        loss_out: f64,
    },
    /// Everything in and out of the host takes longer.
    Delay {
        /// Number of the host.
        host: u32,
        /// By how much, each way.
        extra: Duration,
    },
    /// Something on the way refuses every new connection to the host, as a firewall does, and
    /// resets those that there are.
    Refuse(u32),
    /// Every connection of the host's process is reset, once.
    Reset(u32),
    /// The store loses its latest commits, which it had acknowledged.
    StoreForgets(u32),
    /// The store loses the table, and answers that it has none until a process starts.
    StoreEmptied,
    /// The store answers no request.
    StoreOutage,
    /// The store answers all hosts but these.
    StoreCut(HostSet),
}

impl Fault {
    /// Returns true if it lasts, and ends at the step's end.
    pub const fn lasts(&self) -> bool {
        !matches!(
            self,
            Self::Start(_)
                | Self::Leave(_)
                | Self::Stop(_)
                | Self::Kill(_)
                | Self::KillUnread(_)
                | Self::Reset(_)
                | Self::StoreForgets(_)
                | Self::StoreEmptied
        )
    }
}

impl Fault {
    /// The greatest number of a host it is about; 0 when about none.
    pub fn host_max(&self) -> u32 {
        match self {
            Self::Start(host)
            | Self::Leave(host)
            | Self::Stop(host)
            | Self::Kill(host)
            | Self::KillUnread(host)
            | Self::LoseHost(host)
            | Self::Pause(host)
            | Self::Refuse(host)
            | Self::Reset(host)
            | Self::Slow { host, .. }
            | Self::Suspend { host, .. }
            | Self::StepClock { host, .. }
            | Self::Lossy { host, .. }
            | Self::Delay { host, .. } => *host,
            Self::BreakLink { from, to } => *from.max(to),
            Self::Cut { inside: hosts, .. } | Self::StoreCut(hosts) => {
                hosts.iter().last().unwrap_or(0)
            }
            Self::StoreOutage | Self::StoreForgets(_) | Self::StoreEmptied => 0,
        }
    }
}

/// When something happens, and until when.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When it begins.
    pub at: VirtualTime,
    /// When it ends, if it lasts.
    pub until: VirtualTime,
    /// Fault of this step.
    pub fault: Fault,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fault.lasts() {
            write!(f, "{} to {} s: {:?}", self.at, self.until, self.fault)
        } else {
            write!(f, "{} s: {:?}", self.at, self.fault)
        }
    }
}

/// Errors of the clocks of processes. Each process draws its own within these bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockModel {
    /// The most a wall clock is off, either way.
    pub offset_ms_max: u32,
    /// The most a clock runs too fast or too slow, in parts per million.
    pub drift_ppm_max: u32,
}

/// Everything that determines a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed of every random choice during the run.
    pub seed: u64,
    /// The silos' parameters.
    pub config: Config,
    /// Number of hosts.
    pub hosts: u32,
    /// The hosts with a process at the beginning start one within this time, evenly spread at
    /// random.
    pub start_within: Duration,
    /// Number of hosts that have a process at the beginning.
    pub start_hosts: u32,
    /// The healthy network.
    pub network: NetworkModel,
    /// The store.
    pub store: StoreModel,
    /// The clocks.
    pub clocks: ClockModel,
    /// Faults and commands, in any order.
    pub steps: Vec<Step>,
    /// A supervisor starts a new process this long after one ended in any way but a leave. None: no
    /// process does.
    pub restart_after: Option<Duration>,
    /// Interval at which a process measures its health; none: never.
    pub health_period: Option<Duration>,
    /// Interval at which application bytes flow between silos that have a connection; none: never.
    pub traffic_period: Option<Duration>,
    /// When the safety phase ends: every window is closed and every random fault is over by then.
    pub calm_at: VirtualTime,
    /// Time that the cluster may take after that to be whole again (invariant I10). Zero: there is
    /// no liveness phase.
    pub liveness_bound: Duration,
    /// Check everything, also what costs time in proportion to the cluster's size at each view. For
    /// small clusters.
    pub thorough: bool,
    /// Grains that are called; none: the silos have no directory.
    pub grains: Option<GrainLoad>,
    /// True if packets on a reset connection are lost, in worlds with grains.
    pub resets_lose: bool,
    /// A planted bug, for tests: the shell does not tell the directory which silos fade.
    pub fading_forgotten: bool,
    /// A planted bug of moves, for tests.
    pub move_bug: Option<MoveBug>,
    /// A planted bug, for tests: turns continue without a check of the fence.
    pub fence_not_asked: bool,
    /// Pass every message through its bytes.
    pub through_bytes: bool,
    /// Estimate the bytes of each message.
    pub measure_bytes: bool,
    /// Measure for how long silos break I8 (`Measures::overruns`) instead of stopping at the first
    /// that does.
    pub measure_overruns: bool,
}

impl Scenario {
    /// `hosts` silos with `profile`'s parameters on perfect machines; nothing happens for a minute
    /// after the start.
    pub fn calm(profile: Profile, hosts: u32, seed: u64) -> Self {
        Self {
            seed,
            config: profile.config(),
            hosts,
            start_within: Duration::from_secs(1),
            start_hosts: hosts,
            network: NetworkModel::default(),
            store: StoreModel::default(),
            clocks: ClockModel::default(),
            steps: Vec::new(),
            restart_after: None,
            health_period: None,
            traffic_period: None,
            calm_at: VirtualTime::from_secs(60),
            liveness_bound: Duration::from_secs(600),
            thorough: hosts <= 64,
            grains: None,
            resets_lose: false,
            fading_forgotten: false,
            move_bug: None,
            fence_not_asked: false,
            through_bytes: false,
            measure_bytes: false,
            measure_overruns: false,
        }
    }

    /// Adds something that happens at once.
    #[must_use]
    pub fn at(mut self, at: VirtualTime, fault: Fault) -> Self {
        self.steps.push(Step { at, until: at, fault });
        self
    }

    /// Adds something that lasts.
    #[must_use]
    pub fn during(mut self, at: VirtualTime, until: VirtualTime, fault: Fault) -> Self {
        self.steps.push(Step { at, until, fault });
        self
    }

    /// Ends the safety phase at `at`, with `bound` for the liveness phase.
    #[must_use]
    pub const fn calm_at(mut self, at: VirtualTime, bound: Duration) -> Self {
        self.calm_at = at;
        self.liveness_bound = bound;
        self
    }
}
