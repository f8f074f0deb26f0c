//! `tight`: as far down as many tasks over one connection can honestly go.
//!
//! No message goes from task to task. One lock guards the outgoing buffer and a slab of calls under
//! way (a call's number is its place in the slab, which holds the caller's waker). Callers encode
//! into that buffer themselves. One task, the driver, reads and writes. A single caller writes for
//! itself and leaves the driver asleep.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;

use super::frames::{BUFFER, READ_ROOM, put, take};
use crate::drive::Exchange;
use crate::lock;

/// A place in the slab.
enum Place {
    /// A free place; the next free one.
    Free(Option<usize>),
    /// A caller waits.
    Waiting(Waker),
    /// The answer waits for its caller.
    Answered(Bytes),
}

#[derive(Default)]
struct Shared {
    places: Vec<Place>,
    free: Option<usize>,
    under_way: usize,
    outgoing: BytesMut,
    /// The driver, when it has nothing to write and must be woken when there is.
    asleep: Option<Waker>,
}

impl Shared {
    /// Takes a place for a caller.
    fn enter(&mut self, waker: Waker) -> usize {
        self.under_way += 1;
        let Some(at) = self.free else {
            self.places.push(Place::Waiting(waker));
            return self.places.len() - 1;
        };
        if let Place::Free(next) = std::mem::replace(&mut self.places[at], Place::Waiting(waker)) {
            self.free = next;
        }
        at
    }

    /// The answer for the caller at `at`, whose place is then free. Without an answer it keeps the
    /// newer waker.
    fn leave(&mut self, at: usize, waker: &Waker) -> Option<Bytes> {
        match &mut self.places[at] {
            Place::Waiting(old) => {
                old.clone_from(waker);
                None
            }
            Place::Free(_) => None,
            Place::Answered(body) => {
                let body = std::mem::take(body);
                self.places[at] = Place::Free(self.free);
                self.free = Some(at);
                self.under_way -= 1;
                Some(body)
            }
        }
    }
}

/// The calling side of one connection.
pub struct Tight {
    stream: TcpStream,
    shared: Mutex<Shared>,
}

impl Tight {
    /// Connects, and starts the driver.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn connect(address: &str) -> crate::Result<Arc<Self>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let tight = Arc::new(Self { stream, shared: Mutex::default() });
        let (incoming, writing) =
            (BytesMut::with_capacity(BUFFER), BytesMut::with_capacity(BUFFER));
        tokio::spawn(Driver { tight: tight.clone(), incoming, writing, woken: Vec::new() });
        Ok(tight)
    }
}

impl Exchange for Arc<Tight> {
    async fn exchange(&self, body: &Bytes, _: u64) -> crate::Result<usize> {
        Ok(Call { tight: self, body: Some(body), at: 0 }.await.len())
    }
}

/// One call.
struct Call<'a> {
    tight: &'a Tight,
    body: Option<&'a Bytes>,
    at: usize,
}

impl Future for Call<'_> {
    type Output = Bytes;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Bytes> {
        let tight = self.tight;
        let mut shared = lock(&tight.shared);
        let Some(body) = self.body.take() else {
            return shared.leave(self.at, cx.waker()).map_or(Poll::Pending, Poll::Ready);
        };
        self.at = shared.enter(cx.waker().clone());
        put(&mut shared.outgoing, self.at as u64, body);
        // Alone means that nothing of an earlier call can still lie unwritten with the driver.
        if shared.under_way == 1
            && let Ok(written) = tight.stream.try_write(&shared.outgoing)
        {
            shared.outgoing.advance(written);
        }
        if !shared.outgoing.is_empty()
            && let Some(driver) = shared.asleep.take()
        {
            drop(shared);
            driver.wake();
        }
        Poll::Pending
    }
}

/// The one task that reads and writes.
struct Driver {
    tight: Arc<Tight>,
    incoming: BytesMut,
    writing: BytesMut,
    woken: Vec<Waker>,
}

/// Result of a read or a write.
enum Step {
    Progress,
    Wait,
    Gone,
}

impl Driver {
    fn read(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            self.incoming.reserve(READ_ROOM);
            match self.tight.stream.try_read_buf(&mut self.incoming) {
                Ok(0) => return Step::Gone,
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if self.tight.stream.poll_read_ready(cx).is_pending() {
                        return Step::Wait;
                    }
                }
                Err(_) => return Step::Gone,
            }
        }
        let mut shared = lock(&self.tight.shared);
        while let Some((number, body)) = take(&mut self.incoming) {
            let place = usize::try_from(number).ok().and_then(|at| shared.places.get_mut(at));
            let Some(place) = place else { return Step::Gone };
            if let Place::Waiting(waker) = std::mem::replace(place, Place::Answered(body)) {
                self.woken.push(waker);
            }
        }
        drop(shared);
        self.woken.drain(..).for_each(Waker::wake);
        Step::Progress
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Step {
        while !self.writing.is_empty() {
            match self.tight.stream.try_write(&self.writing) {
                Ok(written) => self.writing.advance(written),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if self.tight.stream.poll_write_ready(cx).is_pending() {
                        return Step::Wait;
                    }
                }
                Err(_) => return Step::Gone,
            }
        }
        self.writing.clear();
        Step::Progress
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let read = match self.read(cx) {
                Step::Gone => return Poll::Ready(()),
                Step::Progress => true,
                Step::Wait => false,
            };
            if self.writing.is_empty() {
                let this = &mut *self;
                let mut shared = lock(&this.tight.shared);
                std::mem::swap(&mut shared.outgoing, &mut this.writing);
                if this.writing.is_empty() {
                    shared.asleep = Some(cx.waker().clone());
                    drop(shared);
                    if read {
                        // The callers that were woken run first: their next frames then leave in
                        // one write.
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
            }
            match self.write(cx) {
                Step::Gone => return Poll::Ready(()),
                Step::Wait => return Poll::Pending,
                Step::Progress => {}
            }
        }
    }
}
