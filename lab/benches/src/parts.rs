//! Single parts of a call, ready to be run again and again: what the criterion benches time and the
//! guard counts the instructions of.
//!
//! Nothing here waits: no thread, no socket and no timer takes part, so that the number of
//! instructions is the same in every run.

use std::future::{Future, IntoFuture};
use std::hint::black_box;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use emmer::membership::View;
use emmer::options::StoreSource;
use emmer::store::{MemoryStore, SystemStore};
use emmer::tables::{GrainId, SiloAddress, SiloEntry, SiloStatus};
use emmer::{Client, Silo};
use emmer_core::ring::Ring;
use emmer_core::{GrainTypeId, Instant};
use emmer_directory::{Config, Directory, Outcome, Token};
use emmer_wire::{
    CallChain, RequestFlags, RequestHeader, codec, decode_frame, decode_request, encode_request,
};
use tokio::runtime::Runtime;

use crate::directory::{grain_ids, silo_address, sole_owner};
use crate::grains::{Cell, CellRef};
use crate::job::runtime;
use crate::ring::{rows, view};
use crate::{Result, silos};

/// The largest frame that is decoded here.
const FRAME_BYTES_MAX: u32 = 1 << 20;

/// A silo on a runtime that stands still while something is measured.
#[derive(Debug)]
pub struct Local {
    runtime: Runtime,
    silo: Silo,
    cell: CellRef,
}

impl Local {
    /// A silo with one warm grain.
    ///
    /// # Errors
    /// Error of the start.
    pub fn start() -> Result<Self> {
        let runtime = runtime(1)?;
        let (silo, cell) = runtime.block_on(async {
            let silo = silos::alone().await?;
            let cell = silo.grain::<dyn Cell>(1u64);
            cell.bump(0).await?;
            Result::Ok((silo, cell))
        })?;
        Ok(Self { runtime, silo, cell })
    }

    /// Calls the warm grain `count` times; each call ends in its first poll.
    ///
    /// # Errors
    /// A call that did not.
    pub fn calls(&self, count: u64) -> Result<u64> {
        let _entered = self.runtime.enter();
        let mut sum = 0;
        for n in 0..count {
            let Poll::Ready(answer) = poll_once(self.cell.bump(n).into_future()) else {
                return Err("a warm call did not end in its first poll".into());
            };
            sum += answer?;
        }
        Ok(sum)
    }

    /// Calls each of these grains, which were never called before.
    ///
    /// # Errors
    /// The first call that failed.
    pub fn activations(&self, keys: Range<u64>) -> Result<u64> {
        let grains = self.silo.grains();
        self.runtime.block_on(async {
            let mut sum = 0;
            for key in keys {
                sum += grains.grain::<dyn Cell>(key).bump(key).await?;
            }
            Ok(sum)
        })
    }
}

/// A client and the silo that it calls, over a connection, both on one thread. The numbers of two
/// runs differ by some percent: it depends on the kernel how many wake-ups a call takes.
#[derive(Debug)]
pub struct Remote {
    runtime: Runtime,
    _silo: Silo,
    _client: Client,
    cell: CellRef,
}

impl Remote {
    /// A client that has found its grain.
    ///
    /// # Errors
    /// The start or the connecting failed.
    pub fn start() -> Result<Self> {
        let runtime = runtime(1)?;
        let (silo, client, cell) = runtime.block_on(async {
            let store: Arc<dyn SystemStore> = Arc::new(MemoryStore::new());
            let builder = silos::builder(StoreSource::Opened(store.clone()))?;
            let silo = silos::hosting(builder).gateway("127.0.0.1:0").start().await?;
            let client = silos::client(StoreSource::Opened(store)).await?;
            let cell = client.grain::<dyn Cell>(1u64);
            cell.bump(0).await?;
            Result::Ok((silo, client, cell))
        })?;
        Ok(Self { runtime, _silo: silo, _client: client, cell })
    }

    /// Calls the grain `count` times, one call after the other.
    ///
    /// # Errors
    /// The first call that failed.
    pub fn calls(&self, count: u64) -> Result<u64> {
        self.runtime.block_on(async {
            let mut sum = 0;
            for n in 0..count {
                sum += self.cell.bump(n).await?;
            }
            Ok(sum)
        })
    }
}

/// Switches traces on for this process, with OpenTelemetry behind them and a collector that is not
/// there: this share of the calls begins one.
///
/// # Errors
/// They are on already.
#[cfg(feature = "traces")]
pub fn record_traces(share: f64) -> Result<Runtime> {
    use tracing_subscriber::layer::SubscriberExt;

    let runtime = runtime(1)?;
    let entered = runtime.enter();
    let otlp = emmer::telemetry::Otlp::to("http://127.0.0.1:9").traces(share).start()?;
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(otlp.layer()))?;
    drop(entered);
    Ok(runtime)
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Requests of 100 bytes, as one connection sends them.
#[derive(Debug)]
pub struct Frames {
    header: RequestHeader,
    body: Bytes,
    out: BytesMut,
}

