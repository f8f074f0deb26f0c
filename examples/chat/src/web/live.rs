//! The events of one page: each line once, in order, whatever dies in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::response::sse::Event;
use emmer::observers::{News, Watch};
use emmer::prelude::*;
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;

use crate::doors::doors;
use crate::person::Person;
use crate::room::{Line, Room, RoomEvents, RoomEventsEvent, RoomRef};

/// The period of a page's sign that its person is here.
const BEAT: Duration = Duration::from_secs(5);
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pause before the room is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// The events of a page that shows `room`: the lines behind number `seen`, and what else is new.
pub(super) fn page(
    client: &Client,
    room: String,
    name: String,
    seen: u64,
) -> impl Stream<Item = Result<Event, String>> + Send + use<> {
    let seen = Arc::new(AtomicU64::new(seen));
    let lines = Lines::new(client, &room, name.clone(), Arc::clone(&seen));
    let around = around(client.clone(), room, name, seen);
    stream::select(lines.events(), around.map(Ok))
}

/// Says every few seconds that the person is here, and tells the page of the person's other rooms
/// and of the other web processes.
fn around(
    client: Client,
    room: String,
    name: String,
    seen: Arc<AtomicU64>,
) -> impl Stream<Item = Event> + Send {
    let person = client.grain::<dyn Person>(name);
    stream::unfold(tokio::time::interval(BEAT), async |mut beat| {
        beat.tick().await;
        Some(((), beat))
    })
    .then(move |()| {
        let _ = person.reads(room.clone(), seen.load(Ordering::Relaxed)).send();
        let rooms = person.rooms().timeout(PATIENCE).into_future();
        let doors = doors(&client).all().timeout(PATIENCE).into_future();
        async {
            let (rooms, doors) = tokio::join!(rooms, doors);
            let rooms = rooms.ok().and_then(|rooms| event("rooms", &rooms));
            let doors = doors.ok().and_then(|doors| event("doors", &doors));
            stream::iter(rooms.into_iter().chain(doors))
        }
    })
    .flatten()
}

/// The lines of a room and its people.
struct Lines {
    room: RoomRef,
    name: String,
    watch: Watch<dyn RoomEvents>,
    /// The number of the last line that was given out.
    seen: Arc<AtomicU64>,
    /// True if lines may be missing: they are read from the room.
    is_behind: bool,
    ready: VecDeque<Event>,
}

impl Lines {
    fn new(client: &Client, room: &str, name: String, seen: Arc<AtomicU64>) -> Self {
        let room = client.grain::<dyn Room>(room);
        let watch = client.watch(&room, |room, me| room.join(me));
        Self { room, name, watch, seen, is_behind: true, ready: VecDeque::new() }
    }

    fn events(self) -> impl Stream<Item = Result<Event, String>> + Send {
        stream::try_unfold(self, |mut lines| async move { Ok(Some((lines.next().await?, lines))) })
    }

    async fn next(&mut self) -> Result<Event, String> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if self.is_behind {
                // Joined first and read then: no line falls between the two.
                self.watch.joined().await;
                self.catch_up().await;
                continue;
            }
            match self.watch.next().await {
                Some(Ok(News::Event(event))) => self.take(event),
                Some(Ok(News::Gap(_))) => self.is_behind = true,
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("the room has sent this page away".to_owned()),
            }
        }
    }

    fn take(&mut self, happened: RoomEventsEvent) {
        match happened {
            RoomEventsEvent::Said { line } if line.number == self.seen() + 1 => self.show(&line),
            // It was read already.
            RoomEventsEvent::Said { line } if line.number <= self.seen() => {}
            RoomEventsEvent::Said { .. } => self.is_behind = true,
            RoomEventsEvent::Here { names } => self.ready.extend(event("here", &names)),
            RoomEventsEvent::Types { name } => self.ready.extend(event("types", &name)),
        }
    }

    /// Reads the lines that may be missing. Where that fails, the next round tries again.
    async fn catch_up(&mut self) {
        // A room that was activated again does not know yet that the person is here.
        let _ = self.room.beat(self.name.clone()).send();
        match self.room.read(self.seen()).timeout(PATIENCE).await {
            Ok((lines, names)) => {
                self.is_behind = false;
                lines.iter().for_each(|line| self.show(line));
                self.ready.extend(event("here", &names));
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    fn show(&mut self, line: &Line) {
        self.seen.store(line.number, Ordering::Relaxed);
        self.ready.extend(event("line", line).map(|event| event.id(line.number.to_string())));
    }
}

fn event(name: &str, value: &impl Serialize) -> Option<Event> {
    Event::default().event(name).json_data(value).ok()
}
