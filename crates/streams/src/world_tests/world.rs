//! One stream between two processes, and a network between them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use emmer_core::Instant;
use emmer_core::rng::SeededRng;

use crate::api::{Config, End, StreamId, Unwritable, Window};
use crate::message::{Block, ToReader, ToWriter};
use crate::reader::Reader;
use crate::writer::Writer;

const STREAM: StreamId = StreamId(7);

/// Faults of the network and of the two processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    /// The longest time on the way.
    pub(super) delay_max: Duration,
    /// The probability that a message comes twice.
    pub(super) double: f64,
    /// The probability that a message is lost.
    pub(super) lose: f64,
    /// The part of the time in which nothing gets through.
    pub(super) cut: f64,
    /// The probability that the process of one end dies, each second.
    pub(super) die: f64,
    /// The probability that an end is dropped by its application, each second.
    pub(super) leave: f64,
    /// The probability that the other end hears of the death of a process.
    pub(super) told: f64,
}

impl Faults {
    pub(super) const NONE: Self = Self {
        delay_max: Duration::from_micros(500),
        double: 0.0,
        lose: 0.0,
        cut: 0.0,
        die: 0.0,
        leave: 0.0,
        told: 1.0,
    };

    pub(super) fn drawn(seed: u64) -> Self {
        let mut dice = SeededRng::new(seed ^ 0xfa17);
        let mut some = |most: f64| if dice.chance(0.5) { dice.unit() * most } else { 0.0 };
        Self {
            double: some(0.2),
            lose: some(0.01),
            cut: some(0.1),
            die: some(0.02),
            leave: some(0.02),
            told: 1.0 - some(1.0),
            delay_max: Duration::from_secs_f64(0.000_5 + some(0.4)),
        }
    }
}

enum Parcel {
    ToReader(ToReader),
    ToWriter(ToWriter),
    WriterDied,
    ReaderDied,
    CallEnded,
}

