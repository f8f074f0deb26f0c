//! Room for large frames that have begun and not ended: a peer that sends most of a frame and stops
//! holds memory, and many such peers would hold all of it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use emmer_core::CoarseInstant;
use emmer_wire::PeerKind;
use parking_lot::Mutex;

/// A frame of at most this many bytes needs no room: each connection may hold them.
const FREE_BYTES: usize = 64 << 10;

/// Number of bytes of larger frames, announced and not yet there, that are received at once: from
/// silos, and from clients. Later frames wait, unread.
const FRAME_ROOM_BYTES: usize = 48 << 20;

/// A large frame that takes longer ends its connection.
const FRAME_TIME_MAX: Duration = Duration::from_secs(30);

/// Length of a frame that has begun, and has to wait for room. `input` begins with a frame, whose
/// length was checked.
pub(crate) fn wanted(input: &[u8]) -> Option<usize> {
    let prefix = input.first_chunk::<4>()?;
    let whole = prefix.len() + u32::from_le_bytes(*prefix) as usize;
    (whole > FREE_BYTES && whole > input.len()).then_some(whole)
}

/// Words for a peer whose frame took too long.
pub(crate) fn overdue() -> String {
    format!("a frame was not there within {FRAME_TIME_MAX:?}")
}

/// The rooms of one silo or client.
#[derive(Debug)]
pub struct FrameRooms {
    silos: Arc<FrameRoom>,
    clients: Arc<FrameRoom>,
}

impl Default for FrameRooms {
    fn default() -> Self {
        Self::new(FRAME_ROOM_BYTES)
    }
}

impl FrameRooms {
    /// Two rooms, each for `max` bytes.
    pub fn new(max: usize) -> Self {
        let room = || Arc::new(FrameRoom { max, state: Mutex::default() });
        Self { silos: room(), clients: room() }
    }

    /// Number of bytes that are taken, by silos and by clients.
    pub fn taken(&self) -> [usize; 2] {
        [&self.silos, &self.clients].map(|room| room.state.lock().taken)
    }

    /// The room for what `peer` sends.
    pub(crate) fn of(&self, peer: PeerKind) -> Arc<FrameRoom> {
        match peer {
            PeerKind::Client(_) => self.clients.clone(),
            _ => self.silos.clone(),
        }
    }
}

/// Room for the frames of many connections.
#[derive(Debug)]
pub(crate) struct FrameRoom {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// At most one for each connection.
    waiting: Vec<Waker>,
}

impl FrameRoom {
    /// Takes room for a frame, if there is some; else `waker` is woken when room was given back.
    /// One frame always fits.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, waker: &Waker) -> Option<Room> {
        let mut state = self.state.lock();
        if state.taken > 0 && state.taken + bytes > self.max {
            if !state.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
            return None;
        }
        state.taken += bytes;
        Some(Room { of: self.clone(), bytes, deadline: None })
    }
}

/// Room for one frame, until it is there.
#[derive(Debug)]
pub(crate) struct Room {
    of: Arc<FrameRoom>,
    bytes: usize,
    /// None before the first look.
    deadline: Option<CoarseInstant>,
}

impl Room {
    /// Returns true if the frame takes too long.
    pub(crate) fn is_overdue(&mut self, now: CoarseInstant) -> bool {
        now >= *self.deadline.get_or_insert_with(|| now.after(FRAME_TIME_MAX))
    }

    /// The next moment at which it has to be looked at.
    pub(crate) fn due(&self) -> CoarseInstant {
        self.deadline.unwrap_or(CoarseInstant::from_millis(0))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.taken -= self.bytes;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}
