//! Views in strictly growing order, and handing them on (membership description, step 7, "snapshot
//! broadcast", and step 8, "ordered views"; improvement 6).

mod memo;
pub(crate) mod strangers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

pub use self::memo::Memo;
use self::memo::Shared;
use self::strangers::Claims;
use crate::api::TerminateReason;
use crate::delta::{Delta, Misfit};
use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::message::Message;
use crate::out::Out;
use crate::timers::Timer;
use crate::view::{View, is_on_rings};

/// The most deltas kept that came before those they build on.
const EARLY_MAX: usize = 16;

/// The most deltas in answer to one pull; with more to tell, or with no fewer rows than a snapshot,
/// a snapshot is sent.
pub(crate) const DELTAS_PER_PULL_MAX: usize = 64;

/// Number of rows up to which a read of the whole table is the quickest way to the latest view.
const SMALL_TABLE_ROWS: usize = 64;

/// Time that a pull may take before another silo is asked.
const PULL_PATIENCE: Duration = Duration::from_millis(150);

/// Time that a pull may take of a silo whose fence rests on the table, which confirms no silo that
/// is behind. One that has asked a peer in vain must have read the table, and then its version,
/// before the last confirmation lapses.
const FENCED_PATIENCE: Duration = Duration::from_millis(30);

/// Time that a hinted version may take to arrive by itself.
const HINT_PATIENCE: Duration = Duration::from_millis(30);

/// Time that the view may take in which a silo is first named: many are inserted at once, and most
/// get it down the tree.
const INSERTED_PATIENCE: Duration = Duration::from_millis(100);

/// Number of silos that get a hint from each silo that a tree reached.
const HINTED: usize = 2;

/// Number of peers that are asked for a newer view before the table is read.
const PULLS_BEFORE_READ: u32 = 2;

/// Views and deltas that bring others, and this silo, up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Views {
    /// Deltas that wait for the ones before them, with the root of their tree.
    early: BTreeMap<u64, (SiloAddress, Arc<Delta>)>,
    /// The version this silo knows to exist and does not have.
    wanted: u64,
    /// Number of peers that were asked for it.
    pulls: u32,
    /// The silo that said so, when none was asked yet.
    hinted_by: Option<SiloAddress>,
    claims: Claims,
    /// A version that this silo has heard of and lacks, and since when.
    behind: Option<(u64, Instant)>,
    shared: Shared,
}

impl Views {
    // ---- what the others may know
    // ---------------------------------------------------------------------------------

    /// Returns true if early messages lie beyond the view in force.
    pub(crate) fn fits(&self, facts: &Facts) -> bool {
        self.early.keys().next().is_none_or(|early| *early > facts.view().version())
    }

    /// Returns true if a later version than the view in force is known to exist.
    pub(crate) fn is_behind(&self, facts: &Facts) -> bool {
        self.wanted > facts.view().version()
    }

    /// Sees for how long this silo has known of a later version, or heard of one that the table has
    /// not denied, without getting it.
    pub(crate) fn look_behind(&mut self, facts: &Facts) -> Duration {
        let (version, now) = (facts.view().version(), facts.now().mono);
        let known = self.wanted.max(self.claims.version());
        self.behind.take_if(|(lacked, _)| *lacked <= version || known <= version);
        if known <= version {
            return Duration::ZERO;
        }
        let (_, since) = *self.behind.get_or_insert((known, now));
        now.saturating_since(since)
    }

    // ---- the view in force
    // ------------------------------------------------------------------------------------------

    /// Lets this machine share computed results with others of its process.
    pub(crate) fn share(&mut self, memo: Arc<Memo>) {
        self.shared = Shared::with(memo);
    }

    /// A new view is in force.
    pub(crate) fn installed(&mut self, facts: &Facts, out: &mut Out) {
        let known = facts.view().version();
        self.early.retain(|version, _| *version > known);
        if self.wanted <= known {
            self.pulls = 0;
            self.hinted_by = None;
            out.timers().clear(Timer::Pull);
        }
    }

    /// A delta came down the tree of `root`, and waits for those before it.
    pub(crate) fn keep(&mut self, root: SiloAddress, delta: &Arc<Delta>) {
        if self.early.len() < EARLY_MAX {
            self.early.insert(delta.version(), (root, delta.clone()));
        }
    }

