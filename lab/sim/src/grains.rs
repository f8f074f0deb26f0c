//! Grains in the world: the memory of one silo's shell around its directory, and the truth.
//!
//! The shell itself is `world/shell/`: it does what `emmer-runtime` does around the same machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use emmer_core::{GrainId, GrainTypeId, SiloAddress};
use emmer_directory::{Config, Departure, Directory, Message as Told, Registration, Token, Word};
use emmer_membership::Message;
use emmer_placement::PlacementTable;

use crate::time::VirtualTime;

/// Number of times a call is passed on, at most (`Limits::forwards_max`).
pub const FORWARDS_MAX: u8 = 4;

/// Number of calls that wait for one activation; one more fails.
pub const QUEUE_MAX: usize = 32;

/// Number of calls that wait for a fence to open on one silo; one more fails.
pub const HELD_MAX: usize = 64;

/// Number of times a registration is tried again over one that an earlier activation of the same
/// silo left behind.
pub const STALE_SELF_RETRIES: u8 = 3;

/// Load of calls to grains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrainLoad {
    /// Number of grains.
    pub grains: u32,
    /// Interval at which each silo calls one, on average.
    pub call_every: Duration,
    /// Number of calls that each silo makes right after it learned of a death, and of any other
    /// view.
    pub burst: u32,
    /// The longest wait of a turn between two polls.
    pub suspend_max: Duration,
    /// Time for which a grain lies idle before it is deactivated, at most.
    pub idle_max: Duration,
    /// Chance in percent that a grain moves to another silo after a turn.
    pub move_percent: u8,
    /// The directory's parameters.
    pub directory: Config,
}

/// A planted bug of a move, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveBug {
    /// The source reports its registration after it has sent the memory.
    Reported,
    /// The source runs turns after it has sent the memory.
    RunsOn,
    /// The source takes a grain back without asking when its target is silent.
    UnaskedReturn,
    /// The source takes a grain back under the number that its target may still replace.
    OldNumber,
    /// The memory that is sent misses the last turn.
    StaleMemory,
}

/// Memory of a grain: the life in which it grew, and the number of its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Number of the life; 0 before it begins.
    pub life: u64,
    /// Number of turns in it.
    pub turns: u64,
}

/// The registration that another one replaces, and the version of its silo's view.
pub type From = (Registration, u64);

impl GrainLoad {
    /// The grain with this number.
    pub fn grain(number: u32) -> GrainId {
        GrainId::new(GrainTypeId::of("sim"), u64::from(number))
    }
}

/// Message between two silos.
#[derive(Clone, Debug)]
pub enum Packet {
    /// Between the membership machines.
    Membership(Message),
    /// Between the directories.
    Directory(Box<emmer_directory::Message>),
    /// A call of a grain.
    Call(Call),
    /// The answer to a call: where the grain is.
    Found {
        /// Number of the grain.
        grain: u32,
        /// The process that ran it.
        at: u32,
    },
    /// A grain that moves, with its memory.
    Arrive {
        /// Number of the grain.
        grain: u32,
        /// Memory.
        memory: Memory,
        /// The registration that it leaves.
        instead: From,
    },
    /// The word of the silo where it was to arrive.
    MoveWord {
        /// Number of the grain.
        grain: u32,
        /// The registration that it leaves.
        instead: From,
        /// Word.
        word: Word,
    },
}

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the grain.
    pub grain: u32,
    /// The process that made it.
    pub origin: u32,
    /// Number of times it was passed on.
    pub hops: u8,
    /// True for a command at the end of a run, which must succeed.
    pub must: bool,
}

/// Where an activation stands. Between two polls it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The directory has not said yet that it is the grain's one activation.
    Registering,
    /// Its state is read and its hook runs; the number of polls left.
    Waking(u8),
    /// No turn runs.
    Idle,
    /// A turn runs; the number of polls left.
    Running(Call, u8),
    /// Its deactivation hook runs; the number of polls left.
    Falling(u8),
    /// Its registration is given back.
    Leaving,
    /// Its memory was sent to another silo.
    Departing,
    /// Its memory is here, and the directory has not said yet that it is the grain's one
    /// activation.
    Arriving,
}

