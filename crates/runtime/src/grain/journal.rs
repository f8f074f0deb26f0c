//! State that is the sum of events: a journal.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use bytes::BytesMut;
use emmer_net::clock;
use emmer_store::Etag;
use emmer_store::journal::{Change, Head, JournalSlot, Stored};
use emmer_wire::{CodecError, codec};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bond::Bond;
use super::persistent::encoded;
use crate::grain::{Carried, Ctx, STATE_FORMAT, StateSpec};
use crate::metrics::{StateEnded, StateOperation};
use crate::trace;
use crate::turn::StateError;

/// No row is removed.
const NONE: Range<u64> = 0..0;

/// Maximum rows of old appends that one append removes. Two, so that old rows go faster than new
/// ones come.
const REMOVED_AT_ONCE: u64 = 2;

/// The most rows that one commit of [`Journal::clear`] removes.
const CLEARED_AT_ONCE: u64 = 8;

/// Number of rows of appends that are read side by side.
const READ_AT_ONCE: usize = 8;

/// Number of reads of a journal that changes meanwhile.
const READS_MAX: usize = 3;

/// The state of a [`Journal`]: it knows what an event changes.
///
/// A stored event is applied again at each activation, so this must give the same result each time:
/// no clock, no chance, nothing from outside. It must not fail: decide before the append whether
/// the event may happen.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not know what the event `{E}` changes",
    label = "`{Self}` does not implement `Apply<{E}>`",
    note = "write `impl emmer::state::Apply<{E}> for {Self}`, which changes the state as the event says"
)]
pub trait Apply<E> {
    /// Changes the state as the event says.
    fn apply(&mut self, event: &E);
}

/// The words of `#[journal("account", snapshot = 100, keep = 1000)]`.
pub struct JournalSpec<S> {
    state: StateSpec<S>,
    snapshot: u64,
    keep: u64,
}

impl<S> JournalSpec<S> {
    /// The appends between two snapshots, where a journal does not say it.
    pub const SNAPSHOT: u64 = 100;

    /// A journal whose snapshots are stored as `state` says.
    pub const fn new(state: StateSpec<S>) -> Self {
        Self { state, snapshot: Self::SNAPSHOT, keep: u64::MAX }
    }

    /// Sets the number of appends between two snapshots, at least one.
    #[must_use]
    pub const fn snapshot(mut self, appends: u64) -> Self {
        self.snapshot = appends;
        self
    }

    /// Sets the number of newest appends that are kept. Appends that are in no snapshot are kept
    /// too.
    #[must_use]
    pub const fn keep(mut self, appends: u64) -> Self {
        self.keep = appends;
        self
    }
}

/// A state that is changed by events alone, which are stored: the journal of a grain.
///
/// `E` is the type of the events, `S` the state that they add up to. An activation reads the newest
/// snapshot and applies the events behind it. An append is conditional, like a write of
/// [`Persistent`](super::Persistent): if another writer appended in between, nothing is stored and
/// the call gets [`StateError::EtagMismatch`]. After an append that failed, the activation ends
/// with the turn, and the next call finds the stored state. Events that do not encode, or are too
/// large, are refused at once, and nothing changes.
pub struct Journal<E, S: 'static> {
    state: S,
    binding: Option<Box<Binding<S>>>,
    events: PhantomData<fn(E) -> E>,
}

struct Binding<S: 'static> {
    slot: JournalSlot,
    spec: &'static JournalSpec<S>,
    ctx: Ctx,
    head: Head,
    etag: Option<Etag>,
}

impl<E, S: Default> Default for Journal<E, S> {
    /// A journal outside any silo: nothing can be appended ([`StateError::Unbound`]).
    fn default() -> Self {
        Self { state: S::default(), binding: None, events: PhantomData }
    }
}

/// The events of one append, as they are stored.
type Row<E> = (u64, Vec<E>);