    /// Takes the delta that follows the view in force, if it came already, with the root of its
    /// tree.
    pub(crate) fn next(&mut self, facts: &Facts) -> Option<(SiloAddress, Arc<Delta>)> {
        self.early.remove(&(facts.view().version() + 1))
    }

    /// The view that follows the one in force by `delta`, which `from` sent. None when they do not
    /// fit.
    pub(crate) fn apply(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        delta: &Delta,
    ) -> Result<Arc<View>, Misfit> {
        let applied = self.shared.apply(delta, facts.view());
        if applied == Err(Misfit::Digest) {
            self.mistrust(facts, out, from, delta.version());
        }
        applied
    }

    /// The own view is not what the committer's was: one of the two shows commits that the table
    /// has lost. A silo that is in the table has acted on its view, and ends; one that is not takes
    /// a whole view.
    fn mistrust(&mut self, facts: &Facts, out: &mut Out, from: SiloAddress, version: u64) {
        if facts.standing().is_in_table() {
            out.tell(Inner::End(TerminateReason::TableWentBack));
            return;
        }
        out.count().delta_gaps += 1;
        self.wanted = self.wanted.max(version);
        out.timers().set(Timer::Pull, facts.now().mono + PULL_PATIENCE);
        out.send(from, Message::Pull { have: 0 });
    }

    // ---- handing on
    // -------------------------------------------------------------------------------------------------

    /// Tells the others about a commit of this silo's own, which led to `view`: the view that comes
    /// into force after this.
    pub(crate) fn broadcast(
        &self,
        facts: &Facts,
        out: &mut Out,
        delta: &Arc<Delta>,
        view: &Arc<View>,
    ) {
        self.shared.note(facts.view(), view);
        if !facts.config().use_liveness_gossip {
            return;
        }
        let me = facts.me();
        if facts.config().delta_views {
            self.pass_on(facts, out, me, delta, view);
            return;
        }
        let dead_now = |silo: &SiloAddress| delta.rows().iter().any(|row| row.address == *silo);
        for row in view.members() {
            let tell = is_on_rings(row.status) || dead_now(&row.address);
            if tell && row.address != me && !facts.is_stale(&row.address) {
                // Its receivers have seen who died.
                let fading = None;
                out.send(row.address, Message::Snapshot { view: view.clone(), fading });
            }
        }
    }

    /// Sends the delta that led to `view` to this silo's children in the tree of `root`.
    pub(crate) fn pass_on(
        &self,
        facts: &Facts,
        out: &mut Out,
        root: SiloAddress,
        delta: &Arc<Delta>,
        view: &View,
    ) {
        let fan_out = facts.config().fan_out as usize;
        let tree = self.shared.tree(delta, view, &root);
        for child in tree.children(view, &facts.me(), fan_out) {
            out.send(child.address, Message::Tree { root, delta: delta.clone() });
        }
    }

    /// A silo that has the version `have` asks for later ones. `fading`: silos that are Dead in the
    /// view in force and may still run turns.
    pub(crate) fn on_pull(
        &self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        have: u64,
        fading: impl FnOnce() -> Option<Vec<(SiloAddress, u64)>>,
    ) {
        let (view, steps) = (facts.view(), facts.steps());
        if have >= view.version() {
            return;
        }
        let missing = usize::try_from(view.version() - have).unwrap_or(usize::MAX);
        let known = steps.last(missing.min(steps.len()));
        let rows: usize = known.into_iter().flatten().map(|delta| delta.len()).sum();
        let steps = steps.last(missing).filter(|_| {
            have > 0 && missing <= DELTAS_PER_PULL_MAX && rows <= view.len().max(SMALL_TABLE_ROWS)
        });
        let message = match steps {
            Some(steps) => Message::Deltas(steps.cloned().collect()),
            None => Message::Snapshot { view: view.clone(), fading: fading() },
        };
        out.send(from, message);
    }

    // ---- catching up
    // ------------------------------------------------------------------------------------------------

    /// A version exists; it is probably on its way.
    pub(crate) fn on_hint(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        version: u64,
    ) {
        if version > facts.view().version() && !out.timers().is_set(Timer::Pull) {
            self.wanted = self.wanted.max(version);
            self.hinted_by = Some(from);
            let is_in = facts.standing().is_in_table();
            let patience = if is_in { HINT_PATIENCE } else { INSERTED_PATIENCE };
            out.timers().set(Timer::Pull, facts.now().mono + patience);
        }
    }