/// One grain in the memory of one silo.
#[derive(Clone, Debug)]
pub struct Activation {
    /// Its number on this silo.
    pub number: u64,
    /// Where it stands.
    pub phase: Phase,
    /// True if the directory holds a registration for it, as far as this silo knows.
    pub registered: bool,
    /// True if it shall be deactivated when its turns are over.
    pub closing: bool,
    /// True if its turn has not been polled yet.
    pub begins: bool,
    /// Memory, which moves with the grain.
    pub memory: Memory,
    /// Move to another silo, once the memory was sent.
    pub departure: Option<Departure>,
    /// Number of times its registration met one left behind.
    pub retries: u8,
    /// Turns that wait.
    pub queue: VecDeque<Call>,
    /// When it last began to lie idle.
    pub idle_since: VirtualTime,
}

impl Activation {
    /// One that was just made for `call`.
    pub fn new(number: u64, call: Call, at: VirtualTime) -> Self {
        Self {
            number,
            phase: Phase::Registering,
            registered: false,
            closing: false,
            begins: false,
            memory: Memory::default(),
            departure: None,
            retries: 0,
            queue: VecDeque::from([call]),
            idle_since: at,
        }
    }

    /// One for a grain that comes from another silo.
    pub fn arriving(number: u64, at: VirtualTime) -> Self {
        let call = Call { grain: 0, origin: 0, hops: 0, must: false };
        let phase = Phase::Arriving;
        Self { phase, queue: VecDeque::new(), ..Self::new(number, call, at) }
    }

    /// Returns true if a poll of it would run the grain's own code, now or once it is woken.
    pub const fn runs_code(&self) -> bool {
        self.registered
            && !matches!(
                self.phase,
                Phase::Registering | Phase::Leaving | Phase::Departing | Phase::Arriving
            )
    }
}

/// A command of the directory that waits for its outcome.
#[derive(Clone, Debug)]
pub enum Waiting {
    /// Where is the grain of this call? With the registration that was known to be there when it
    /// was asked.
    Lookup(Call, Asked),
    /// May this activation be the grain's one?
    Register(u32, u64, Asked),
    /// The activation is on its way out.
    Unregister(u32, u64),
    /// May this activation, whose memory came from another silo, replace that registration?
    Arrive(u32, u64, From),
    /// May the grain be here again, under this number?
    Reclaim(u32, u64),
    /// A registration of this silo that nothing here stands behind goes, for this activation.
    UnregisterStale(u32, u64),
}

/// Facts at the time at which a command was given.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Time of the command.
    pub at: VirtualTime,
    /// The version of the view that the directory had.
    pub view: u64,
    /// The confirmed registration of the grain, and its place in the history.
    pub known: Option<(Registration, u64)>,
    /// Number of removals that were acknowledged by then.
    pub removals: u64,
}

/// State of one silo's shell besides its membership machine.
#[derive(Debug)]
pub struct Shell {
    /// The directory machine.
    pub directory: Directory,
    /// When its one timer event that counts is due.
    pub timer_at: VirtualTime,
    /// Chooses silos for new activations.
    pub placement: PlacementTable,
    /// The Active silos of the view in force.
    pub candidates: Vec<SiloAddress>,
    /// Every activation, by grain.
    pub catalog: BTreeMap<u32, Activation>,
    /// Where grains were last found, by grain: process numbers.
    pub locations: BTreeMap<u32, u32>,
    /// Commands under way.
    pub waiting: BTreeMap<Token, Waiting>,
    /// Calls that wait for the fence to open.
    pub held: Vec<Call>,
    /// Activations whose next poll waits for the fence to open.
    pub blocked: Vec<(u32, u64)>,
    /// True if everything is to be deactivated.
    pub leaving: bool,
    /// True if no further turn begins or continues, since the silo asks for its own death next.
    pub shut: bool,
    next_token: u64,
    next_activation: u64,
}

impl Shell {
    /// The shell around `directory`.
    pub fn new(directory: Directory, seed: u64) -> Self {
        Self {
            directory,
            timer_at: VirtualTime::MAX,
            placement: PlacementTable::new(seed),
            candidates: Vec::new(),
            catalog: BTreeMap::new(),
            locations: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held: Vec::new(),
            blocked: Vec::new(),
            leaving: false,
            shut: false,
            next_token: 0,
            next_activation: 0,
        }
    }

