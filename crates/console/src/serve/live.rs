//! Pictures of the cluster for all pages that are open.
//!
//! One task gathers while a page is open, and rests otherwise. Each part of a picture is written
//! once, and every page that shows the part gets the same bytes. A page that reads slowly misses
//! pictures, and holds none of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use emmer_runtime::admin::Admin;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Shared;
use super::door::refusal;
use super::frames;
use crate::{Gather, Picture, Wants};

/// Time between two pictures, at least, and for each silo.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_OF_SILO: Duration = Duration::from_millis(5);

/// A page that waits for a part that no other shows gets it after this time.
const SOON: Duration = Duration::from_millis(200);

/// A picture that is older is not shown to a page that opens, unless other pages show it.
const FRESH: Duration = Duration::from_secs(3);

/// A line that keeps the connection, where nothing else is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A part of the pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Silos and events: every page has it.
    Base,
    Types,
    Methods,
    Hot,
    Turns,
    Queues,
    Reminders,
}

const PARTS: [(Part, &str); 7] = [
    (Part::Base, "base"),
    (Part::Types, "types"),
    (Part::Methods, "methods"),
    (Part::Hot, "hot"),
    (Part::Turns, "turns"),
    (Part::Queues, "queues"),
    (Part::Reminders, "reminders"),
];

/// A part as it was last, with the time: an event as it is sent.
type Last = Option<(Instant, Bytes)>;

/// The pictures of a console.
pub(super) struct Live {
    admin: Admin,
    parts: [Shown; PARTS.len()],
    watchers: AtomicUsize,
    /// Number of pages that may be open.
    watchers_max: usize,
    /// A page was opened.
    opened: Notify,
}

/// A part as it was last, and the number of pages that show it.
struct Shown {
    last: watch::Sender<Last>,
    watchers: AtomicUsize,
}

impl Live {
    pub(super) fn new(admin: Admin, watchers_max: usize) -> Self {
        let shown = || Shown { last: watch::channel(None).0, watchers: AtomicUsize::new(0) };
        Self {
            admin,
            parts: std::array::from_fn(|_| shown()),
            watchers: AtomicUsize::new(0),
            watchers_max,
            opened: Notify::new(),
        }
    }

    pub(super) const fn admin(&self) -> &Admin {
        &self.admin
    }

    fn is_watched(&self, part: Part) -> bool {
        self.parts[part as usize].watchers.load(Ordering::Relaxed) > 0
    }

    fn wants(&self) -> Wants {
        Wants {
            types: self.is_watched(Part::Types),
            methods: self.is_watched(Part::Methods),
            hot: self.is_watched(Part::Hot),
            turns: self.is_watched(Part::Turns),
            queues: self.is_watched(Part::Queues),
            reminders: self.is_watched(Part::Reminders),
        }
    }

    /// Gathers while a page is open.
    pub(super) async fn run(&self) {
        let mut gather = Gather::new(self.admin.clone());
        loop {
            let opened = self.opened.notified();
            if self.watchers.load(Ordering::Relaxed) == 0 {
                opened.await;
                continue;
            }
            let began = Instant::now();
            let wants = self.wants();
            let picture = gather.step(wants).await;
            self.show(picture, wants);
            let silos = u32::try_from(picture.silos.len()).unwrap_or(u32::MAX);
            let period = PERIOD_MIN.max(PERIOD_OF_SILO.saturating_mul(silos));
            let next = began + period;
            // Another part is wanted at once, and never more often than once in a while.
            let wake = async {
                opened.await;
                loop {
                    sleep(SOON).await;
                    if self.wants() != wants {
                        return;
                    }
                    self.opened.notified().await;
                }
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = wake => {}
            }
        }
    }

    fn show(&self, picture: &Picture, wants: Wants) {
        let now = Instant::now();
        let silos = frames::Places::of(picture);
        for ((part, name), shown) in PARTS.iter().zip(&self.parts) {
            let json = match part {
                Part::Base => frames::base(picture, &silos),
                Part::Types if wants.types => frames::types(picture),
                Part::Methods if wants.methods => frames::methods(picture),
                Part::Hot if wants.hot => frames::hot(picture, &silos),
                Part::Turns if wants.turns => frames::turns(picture, &silos),
                Part::Queues if wants.queues => frames::queues(picture, &silos),
                Part::Reminders if wants.reminders => frames::reminders(picture, &silos),
                _ => continue,
            };
            let frame = format!("event: {name}\ndata: {json}\n\n");
            shown.last.send_replace(Some((now, frame.into())));
        }
    }
}

/// A page that is open.
struct Watching {
    live: Arc<Live>,
    parts: Vec<(Part, watch::Receiver<Last>)>,
}

impl Watching {
    /// None if as many pages are open as may be.
    fn begin(live: &Arc<Live>, see: &str) -> Option<Self> {
        let before = live.watchers.fetch_add(1, Ordering::Relaxed);
        let mut own = Self { live: live.clone(), parts: Vec::new() };
        if before >= live.watchers_max {
            return None;
        }
        let is_seen = |name: &str| name == "base" || see.split(',').any(|part| part == name);
        for (part, _) in PARTS.iter().filter(|(_, name)| is_seen(name)) {
            let shown = &live.parts[*part as usize];
            let is_shown = shown.watchers.fetch_add(1, Ordering::Relaxed) > 0;
            let mut last = shown.last.subscribe();
            let is_good = |(at, _): &(Instant, Bytes)| is_shown || at.elapsed() < FRESH;
            let is_fresh = last.borrow().as_ref().is_some_and(is_good);
            if is_fresh {
                last.mark_changed();
            }
            own.parts.push((*part, last));
        }
        live.opened.notify_one();
        Some(own)
    }

    /// The next part that has changed; a comment if none has for a while.
    async fn next(&mut self) -> Bytes {
        let changed = async {
            let waits = self.parts.iter_mut().map(|(_, part)| Box::pin(part.changed()));
            let (changed, at, _) = futures_util::future::select_all(waits).await;
            (changed.is_ok(), at)
        };
        match timeout(KEEP_ALIVE, changed).await {
            Ok((true, at)) => {
                let frame = self.parts[at].1.borrow_and_update().clone();
                frame.map(|(_, frame)| frame).unwrap_or_default()
            }
            _ => Bytes::from_static(b": \n\n"),
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.live.watchers.fetch_sub(1, Ordering::Relaxed);
        for (part, _) in &self.parts {
            self.live.parts[*part as usize].watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Seen {
    /// The parts that the page shows, separated by commas.
    #[serde(default)]
    see: String,
}

/// Pictures as server-sent events.
pub(super) async fn events(State(shared): State<Shared>, Query(seen): Query<Seen>) -> Response {
    let Some(watching) = Watching::begin(&shared.live, &seen.see) else {
        let why = "as many pages are open as may be: close another one";
        return refusal(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let frames = stream::unfold(watching, async |mut watching| {
        let frame = watching.next().await;
        Some((Ok::<_, Infallible>(frame), watching))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream")];
    (headers, Body::from_stream(frames)).into_response()
}