/// The world. Its fields are what a test may set, and what it judges.
pub(super) struct World {
    pub(super) config: Config,
    /// False for an application that takes nothing.
    pub(super) reads: bool,
    /// The number of values that the writing application has.
    pub(super) values: u64,
    /// Time between two values of the writing application.
    pub(super) pause: Duration,
    /// The number of values that were put in, and given out.
    pub(super) written: u64,
    pub(super) read: u64,
    /// The end that the reading application was told.
    pub(super) end: Option<End>,
    /// True if the reading application, or its process, has gone.
    pub(super) is_reader_gone: bool,
    now: Instant,
    dice: SeededRng,
    faults: Faults,
    writer: Option<Writer>,
    reader: Option<Reader>,
    /// The end that the writing application was told.
    unwritable: Option<Unwritable>,
    is_writer_dead: bool,
    is_reader_dead: bool,
    is_writer_done: bool,
    /// True if the writing application has dropped its end before it had finished.
    has_left: bool,
    next_value: Instant,
    loses_values: bool,
    is_cut: bool,
    way: BTreeMap<(Instant, u64), Parcel>,
    parcels: u64,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let mut dice = SeededRng::new(seed);
        let window = Window {
            items: 1 + u32::try_from(dice.below(40)).unwrap(),
            bytes: 1 + u32::try_from(dice.below(2_000)).unwrap(),
        };
        let batch_bytes = 1 + dice.index(600);
        let config = Config { window, batch_bytes, ..Config::default() };
        let now = Instant::from_millis(1_000);
        // Half of the streams go the way of the call.
        let (reader, writer) = if dice.chance(0.5) {
            let writer = Writer::arrived(now, STREAM, Reader::initial(window), config);
            (Reader::new(now, STREAM, config), writer)
        } else {
            (Reader::arrived(now, STREAM, config), Writer::new(now, STREAM, config))
        };
        let pause = if dice.chance(0.5) {
            Duration::ZERO
        } else {
            dice.duration_below(Duration::from_millis(50))
        };
        Self {
            config,
            reads: true,
            values: dice.below(2_000),
            pause,
            written: 0,
            read: 0,
            end: None,
            is_reader_gone: false,
            now,
            dice,
            faults,
            writer: Some(writer),
            reader: Some(reader),
            unwritable: None,
            is_writer_dead: false,
            is_reader_dead: false,
            is_writer_done: false,
            has_left: false,
            next_value: now,
            loses_values: false,
            is_cut: false,
            way: BTreeMap::new(),
            parcels: 0,
        }
    }

    pub(super) fn unwritable(&self) -> Option<Unwritable> {
        self.unwritable.or_else(|| self.writer.as_ref().and_then(Writer::unwritable))
    }

    /// The most values in one batch: each has at least one byte.
    pub(super) fn batch_items_max(&self) -> u64 {
        self.config.batch_bytes as u64
    }

    /// Runs until both ends are over, or the time by which they must be.
    pub(super) fn run(mut self) -> Self {
        let long = Duration::from_secs(600);
        self.run_for(long);
        assert!(self.reader.is_none(), "the reader is over: {:?}", self.reader);
        assert!(self.writer.is_none(), "the writer is over: {:?}", self.writer);
        self
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        let mut second = self.now;
        while self.now < until {
            if self.now >= second {
                self.fate();
                second = self.now + Duration::from_secs(1);
            }
            self.work();
            if self.reader.is_none() && self.writer.is_none() {
                return;
            }
            let next = self.next_moment().unwrap_or(until).min(second).min(until);
            self.now = next.max(self.now + Duration::from_nanos(1));
            while self.way.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
                let Some((_, parcel)) = self.way.pop_first() else { break };
                self.arrive(parcel);
            }
        }
    }

    fn next_moment(&self) -> Option<Instant> {
        let way = self.way.first_key_value().map(|((at, _), _)| *at);
        let writer = self.writer.as_ref().and_then(Writer::poll_timeout);
        let reader = self.reader.as_ref().and_then(Reader::poll_timeout);
        let value = (!self.is_writer_done && self.next_value > self.now).then_some(self.next_value);
        [way, writer, reader, value].into_iter().flatten().min()
    }

    /// What befalls the two processes.
    fn fate(&mut self) {
        self.is_cut = self.dice.chance(self.faults.cut);
        if self.is_cut
            && let Some(reader) = &mut self.reader
            && self.dice.chance(0.5)
        {
            reader.handle_connection_lost(self.now);
        }
        if self.dice.chance(self.faults.die) {
            let is_told = self.dice.chance(self.faults.told);
            if self.dice.chance(0.5) {
                self.writer = None;
                self.is_writer_dead = true;
                self.is_writer_done = true;
                self.post_surely(Parcel::CallEnded);
                if is_told {
                    self.post_surely(Parcel::WriterDied);
                }
            } else {
                self.reader = None;
                self.is_reader_gone = true;
                self.is_reader_dead = true;
                self.post_surely(Parcel::CallEnded);
                if is_told {
                    self.post_surely(Parcel::ReaderDied);
                }
            }
        }
        if self.dice.chance(self.faults.leave) {
            if self.dice.chance(0.5) {
                self.drop_reader();
            } else if let Some(writer) = &mut self.writer {
                if self.dice.chance(0.5) {
                    writer.finish();
                } else {
                    writer.leave();
                    self.has_left = true;
                }
                self.values = self.written;
            }
        }
    }

    pub(super) fn drop_reader(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.stop();
            self.is_reader_gone = true;
        }
    }

    pub(super) const fn lose_next_values(&mut self) {
        self.loses_values = true;
    }

    /// The reader gets values that its writer had no credit for, or that contradict others.
    pub(super) fn forge(&mut self) {
        let first = match self.dice.below(3) {
            0 => self.read + 10_000,
            1 => u64::MAX,
            _ => self.read.saturating_sub(1),
        };
        let count = u32::try_from(2 + self.dice.below(1_000)).unwrap();
        let count = if first < 10_000 { count + 10_000 } else { count };
        let block = Block { count, bytes: Bytes::from(vec![0; count as usize]) };
        let forged =
            ToReader::Values { stream: STREAM, first, block, is_last: false, is_broken: false };
        self.arrive(Parcel::ToReader(forged));
    }

    /// Both applications, and what their ends have to send.
    fn work(&mut self) {
        let now = self.now;
        if let Some(writer) = &mut self.writer {
            writer.handle_timeout(now);
            self.write();
        }
        if let Some(reader) = &mut self.reader {
            reader.handle_timeout(now);
            self.read();
        }
        while let Some(message) = self.writer.as_mut().and_then(|w| w.poll_transmit(now)) {
            if let ToReader::Values { block, .. } = &message {
                let most = self.config.batch_bytes + 260;
                assert!(block.bytes.len() <= most, "a batch of {} bytes", block.bytes.len());
            }
            self.post(Parcel::ToReader(message));
        }
        while let Some(message) = self.reader.as_mut().and_then(|r| r.poll_transmit(now)) {
            self.post(Parcel::ToWriter(message));
        }
        if let Some(writer) = self.writer.take_if(|writer| writer.is_over()) {
            self.unwritable = writer.unwritable();
            self.is_writer_done = true;
            self.post_surely(Parcel::CallEnded);
        }
        let is_told = self.end.is_some() || self.is_reader_gone;
        self.reader.take_if(|reader| is_told && reader.is_over());
    }

    fn write(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        while self.written < self.values && self.next_value <= self.now && writer.has_room() {
            let (number, filling) = (self.written, self.dice.index(200));
            let fails = self.dice.chance(0.05);
            let put = writer.put(|out| {
                out.extend_from_slice(&number.to_le_bytes());
                out.push(u8::try_from(filling).unwrap());
                out.resize(out.len() + filling, 0);
                if fails { Err(()) } else { Ok(()) }
            });
            self.written += u64::from(put.is_ok());
            self.next_value = self.now + self.pause;
            // An application that never waits still takes time.
            if self.pause == Duration::ZERO && self.dice.chance(0.1) {
                self.next_value = self.now + Duration::from_micros(20);
            }
        }
        if self.written == self.values {
            writer.finish();
            self.is_writer_done = true;
        }
    }

    fn read(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        if self.is_reader_gone {
            return;
        }
        while self.reads
            && let Some(block) = reader.take()
        {
            let mut rest = &block.bytes[..];
            let mut count = 0;
            while let Some((number, behind)) = rest.split_first_chunk::<8>() {
                assert_eq!(u64::from_le_bytes(*number), self.read, "the order of values");
                rest = &behind[1 + usize::from(behind[0])..];
                self.read += 1;
                count += 1;
            }
            assert_eq!(count, block.count, "the values of a block");
            reader.taken(count.into(), block.bytes.len() as u64);
        }
        assert!(self.read <= self.written, "values that were never written");
        if let Some(end) = reader.end() {
            if end == End::Complete {
                let all = self.written == self.values && self.read == self.written;
                assert!(!self.has_left, "complete, and the writer has left");
                assert!(all, "complete with {} of {} values", self.read, self.values);
            }
            if let Some(before) = self.end.replace(end) {
                assert_eq!(before, end, "an end that changes");
            }
        }
    }

    fn post(&mut self, parcel: Parcel) {
        let is_values = matches!(parcel, Parcel::ToReader(ToReader::Values { .. }));
        if is_values && std::mem::take(&mut self.loses_values) {
            return;
        }
        if self.is_cut || self.dice.chance(self.faults.lose) {
            return;
        }
        if self.dice.chance(self.faults.double) {
            let again = match &parcel {
                Parcel::ToReader(message) => Parcel::ToReader(message.clone()),
                Parcel::ToWriter(message) => Parcel::ToWriter(*message),
                Parcel::WriterDied | Parcel::ReaderDied | Parcel::CallEnded => return,
            };
            self.post_surely(again);
        }
        self.post_surely(parcel);
    }

    fn post_surely(&mut self, parcel: Parcel) {
        let at = self.now + self.dice.duration_below(self.faults.delay_max);
        self.parcels += 1;
        self.way.insert((at, self.parcels), parcel);
    }

    fn arrive(&mut self, parcel: Parcel) {
        let now = self.now;
        match parcel {
            Parcel::ToReader(message) => match &mut self.reader {
                Some(reader) => reader.handle_message(now, message),
                None if self.is_reader_dead => {}
                None => {
                    if matches!(message, ToReader::Values { is_last: false, .. }) {
                        self.post(Parcel::ToWriter(ToWriter::Stop { stream: STREAM }));
                    }
                }
            },
            Parcel::ToWriter(message) => match &mut self.writer {
                Some(writer) => writer.handle_message(now, message),
                None if self.is_writer_dead => {}
                None => {
                    if matches!(message, ToWriter::Check { .. }) {
                        self.post(Parcel::ToReader(ToReader::Gone { stream: STREAM }));
                    }
                }
            },
            Parcel::CallEnded => {
                if let Some(reader) = &mut self.reader {
                    reader.handle_call_ended(now);
                }
                if let Some(writer) = &mut self.writer {
                    writer.handle_call_ended(now);
                }
            }
            Parcel::WriterDied => {
                if let Some(reader) = &mut self.reader {
                    reader.handle_process_lost();
                }
            }
            Parcel::ReaderDied => {
                if let Some(writer) = &mut self.writer {
                    writer.handle_process_lost();
                }
            }
        }
    }
}
