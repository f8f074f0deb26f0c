//! A sink as an argument of a call to another process.

use std::sync::Arc;

use emmer_net::world;
use emmer_streams::{Credit, Reader, StreamId, Writer};
use emmer_wire::codec;
use serde::de::{DeserializeOwned, Deserializer};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize, de};

use super::channel::Remote;
use super::sink::Sink;
use crate::calls::Node;
use crate::streams::{Hub, Place, ReadEnd, WriteEnd, at_encoding};

/// A sink on its way.
#[derive(Serialize, Deserialize)]
struct Travelling {
    #[serde(rename = "s")]
    stream: StreamId,
    /// The place of the reader.
    #[serde(rename = "p")]
    reader: Place,
    /// The credit that the writer begins with.
    #[serde(rename = "c")]
    credit: Credit,
}

impl<T: DeserializeOwned> Serialize for Sink<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(writing) = self.writing() else {
            return Err(S::Error::custom("a sink is passed on within its silo only"));
        };
        let travelling = at_encoding(|hub, here| {
            let stream = StreamId(world::random_bits());
            let config = hub.config_of_reader();
            let machine = Reader::new(hub.now(), stream, config);
            let end = ReadEnd::begin(hub, (None, stream), here, machine);
            writing.goes(Remote { hub: hub.clone(), end });
            let credit = Reader::initial(config.window);
            Travelling { stream, reader: here, credit }
        });
        let nowhere = || S::Error::custom("a sink travels as an argument of a method only");
        travelling.ok_or_else(nowhere)?.serialize(serializer)
    }
}

impl<'de, T: Serialize> Deserialize<'de> for Sink<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let travelling = Travelling::deserialize(deserializer)?;
        let node = Node::of_decoding();
        let Some((hub, here)) = node.streams().zip(node.place(None)) else {
            return Err(de::Error::custom("a sink arrives as an argument of a method only"));
        };
        if !hub.has_room_for(travelling.reader) {
            return Err(de::Error::custom(
                "as many streams of this process are open as may be (streams_max)",
            ));
        }
        Ok(Self::arrived(Arrived { hub: hub.clone(), here, travelling }, |out, value| {
            codec::encode_into(out, value)
        }))
    }
}

/// A sink that has arrived, and whose call has not begun.
pub(super) struct Arrived {
    hub: Arc<Hub>,
    here: Place,
    travelling: Travelling,
}

impl Arrived {
    /// Begins to write.
    pub(super) fn begin(self) -> (Arc<Hub>, Arc<WriteEnd>) {
        let Self { hub, here, travelling: Travelling { stream, reader, credit } } = self;
        let machine = Writer::arrived(hub.now(), stream, credit, hub.config);
        let end = WriteEnd::begin(&hub, (Some(reader), stream), here, machine);
        // After the hub knows it: a silo that leaves now finds it there.
        if hub.is_leaving() {
            end.close(&hub, false);
        }
        (hub, end)
    }
}
