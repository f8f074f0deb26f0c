//! Log of all code that ran, written by that code: one line for each piece of user code between two
//! awaits, on the clock that all processes of a machine share (`CLOCK_MONOTONIC`).
//!
//! Writing takes no lock and never waits: a thread of its own brings the lines into the file. Lines
//! that find its queue full are counted, and the file ends with their number.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The most lines that wait for the file.
const QUEUE_MAX: usize = 65_536;
/// Time for which the writing thread rests between two visits to its queue.
const REST: Duration = Duration::from_millis(10);
/// Beginning of the last line; behind it is the number of lines that were lost.
pub(crate) const END: &str = "end ";

/// Kind of code that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The hook at the beginning of an activation.
    Activate,
    /// A turn that cannot suspend.
    Instant,
    /// A turn that sleeps, alone on its grain.
    Alone,
    /// A turn that sleeps, while others of its kind may run.
    Shared,
    /// A turn that waits for another grain's turn.
    Nested,
    /// The hook at the end of an activation.
    Deactivate,
    /// The hook of a grain that has come from another silo. The activation there has run its last
    /// turn, and has no hook at its end.
    Arrive,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Activate,
        Self::Instant,
        Self::Alone,
        Self::Shared,
        Self::Nested,
        Self::Deactivate,
        Self::Arrive,
    ];

    /// Its name in the file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Activate => "activate",
            Self::Instant => "instant",
            Self::Alone => "alone",
            Self::Shared => "shared",
            Self::Nested => "nested",
            Self::Deactivate => "deactivate",
            Self::Arrive => "arrive",
        }
    }

    /// Returns true if it is a turn, and not a hook.
    pub(crate) const fn is_turn(self) -> bool {
        !matches!(self, Self::Activate | Self::Deactivate | Self::Arrive)
    }
}

/// One piece of code that ran without a pause: one poll of a turn or of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The grain.
    pub(crate) key: u64,
    /// Number of the activation in this process; none has the number 0.
    pub(crate) activation: u64,
    /// Number of the turn or hook in this process.
    pub(crate) turn: u64,
    /// Number of its poll, the first one being 0.
    pub(crate) part: u32,
    pub(crate) kind: Kind,
    /// The thread of this process.
    pub(crate) thread: u32,
    /// In nanoseconds of the machine's clock.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, activation, turn, part, kind, thread, begin, end } = self;
        write!(f, "{key} {activation} {turn} {part} {} {thread} {begin} {end}", kind.name())
    }
}

impl Segment {
    /// Reads a line of the file.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let segment = Self {
            key: words.next()?.parse().ok()?,
            activation: words.next()?.parse().ok()?,
            turn: words.next()?.parse().ok()?,
            part: words.next()?.parse().ok()?,
            kind: words
                .next()
                .and_then(|word| Kind::ALL.into_iter().find(|kind| kind.name() == word))?,
            thread: words.next()?.parse().ok()?,
            begin: words.next()?.parse().ok()?,
            end: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(segment)
    }
}

enum Line {
    Segment(Segment),
    End,
}

static LINES: OnceLock<SyncSender<Line>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);
static NUMBERS: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The file while it is written.
pub(crate) struct TurnLog(JoinHandle<std::io::Result<()>>);

impl TurnLog {
    /// Starts to write to `path`; once in a process.
    pub(crate) fn start(path: &Path) -> std::io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        let (sender, lines) = sync_channel(QUEUE_MAX);
        let writing = std::thread::Builder::new().name("emmer-turns".to_owned());
        let writing = writing.spawn(move || write(&lines, out))?;
        if LINES.set(sender).is_err() {
            return Err(std::io::Error::other("there is a turn log already"));
        }
        Ok(Self(writing))
    }

    /// Writes the rest. Later turns are no longer written.
    pub(crate) fn finish(self) -> std::io::Result<()> {
        if let Some(lines) = LINES.get() {
            // Fails only when the thread is gone; why it went comes next.
            let _ = lines.send(Line::End);
        }
        self.0
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread of the turn log panicked")))
    }
}

fn write(lines: &Receiver<Line>, mut out: BufWriter<File>) -> std::io::Result<()> {
    while let Ok(first) = lines.recv() {
        for line in std::iter::once(first).chain(lines.try_iter()) {
            match line {
                Line::Segment(segment) => writeln!(out, "{segment}")?,
                Line::End => {
                    writeln!(out, "{END}{}", LOST.load(Relaxed))?;
                    return out.flush();
                }
            }
        }
        out.flush()?;
        std::thread::sleep(REST);
    }
    out.flush()
}

/// Now, in nanoseconds of the clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let number = |part: i64| u64::try_from(part).unwrap_or_default();
    number(now.tv_sec) * 1_000_000_000 + number(now.tv_nsec)
}

/// A number that nothing else in this process has.
pub(crate) fn number() -> u64 {
    NUMBERS.fetch_add(1, Relaxed) + 1
}

fn thread() -> u32 {
    THREAD.get().unwrap_or_else(|| {
        let number = u32::try_from(THREADS.fetch_add(1, Relaxed)).unwrap_or(u32::MAX);
        THREAD.set(Some(number));
        number
    })
}

/// A turn or a hook, and how far it is.
pub(crate) struct Watched {
    key: u64,
    activation: u64,
    turn: u64,
    part: u32,
    kind: Kind,
}

impl Watched {
    /// A new one.
    pub(crate) fn new(key: u64, activation: u64, kind: Kind) -> Self {
        Self { key, activation, turn: number(), part: 0, kind }
    }

    /// Notes a piece that began at `begin` and ends now.
    pub(crate) fn note(&mut self, begin: u64) {
        let Self { key, activation, turn, part, kind } = *self;
        self.part += 1;
        let Some(lines) = LINES.get() else { return };
        let segment =
            Segment { key, activation, turn, part, kind, thread: thread(), begin, end: now() };
        if lines.try_send(Line::Segment(segment)).is_err() {
            LOST.fetch_add(1, Relaxed);
        }
    }

    /// Runs `code`, noting each poll of it.
    pub(crate) async fn run<T>(mut self, code: impl Future<Output = T>) -> T {
        let mut code = pin!(code);
        std::future::poll_fn(|cx| {
            let begin = now();
            let polled: Poll<T> = code.as_mut().poll(cx);
            self.note(begin);
            polled
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back() {
        for kind in Kind::ALL {
            let segment = Segment {
                key: 7,
                activation: 3,
                turn: 9,
                part: 2,
                kind,
                thread: 1,
                begin: 5,
                end: 8,
            };
            assert_eq!(Segment::parse(&segment.to_string()), Some(segment));
        }
        for wrong in
            ["", "end 0", "7 3 9 2 alone 1 5", "7 3 9 2 alone 1 5 8 1", "7 3 9 2 asleep 1 5 8"]
        {
            assert_eq!(Segment::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_file_holds_every_poll() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("turns");
        let log = TurnLog::start(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Watched::new(7, 1, Kind::Alone).run(tokio::task::yield_now()));
        log.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last(), Some(&"end 0"));
        // Other tests of this process write no turns.
        let segments: Vec<Segment> = lines.iter().filter_map(|line| Segment::parse(line)).collect();
        assert_eq!(segments.iter().map(|s| (s.key, s.part)).collect::<Vec<_>>(), [(7, 0), (7, 1)]);
        assert!(segments[0].begin <= segments[0].end && segments[0].end <= segments[1].begin);
    }
}