    /// A token that was never used.
    pub fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// A number for an activation that no other had.
    pub fn activation_number(&mut self) -> u64 {
        self.next_activation += 1;
        self.next_activation
    }
}

/// A stretch of time in which the code of a grain ran without a look at the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// On which process.
    pub process: u32,
    /// From when.
    pub start: VirtualTime,
    /// Time limit.
    pub end: VirtualTime,
}

/// Facts about grains, from outside, with which the checks compare.
#[derive(Debug, Default)]
pub struct GrainTruth {
    /// The grains by number.
    pub ids: Vec<GrainId>,
    /// The registration of each grain that was acknowledged, not given back, and whose silo the
    /// table does not call Dead; with its place in the order of acknowledgements.
    pub held: BTreeMap<u32, (Registration, u64)>,
    /// The memory of each grain after its last turn.
    pub memories: BTreeMap<u32, Memory>,
    /// Number of lives that grains have begun.
    pub lives: u64,
    /// The last segment of each grain's code.
    pub segments: BTreeMap<u32, Segment>,
    /// Registrations that are over, with the place in the order of such ends: their removal was
    /// acknowledged, or another registration of the grain was.
    pub removed: BTreeMap<(u32, Registration), u64>,
    /// The last registration of each grain that was acknowledged to a silo that the table did not
    /// call Dead.
    pub last: BTreeMap<u32, Registration>,
    /// Every registration that was asked for.
    pub requested: BTreeSet<(u32, Registration)>,
    /// Registrations whose removal the directory may have given up, and from when on.
    pub left_behind: BTreeMap<(u32, Registration), VirtualTime>,
    /// When a view or a silo that faded last gave a command a reason to wait.
    pub unsettled_at: VirtualTime,
    /// When the last call that was sent to another silo arrives.
    pub calls_until: VirtualTime,
    /// When a list of registrations last went on: a batch of one arrived that was not its first.
    pub listed_at: VirtualTime,
    /// When messages were last lost with a connection that was reset.
    pub messages_lost_at: Option<VirtualTime>,
    /// Numbers of calls at the end of a run that were answered, and that failed.
    pub must: (u64, u64),
    /// True if no call is made and nothing is deactivated: the directory shall come to rest.
    pub quiet: bool,
    /// Number of registrations that were acknowledged.
    pub acknowledged: u64,
    /// Number of removals that were acknowledged.
    pub removals: u64,
    /// Number of segments that ran.
    pub ran: u64,
}

impl GrainTruth {
    /// This number of grains, all nowhere.
    pub fn new(grains: u32) -> Self {
        Self { ids: (0..grains).map(GrainLoad::grain).collect(), ..Self::default() }
    }

    /// Facts at `at` about `grain`, for a silo whose directory has the view `view`.
    pub fn asked(&self, grain: u32, at: VirtualTime, view: u64) -> Asked {
        Asked { at, view, known: self.held.get(&grain).copied(), removals: self.removals }
    }

    /// The registration of `grain` was acknowledged to a silo that the table does not call Dead.
    pub fn acknowledge(&mut self, grain: u32, registration: Registration) {
        self.acknowledged += 1;
        self.held.insert(grain, (registration, self.acknowledged));
        if let Some(before) =
            self.last.insert(grain, registration).filter(|before| *before != registration)
        {
            self.end(grain, before);
        }
    }

    /// The registration is over: no question from now on gets it.
    pub fn end(&mut self, grain: u32, registration: Registration) {
        self.removals += 1;
        self.removed.entry((grain, registration)).or_insert(self.removals);
    }

    /// Returns true if the registration may have been left behind by now: the directory tried for a
    /// minute to remove it.
    pub fn may_be_left(&self, grain: u32, registration: Registration, now: VirtualTime) -> bool {
        self.left_behind.get(&(grain, registration)).is_some_and(|from| *from <= now)
    }

    /// The message arrives now: does it carry a list of registrations on?
    pub fn note_list(&mut self, message: &Told, now: VirtualTime) {
        if let Told::Report { batch, .. }
        | Told::Collected { batch, .. }
        | Told::Handed { batch, .. } = message
            && *batch > 0
        {
            self.listed_at = now;
        }
    }

    /// `silo` is Dead in the table: its grains may go.
    pub fn died(&mut self, silo: &SiloAddress) {
        self.held.retain(|_, (held, _)| held.silo != *silo);
    }
}
