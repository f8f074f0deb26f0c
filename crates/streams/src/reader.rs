//! The end that values are taken from.

use emmer_core::Instant;

use crate::api::{Config, Credit, End, Lost, StreamId, Window};
use crate::arrivals::Arrivals;
use crate::message::{Block, ToReader, ToWriter};

/// The reading end of a stream.
///
/// The shell makes it before the writer's process can hear of it, and knows that process from the
/// first message on. It sends what [`poll_transmit`](Self::poll_transmit) returns after each input.
/// The application takes blocks by [`take`](Self::take), and tells by [`taken`](Self::taken) what
/// it has read of them. Once no block is left, [`end`](Self::end) says how the stream ended.
#[derive(Debug)]
pub struct Reader {
    stream: StreamId,
    config: Config,
    arrivals: Arrivals,
    /// Totals of what the application has read.
    taken: Credit,
    /// The credit that the writer was sent last.
    given: Credit,
    /// True once the writer was heard: its process is known then.
    is_attached: bool,
    /// Time at which the writer was heard last. Before the first time: at which waiting began.
    heard: Instant,
    /// Time at which the writer was sent something last.
    spoken: Instant,
    /// Doubt about the writer: it is asked as soon as may be.
    doubt: Option<Doubt>,
    /// True if the application still waits for the call that the writer was an argument of.
    is_call_open: bool,
    end: Option<End>,
    /// True if the writer was dropped before it had finished.
    is_broken: bool,
    /// True if the writer is still to hear that the reader has ended.
    owes_stop: bool,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Time of the next question.
    ask: Instant,
    /// The loss, if the writer is not further when it is asked again.
    suspected: Option<Suspected>,
}

#[derive(Clone, Copy, Debug)]
struct Suspected {
    /// Time from which the suspicion counts.
    from: Instant,
    why: Lost,
    /// The number of values that have to be there by then.
    wanted: u64,
}

impl Reader {
    /// The reader that came as an argument of a call, from a writer in a known process. It says at
    /// once that it is there.
    pub fn arrived(now: Instant, stream: StreamId, config: Config) -> Self {
        let doubt = Some(Doubt { ask: now, suspected: None });
        Self { is_attached: true, doubt, ..Self::new(now, stream, config) }
    }

    /// The reader of a stream whose writer is an argument of a call, and begins with
    /// [`initial`](Self::initial) credit.
    pub fn new(now: Instant, stream: StreamId, config: Config) -> Self {
        Self {
            stream,
            config,
            arrivals: Arrivals::default(),
            taken: Credit::default(),
            given: Self::initial(config.window),
            is_attached: false,
            heard: now,
            spoken: now,
            doubt: None,
            is_call_open: true,
            end: None,
            is_broken: false,
            owes_stop: false,
        }
    }

    /// The credit that a writer begins with.
    pub fn initial(window: Window) -> Credit {
        Credit::after(window, 0, 0)
    }

    /// A message from the writer.
    pub fn handle_message(&mut self, now: Instant, message: ToReader) {
        if self.end.is_some() {
            // A writer that goes on has not heard of the end.
            let is_lost = matches!(self.end, Some(End::Lost(_)));
            self.owes_stop |= is_lost && matches!(message, ToReader::Values { is_last: false, .. });
            return;
        }
        self.heard = now;
        self.is_attached = true;
        match message {
            ToReader::Values { first, block, is_last, is_broken, .. } => {
                self.is_broken |= is_broken;
                match self.arrivals.take(first, block, is_last, self.given) {
                    Err(why) => self.lose(why),
                    Ok(()) if self.arrivals.are_complete() => {
                        let left = End::Lost(Lost::Left);
                        self.finish_with(if self.is_broken { left } else { End::Complete });
                    }
                    Ok(()) if self.arrivals.have_gap() => self.doubt(now),
                    Ok(()) => {}
                }
            }
            ToReader::Sent { items, .. } => self.handle_told(now, Lost::Message, items),
            ToReader::Gone { .. } => self.handle_told(now, Lost::Writer, u64::MAX),
        }
    }

    /// The writer's process has said that `wanted` values were sent, or that the writer is gone.
    /// Values may still be on the way, behind this message.
    fn handle_told(&mut self, now: Instant, why: Lost, wanted: u64) {
        if wanted <= self.arrivals.in_order() && !self.arrivals.have_gap() {
            self.doubt = None;
            return;
        }
        let known = self.doubt.and_then(|doubt| doubt.suspected);
        let suspected = match known {
            Some(known) if self.arrivals.in_order() < known.wanted => {
                if now >= known.from {
                    self.lose(known.why);
                    return;
                }
                known
            }
            _ => Suspected { from: now + self.config.doubt, why, wanted },
        };
        self.doubt = Some(Doubt { ask: suspected.from, suspected: Some(suspected) });
    }