impl<E, S: Default> Journal<E, S> {
    /// A journal of the grain of `ctx`, not read yet. Called by `#[derive(Grain)]`.
    pub fn bound(ctx: &Ctx, spec: &'static JournalSpec<S>) -> Self {
        let mut journal = Self::default();
        journal.bind(ctx, spec);
        journal
    }

    /// Makes this a journal of the grain of `ctx`, not read yet.
    pub fn bind(&mut self, ctx: &Ctx, spec: &'static JournalSpec<S>) {
        let slot = ctx.journal_slot(spec.state.store, spec.state.name);
        self.binding = slot.map(|slot| {
            let (ctx, head) = (ctx.clone(), Head::default());
            Box::new(Binding { slot, spec, ctx, head, etag: None })
        });
    }
}

impl<E, S> Journal<E, S>
where
    E: Serialize + DeserializeOwned + Send + 'static,
    S: Apply<E> + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Stores an event, and changes the state as it says.
    ///
    /// # Errors
    /// [`StateError`] describes the knowledge about the store. The activation ends with this turn.
    pub async fn append(&mut self, event: E) -> Result<(), StateError> {
        self.append_all(vec![event]).await
    }

    /// Stores events, all of them or none, and applies them to the state.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn append_all(&mut self, events: Vec<E>) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        if events.is_empty() {
            return Ok(());
        }
        // Before, so that no activation ever has more to read than that.
        if binding.head.appends - binding.head.snapshot >= binding.spec.snapshot.max(1) {
            binding.take_snapshot(&self.state).await?;
        }
        let count = events.len() as u64;
        let row: Row<E> = (binding.head.events, events);
        // Nothing has changed yet if that fails.
        let payload = encoded(binding.bond(), &row, binding.slot.bytes_max())?;
        // Also before: an event that the state cannot take must not be stored.
        let bond = binding.bond();
        let applying = bond.applying();
        row.1.iter().for_each(|event| self.state.apply(event));
        applying.answered();
        let stored = Stored { format: STATE_FORMAT.to_owned(), payload };
        binding
            .write(StateOperation::Append, |head, spec| {
                head.events += count;
                head.appends += 1;
                let last = head.snapshot.min(head.appends.saturating_sub(spec.keep));
                let last = last.min(head.removed + REMOVED_AT_ONCE);
                let gone = head.removed + 1..last + 1;
                head.removed = head.removed.max(last);
                (Change::Append(stored), gone)
            })
            .await
    }

    /// Takes a snapshot now, if there are new events: the next activation reads only the snapshot.
    /// Snapshots are also taken after as many appends as the attribute says.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn snapshot(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        binding.take_snapshot(&self.state).await
    }

    /// Deletes all events and snapshots, and makes the state the default. A journal of many events
    /// goes in several commits: a fault in between leaves the state as it is, with fewer of the
    /// oldest events. A state that has outgrown what may be stored is the default from the first
    /// commit on.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn clear(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        if binding.etag.is_some() {
            match binding.take_snapshot(&self.state).await {
                Err(StateError::TooLarge { .. }) => binding.take_snapshot(&S::default()).await?,
                taken => taken?,
            }
            while binding.head.removed < binding.head.appends {
                binding
                    .write(StateOperation::Clear, |head, _| {
                        let last = head.appends.min(head.removed + CLEARED_AT_ONCE);
                        let gone = head.removed + 1..last + 1;
                        head.removed = last;
                        (Change::Nothing, gone)
                    })
                    .await?;
            }
            binding.delete().await?;
        }
        self.state = S::default();
        Ok(())
    }

    /// Reads the state from the store: the newest snapshot, and the events behind it.
    ///
    /// # Errors
    /// [`StateError`]; then the state in memory is unchanged.
    pub async fn read(&mut self) -> Result<(), StateError> {
        let binding = self.binding.as_mut().ok_or(StateError::Unbound)?;
        let span = trace::part(|| trace::state("read", binding.spec.state.name));
        let read = trace::within(span, binding.read::<E>()).await;
        let ended = if read.is_ok() { StateEnded::Ok } else { StateEnded::Error };
        binding.bond().count(StateOperation::Read, ended);
        let (state, head, etag) = read?;
        (self.state, binding.head, binding.etag) = (state, head, etag);
        Ok(())
    }

    /// Returns the number of events that were ever appended, as far as this activation knows.
    pub fn events(&self) -> u64 {
        self.binding.as_ref().map_or(0, |binding| binding.head.events)
    }

    /// Returns true if anything was ever appended, as far as this activation knows.
    pub fn exists(&self) -> bool {
        self.binding.as_ref().is_some_and(|binding| binding.etag.is_some())
    }

    /// Reads events back, at most `limit` from number `from` on. The first event has the number 0.
    /// Removed events (`keep = ..`) are missing.
    ///
    /// # Errors
    /// [`StateError`].
    pub async fn history(&self, from: u64, limit: usize) -> Result<Vec<(u64, E)>, StateError> {
        let binding = self.binding.as_ref().ok_or(StateError::Unbound)?;
        let mut found = Vec::new();
        let mut append = binding.append_of::<E>(from).await?;
        while append <= binding.head.appends && found.len() < limit {
            let Some((first, events)) = binding.append::<E>(append).await? else {
                return Err(binding.changing());
            };
            let numbered = (first..).zip(events).filter(|(number, _)| *number >= from);
            found.extend(numbered.take(limit - found.len()));
            append += 1;
        }
        Ok(found)
    }
}