    /// Asks `from` for missing versions up to `version`, unless a silo was just asked. `in_haste`:
    /// the fence rests on the table.
    pub(crate) fn pull(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        version: u64,
        in_haste: bool,
    ) {
        let (now, known) = (facts.now().mono, facts.view().version());
        if version <= known {
            return;
        }
        self.wanted = self.wanted.max(version);
        let within = if in_haste { FENCED_PATIENCE } else { PULL_PATIENCE };
        if !out.timers().is_set(Timer::Pull) {
            out.timers().set(Timer::Pull, now + within);
            out.send(from, Message::Pull { have: known });
        } else if in_haste {
            out.timers().set_no_later(Timer::Pull, now + within);
        }
    }

    /// A newer view exists; gets it from the table when that is small, else from a peer that is not
    /// `is_doubted`, and from the table if none delivers.
    pub(crate) fn catch_up(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        version: u64,
        in_haste: bool,
        is_doubted: impl Fn(&SiloAddress) -> bool,
    ) {
        if version <= facts.view().version() {
            return;
        }
        self.wanted = self.wanted.max(version);
        if !facts.config().delta_views || facts.view().len() <= SMALL_TABLE_ROWS {
            out.tell(Inner::Want(Read::All));
            return;
        }
        match random_active(facts, out, is_doubted) {
            Some(peer) => self.pull(facts, out, peer, version, in_haste),
            None => out.tell(Inner::Want(Read::All)),
        }
    }

    /// Handles the timeout of a pull.
    pub(crate) fn on_pull_timeout(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        in_haste: bool,
        is_doubted: impl Fn(&SiloAddress) -> bool,
    ) {
        if !self.is_behind(facts) {
            return;
        }
        let wanted = self.wanted;
        if let Some(peer) = self.hinted_by.take().filter(|_| !in_haste) {
            self.pull(facts, out, peer, wanted, in_haste);
            return;
        }
        if !facts.standing().is_in_table() {
            // Its own wish leads on: the member that was asked answers again.
            self.wanted = facts.view().version();
            return;
        }
        self.pulls += 1;
        match random_active(facts, out, is_doubted) {
            Some(peer) if !in_haste && self.pulls < PULLS_BEFORE_READ => {
                self.pull(facts, out, peer, wanted, in_haste);
            }
            _ => {
                self.pulls = 0;
                out.tell(Inner::Want(Read::All));
            }
        }
    }

    // ---- strangers
    // --------------------------------------------------------------------------------------------------

    /// A stranger may speak of a version that this silo lacks.
    pub(crate) fn note_claim(&mut self, facts: &Facts, out: &mut Out, message: &Message) {
        self.claims.note(facts, out, message);
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`.
    pub(crate) fn deny_claims(&mut self, sent: Instant) {
        self.claims.deny(sent);
    }

    /// A version that only strangers speak of had the time to arrive by itself.
    pub(crate) fn check_claim(&self, facts: &Facts, out: &mut Out) {
        self.claims.check(facts, out);
    }
}

/// Tells a few of the silos that this one probes that the version in force exists, in case the
/// branch of the tree that leads to them is broken.
pub(crate) fn hint<'a>(
    facts: &Facts,
    out: &mut Out,
    probed: impl Iterator<Item = &'a SiloAddress>,
) {
    let version = facts.view().version();
    for silo in probed.take(HINTED) {
        out.send(*silo, Message::Hint { version });
    }
}

/// A random Active silo other than this one; not a silo that `is_doubted` if a few draws find
/// another.
fn random_active(
    facts: &Facts,
    out: &mut Out,
    is_doubted: impl Fn(&SiloAddress) -> bool,
) -> Option<SiloAddress> {
    let (members, me) = (facts.view().members(), facts.me());
    let n = members.len();
    let start = out.dice().index(n);
    let usable = |at: usize| {
        let row = &members[at % n.max(1)];
        row.status == SiloStatus::Active && row.address != me && !is_doubted(&row.address)
    };
    (start..start + n).find(|at| usable(*at)).map(|at| members[at % n].address)
}
