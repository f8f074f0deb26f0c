//! A silo's own life: its knowledge of itself, and its stage.

use emmer_core::SiloStatus;

/// Stage of a leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Leave {
    /// Not leaving.
    #[default]
    No,
    /// ShuttingDown or Stopping is (being) written; the application drains.
    Draining,
    /// Dead is being written.
    Finishing,
}

/// Last state of the table that this silo has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Seen {
    /// Nothing.
    #[default]
    Nothing,
    /// The table, or a view of it, without a row of its own.
    Table,
    /// Its own row, in a view.
    OwnRow,
}

/// The own life, in one place. Each of its parts only ever goes forward.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    /// The status of the own row, or a later one when this silo is leaving.
    status: SiloStatus,
    leave: Leave,
    seen: Seen,
    /// The machine has ended; nothing more comes out of it.
    over: bool,
}

impl Standing {
    /// A silo that has not begun to join.
    pub(crate) const fn created() -> Self {
        Self { status: SiloStatus::Created, leave: Leave::No, seen: Seen::Nothing, over: false }
    }

    pub(crate) const fn status(&self) -> SiloStatus {
        self.status
    }

    /// The own row shows `status`. One that is behind the own status changes nothing.
    pub(crate) fn rise_to(&mut self, status: SiloStatus) {
        self.status = self.status.max(status);
    }

    /// Returns true if this silo wants to leave.
    pub(crate) const fn is_leaving(&self) -> bool {
        !matches!(self.leave, Leave::No)
    }

    /// Returns true if it asks for its own death.
    pub(crate) const fn is_finishing(&self) -> bool {
        matches!(self.leave, Leave::Finishing)
    }

    /// It leaves, with this status.
    pub(crate) fn leave(&mut self, status: SiloStatus) {
        debug_assert!(status > SiloStatus::Active && status > self.status, "a leave goes forward");
        self.leave = self.leave.max(Leave::Draining);
        self.status = status;
    }

    /// It asks for its own death.
    pub(crate) fn finish_leave(&mut self) {
        debug_assert!(self.is_leaving(), "who finishes a leave has begun it");
        self.leave = Leave::Finishing;
    }

    /// Returns true if the table, or a view of it, was seen at all.
    pub(crate) fn knows_table(&self) -> bool {
        self.seen >= Seen::Table
    }

    pub(crate) fn saw_table(&mut self) {
        self.seen = self.seen.max(Seen::Table);
    }

    /// Returns true if the own row was seen in a view.
    pub(crate) const fn is_in_table(&self) -> bool {
        matches!(self.seen, Seen::OwnRow)
    }

    pub(crate) const fn saw_own_row(&mut self) {
        self.seen = Seen::OwnRow;
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// The machine ends; `dead`: no row of it may serve.
    pub(crate) const fn end(&mut self, dead: bool) {
        self.over = true;
        if dead {
            self.status = SiloStatus::Dead;
        }
    }
}