    /// The call that the writer was an argument of has ended, well or not. The writer may have
    /// gone with it, or was never made.
    pub fn handle_call_ended(&mut self, now: Instant) {
        self.is_call_open = false;
        if !self.is_attached {
            self.heard = now;
        }
        self.doubt(now);
    }

    /// A connection to the writer's process was lost, perhaps with messages.
    pub fn handle_connection_lost(&mut self, now: Instant) {
        self.doubt(now);
    }

    /// The writer's process, or the gateway between, has ended.
    pub fn handle_process_lost(&mut self) {
        if self.end.is_none() {
            self.finish_with(End::Lost(Lost::Process));
        }
    }

    /// The application has dropped its end.
    pub fn stop(&mut self) {
        self.arrivals.forget_all();
        if self.end.is_none() {
            self.lose(Lost::Writer);
        }
    }

    /// Asks the writer as soon as may be.
    fn doubt(&mut self, now: Instant) {
        if self.end.is_none() && self.doubt.is_none() {
            self.doubt = Some(Doubt { ask: now, suspected: None });
        }
    }

    /// Ends the stream and tells its writer.
    fn lose(&mut self, why: Lost) {
        // An unknown writer gets its stop when its first message arrives.
        self.owes_stop = self.is_attached;
        self.finish_with(End::Lost(why));
    }

    fn finish_with(&mut self, end: End) {
        self.arrivals.forget_early();
        self.doubt = None;
        self.end = Some(end);
    }

    /// The next values in order.
    pub fn take(&mut self) -> Option<Block> {
        self.arrivals.next()
    }

    /// Returns true if [`take`](Self::take) has values.
    pub fn has_values(&self) -> bool {
        self.arrivals.has_ready()
    }

    /// The application has read values: there is room for as many.
    pub fn taken(&mut self, items: u64, bytes: u64) {
        self.taken.items += items;
        self.taken.bytes += bytes;
    }

    /// Returns true if values may be missing after those that have arrived.
    pub const fn is_lost(&self) -> bool {
        matches!(self.end, Some(End::Lost(_)))
    }

    /// The end, once all values before it were given out.
    pub fn end(&self) -> Option<End> {
        self.end.filter(|_| !self.arrivals.has_ready())
    }

    /// Returns true when nothing is left to do but to give out what has arrived.
    pub const fn is_over(&self) -> bool {
        self.end.is_some() && !self.owes_stop
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.end.is_none() && now >= self.silent_at() {
            self.lose(if self.is_attached { Lost::Silence } else { Lost::Writer });
        }
    }

    /// Time at which silence ends the stream. A writer is awaited for as long as its call.
    fn silent_at(&self) -> Instant {
        let waits = !self.is_attached && self.is_call_open;
        if waits { Instant::from_nanos(u64::MAX) } else { self.heard + self.config.silence }
    }

    /// The next message to the writer; None while its process is not known.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<ToWriter> {
        let stream = self.stream;
        if !self.is_attached {
            return None;
        }
        if self.end.is_some() {
            return std::mem::take(&mut self.owes_stop).then_some(ToWriter::Stop { stream });
        }
        let credit = Credit::after(self.config.window, self.taken.items, self.taken.bytes);
        if now >= self.check_at() {
            self.speak(now, credit);
            if let Some(doubt) = &mut self.doubt {
                doubt.ask = now + self.config.doubt;
            }
            return Some(ToWriter::Check { stream, credit });
        }
        let more_items = credit.items - self.given.items;
        let more_bytes = credit.bytes - self.given.bytes;
        let is_worth_it = 2 * more_items >= u64::from(self.config.window.items)
            || 2 * more_bytes >= u64::from(self.config.window.bytes);
        if !is_worth_it || credit == self.given {
            return None;
        }
        self.speak(now, credit);
        Some(ToWriter::Credit { stream, credit })
    }

    fn speak(&mut self, now: Instant, credit: Credit) {
        self.given = credit;
        self.spoken = now;
    }

    /// Time of the next question.
    fn check_at(&self) -> Instant {
        let regular = self.spoken + self.config.check_every;
        self.doubt.map_or(regular, |doubt| doubt.ask.min(regular))
    }

    /// Time at which [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) are wanted, whatever arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        let silent = self.silent_at();
        Some(if self.is_attached { silent.min(self.check_at()) } else { silent })
    }
}
