//! Messages between the ends of streams, and the processes that they go to.

use emmer_core::SiloAddress;
use emmer_streams::{StreamId, ToReader, ToWriter};
use serde::{Deserialize, Serialize};

use super::links::SetId;

/// A process that has ends of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The silo, or the gateway of the client.
    #[serde(rename = "s")]
    pub(crate) silo: SiloAddress,
    /// The number of the client, which it draws when it begins. None: the silo itself.
    #[serde(rename = "c", default)]
    pub(crate) client: Option<u64>,
}

impl Place {
    pub(crate) const fn silo(silo: SiloAddress) -> Self {
        Self { silo, client: None }
    }
}

/// A message on the channel of streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StreamMessage {
    #[serde(rename = "p")]
    Parcel(Parcel),
    /// Gateway to silo: this client is not connected.
    #[serde(rename = "n")]
    NoClient(Place),
}

/// Messages of one process to another one. A gateway passes those of its clients on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    #[serde(rename = "t")]
    pub(crate) to: Place,
    #[serde(rename = "f")]
    pub(crate) from: Place,
    #[serde(rename = "p")]
    pub(crate) parts: Vec<Part>,
}

/// A message to one end of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    #[serde(rename = "r")]
    ToReader(ToReader),
    #[serde(rename = "w")]
    ToWriter(ToWriter),
    /// A silo begins a link, of this number.
    #[serde(rename = "l")]
    Link(StreamId),
    /// The observer of this number is no longer in a set.
    #[serde(rename = "x")]
    Forget(SetId, u64),
}

impl Part {
    /// Bytes of the values in it.
    fn bytes(&self) -> usize {
        match self {
            Self::ToReader(ToReader::Values { block, .. }) => block.bytes.len(),
            _ => 0,
        }
    }
}

/// The way to other processes.
pub(crate) trait Way: Send + Sync {
    /// Sends a parcel, if it can be sent now. It may be lost.
    fn post(&self, parcel: Parcel);

    /// Returns true if messages of `from` to this place have to wait: their connection is full.
    fn is_full(&self, from: Place, to: Place) -> bool;
}

/// A parcel is not filled further once it has this many bytes of values.
const PARCEL_BYTES: usize = 128 << 10;

/// Messages that go out together.
#[derive(Default)]
pub(crate) struct Outbox(Vec<(Parcel, usize)>);

impl Outbox {
    pub(crate) fn put(&mut self, from: Place, to: Place, part: Part) {
        let bytes = part.bytes();
        let mut parcels = self.0.iter_mut().rev();
        let open = parcels.find(|(parcel, _)| parcel.to == to && parcel.from == from);
        match open {
            Some((parcel, filled)) if *filled < PARCEL_BYTES => {
                parcel.parts.push(part);
                *filled += bytes;
            }
            _ => self.0.push((Parcel { to, from, parts: vec![part] }, bytes)),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn post(self, way: &dyn Way) {
        for (parcel, _) in self.0 {
            way.post(parcel);
        }
    }
}