impl<E, S> Carried for Journal<E, S>
where
    E: Serialize + DeserializeOwned + Send + 'static,
    S: Apply<E> + Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    fn pack(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        let bound = self.binding.as_ref();
        let format = bound.map(|binding| binding.spec.state.format());
        let etag = bound.and_then(|binding| binding.etag.as_deref());
        let head = bound.map(|binding| binding.head);
        codec::encode_into(out, &(format, etag, head, &self.state))
    }

    fn unpack(&mut self, ctx: &Ctx, bytes: &[u8]) -> Result<(), String> {
        let read = ctx.grains().bind(|| codec::decode::<Packed<S>>(bytes));
        let (format, etag, head, state) = read.map_err(|error| error.to_string())?;
        let own = self.binding.as_ref().map(|binding| binding.spec.state.format());
        if format != own {
            return Err(format!("it is {format:?} there and {own:?} here"));
        }
        self.state = state;
        if let Some(binding) = &mut self.binding {
            binding.etag = etag.map(Etag::from);
            binding.head = head.unwrap_or_default();
        }
        Ok(())
    }
}

/// The format of a journal's snapshots, its etag, its head, its state.
type Packed<S> = (Option<String>, Option<String>, Option<Head>, S);

impl<S> Binding<S>
where
    S: Default + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    const fn bond(&self) -> Bond<'_> {
        Bond { name: self.spec.state.name, ctx: &self.ctx }
    }

    /// The rows do not belong together: another process writes.
    fn changing(&self) -> StateError {
        let detail =
            "rows of the journal are missing, or another process changes it while it is read";
        let detail = detail.to_owned();
        let name = self.spec.state.name.to_owned();
        StateError::Store { name, detail, maybe_written: false }
    }

    /// The events of one append, and the number of the first; none if the row is not there.
    async fn append<E: DeserializeOwned>(&self, number: u64) -> Result<Option<Row<E>>, StateError> {
        let bond = self.bond();
        let found = self.slot.append(number).await;
        let Some(stored) = found.map_err(|error| bond.store_error(&error, false))? else {
            return Ok(None);
        };
        let read = || codec::decode(&stored.payload);
        self.ctx.grains().bind(read).map(Some).map_err(|error| bond.codec_error(error))
    }

    /// The append that has the event of this number, or the first one that is kept.
    async fn append_of<E: DeserializeOwned>(&self, event: u64) -> Result<u64, StateError> {
        // The event is in none before `low`, and in none from `high` on.
        let (mut low, mut high) = (self.head.removed + 1, self.head.appends + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let row = self.append::<E>(middle).await?;
            let (first, _) = row.ok_or_else(|| self.changing())?;
            if first <= event { low = middle } else { high = middle }
        }
        Ok(low)
    }

    async fn read<E>(&self) -> Result<(S, Head, Option<Etag>), StateError>
    where
        E: DeserializeOwned + Send,
        S: Apply<E>,
    {
        for _ in 0..READS_MAX {
            let head = self.slot.head().await;
            let head = head.map_err(|error| self.bond().store_error(&error, false))?;
            let Some((head, etag)) = head else {
                return Ok((S::default(), Head::default(), None));
            };
            let Some(mut state) = self.read_snapshot(head.snapshot).await? else { continue };
            let appends = stream::iter(head.snapshot + 1..=head.appends);
            let rows = appends.map(|number| self.append::<E>(number)).buffered(READ_AT_ONCE);
            let rows: Vec<Option<Row<E>>> = rows.try_collect().await?;
            let Some(rows) = rows.into_iter().collect::<Option<Vec<_>>>() else { continue };
            for (_, events) in &rows {
                events.iter().for_each(|event| state.apply(event));
            }
            return Ok((state, head, Some(etag)));
        }
        Err(self.changing())
    }

    /// The snapshot of this number of appends; none if it is not there.
    async fn read_snapshot(&self, appends: u64) -> Result<Option<S>, StateError> {
        if appends == 0 {
            return Ok(Some(S::default()));
        }
        let bond = self.bond();
        let found = self.slot.snapshot(appends).await;
        let Some(stored) = found.map_err(|error| bond.store_error(&error, false))? else {
            return Ok(None);
        };
        let read = || self.spec.state.read(&stored.format, &stored.payload);
        self.ctx.grains().bind(read).map(Some).map_err(|why| bond.unreadable(why))
    }

    async fn take_snapshot(&mut self, state: &S) -> Result<(), StateError> {
        if self.head.snapshot == self.head.appends {
            return Ok(());
        }
        let payload = encoded(self.bond(), state, self.slot.bytes_max())?;
        let stored = Stored { format: self.spec.state.format(), payload };
        self.write(StateOperation::Snapshot, |head, _| {
            let before = std::mem::replace(&mut head.snapshot, head.appends);
            (Change::Snapshot(stored, before), NONE)
        })
        .await
    }

    /// Writes the head as `next` makes it, and what `next` says.
    async fn write(
        &mut self,
        operation: StateOperation,
        next: impl FnOnce(&mut Head, &JournalSpec<S>) -> (Change, Range<u64>),
    ) -> Result<(), StateError> {
        let mut head = self.head;
        let (change, remove) = next(&mut head, self.spec);
        let bond = self.bond();
        let unanswered = bond.unanswered();
        let span = trace::part(|| trace::state(operation.name(), self.spec.state.name));
        let write = self.slot.write(self.etag.as_ref(), &head, change, remove, clock::wall());
        let outcome = trace::within(span, write).await;
        unanswered.answered();
        self.etag = Some(bond.written(operation, outcome)?);
        self.head = head;
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), StateError> {
        let Some(etag) = &self.etag else { return Ok(()) };
        let bond = self.bond();
        let unanswered = bond.unanswered();
        let span = trace::part(|| trace::state("clear", self.spec.state.name));
        let outcome = trace::within(span, self.slot.delete(etag, &self.head)).await;
        unanswered.answered();
        bond.cleared(outcome)?;
        (self.head, self.etag) = (Head::default(), None);
        Ok(())
    }
}

impl<E, S> Deref for Journal<E, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<E, S: fmt::Debug> fmt::Debug for Journal<E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.state, f)
    }
}