impl Frames {
    /// The requests of one caller to one grain.
    pub fn new() -> Self {
        let header = RequestHeader {
            correlation: 7,
            target: GrainId::new(GrainTypeId::of("bench-echo"), 42u64),
            method: 0x0102_0304,
            flags: RequestFlags::NONE,
            deadline_ms: 30_000,
            forwards: 0,
            expect_view: 12,
            chain: CallChain::EMPTY,
            trace: None,
        };
        Self { header, body: Bytes::from(vec![7u8; 100]), out: BytesMut::with_capacity(1 << 20) }
    }

    /// Encodes `count` requests; how many bytes they take.
    ///
    /// # Errors
    /// Never: the body is bytes.
    pub fn encode(&mut self, count: u64) -> Result<usize> {
        self.out.clear();
        for _ in 0..count {
            encode_request(&mut self.out, &self.header, |out| codec::encode_into(out, &self.body))?;
        }
        Ok(self.out.len())
    }

    /// Bytes that [`encode`](Self::encode) has encoded.
    pub fn encoded(&self) -> BytesMut {
        self.out.clone()
    }
}

impl Default for Frames {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes frames, their headers and their bodies to the end; how many there were.
///
/// # Errors
/// Bytes that [`Frames`] has not encoded.
pub fn decode(mut input: BytesMut) -> Result<u64> {
    let mut count = 0;
    while let Some(frame) = decode_frame(&mut input, FRAME_BYTES_MAX)? {
        let (header, body) = decode_request(frame.payload)?;
        let body: Bytes = codec::decode(&body)?;
        black_box((header, body));
        count += 1;
    }
    Ok(count)
}

/// A silo's part in a change of view of a large cluster: the rows become a view, and the directory
/// takes it.
#[derive(Debug)]
pub struct Views {
    all: Vec<Arc<SiloEntry>>,
    directory: Directory,
    version: u64,
}

impl Views {
    /// Of a cluster of this number of silos.
    pub fn of(silos: usize) -> Self {
        let directory = Directory::new(silo_address(0), Config::default(), Instant::from_millis(1));
        let mut views = Self { all: rows(silos), directory, version: 0 };
        views.apply(1);
        views
    }

    /// Applies `count` views: in every second one the last silo is missing.
    pub fn apply(&mut self, count: u64) -> usize {
        let mut active = 0;
        for _ in 0..count {
            self.version += 1;
            let missing = usize::from(self.version.is_multiple_of(2));
            let view: View = view(self.version, &self.all[..self.all.len() - missing]);
            let silos: Vec<(SiloAddress, SiloStatus)> =
                view.members().iter().map(|row| (row.address, row.status)).collect();
            self.directory.handle_view(
                Instant::from_millis(self.version),
                view.version(),
                &silos,
                &[],
            );
            while self.directory.poll_effect().is_some() {}
            active += view.active_count();
        }
        active
    }
}

/// The directory of the only silo, with registered grains.
#[derive(Debug)]
pub struct Registered {
    directory: Directory,
    now: Instant,
    ids: Vec<GrainId>,
}

impl Registered {
    /// This number of grains.
    pub fn of(grains: u64) -> Self {
        let (mut directory, now) = sole_owner();
        let ids = grain_ids(grains);
        for (number, id) in (1..).zip(&ids) {
            directory.register(now, Token(number), id, number);
        }
        Self { directory, now, ids }
    }

    /// Looks every grain up; how many were found.
    pub fn look_up(&mut self) -> usize {
        let (directory, now) = (&mut self.directory, self.now);
        let found =
            |id| matches!(directory.lookup(now, Token(0), id), Some(Outcome::Found(Some(_))));
        self.ids.iter().map(found).filter(|found| *found).count()
    }
}

/// A ring of a large cluster, and hashes to look up.
#[derive(Debug)]
pub struct Owners {
    ring: Ring,
    hashes: Vec<u64>,
}

impl Owners {
    /// Of a cluster of this number of silos, with as many points each as the directory uses.
    pub fn of(silos: usize) -> Self {
        let points = Config::default().points_per_silo;
        let ring = Ring::with_points((0..silos).map(silo_address), 0, points);
        Self { ring, hashes: grain_ids(1_000).iter().map(GrainId::stable_hash).collect() }
    }

    /// Looks 1,000 owners up; how many there are.
    pub fn look_up(&self) -> usize {
        self.hashes.iter().filter_map(|hash| black_box(self.ring.owner(*hash))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_does_what_is_counted() {
        let local = Local::start().unwrap();
        assert_eq!(local.calls(10).unwrap(), (1..=10).sum::<u64>());
        assert_eq!(local.activations(100..110).unwrap(), (101..=110).sum::<u64>());
        let mut frames = Frames::new();
        let bytes = frames.encode(10).unwrap();
        assert!(bytes > 10 * 100 && bytes < 10 * 200, "{bytes} bytes");
        assert_eq!(decode(frames.encoded()).unwrap(), 10);
        assert_eq!(Views::of(100).apply(2), 99 + 100);
        assert_eq!(Registered::of(50).look_up(), 50);
        assert_eq!(Owners::of(10).look_up(), 1_000);
    }
}
