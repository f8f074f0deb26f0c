//! Calls of methods that the program does not know by type: their names come from the admin
//! interface, and their arguments and answers are MessagePack.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use emmer_core::{GrainId, GrainTypeId};
use emmer_wire::CodecError;
use parking_lot::Mutex;

use super::reference::{GrainFactory, RawRef};
use crate::admin::{GrainName, MethodLook};
use crate::calls::outset::no_output;
use crate::calls::{CallHead, Way};
use crate::hosting::{Has, Slot};
use crate::turn::{CallError, Failure, KeyKind, MethodInfo, NoError};

/// Number of methods that one process calls by name, at most: each stays in memory.
const METHODS_MAX: usize = 10_000;

/// Methods by the grain type, `Interface.method` and the number.
type Known = HashMap<(String, String, u32), &'static MethodInfo>;

/// Methods that were called by name.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// A method as calls need it. It stays in memory.
fn method_of(grain_type: &str, look: &MethodLook) -> Option<&'static MethodInfo> {
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    let key = (grain_type.to_owned(), format!("{}.{}", look.interface, look.name), look.id);
    if let Some(method) = known.get(&key) {
        return Some(method);
    }
    if known.len() >= METHODS_MAX {
        return None;
    }
    let keep = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let method: &'static MethodInfo = Box::leak(Box::new(MethodInfo {
        interface: keep(&look.interface),
        grain_type: keep(grain_type),
        name: keep(&look.name),
        id: look.id,
        exclusive: look.is_exclusive,
        streams: look.is_stream,
        key: KeyKind::Text,
        arguments: &[],
        returns: "",
    }));
    known.insert(key, method);
    Some(method)
}

/// The slot of a call without types.
#[derive(Default)]
struct RawSlot {
    args: Option<Bytes>,
    output: Option<Bytes>,
}

impl Slot for RawSlot {
    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        if let Some(args) = &self.args {
            out.extend_from_slice(args);
        }
        Ok(())
    }

    fn encode_output(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        if let Some(output) = &self.output {
            out.extend_from_slice(output);
        }
        Ok(())
    }

    fn decode_output(&mut self, body: &[u8]) -> Result<(), CodecError> {
        self.output = Some(Bytes::copy_from_slice(body));
        Ok(())
    }

    fn has(&self) -> Has {
        match (&self.args, &self.output) {
            (_, Some(_)) => Has::Output,
            (Some(_), None) => Has::Args,
            (None, None) => Has::Nothing,
        }
    }

    fn boxed(&mut self) -> Box<dyn Slot> {
        Box::new(std::mem::take(self))
    }

    fn take(&mut self, other: &mut dyn Slot) {
        if let Some(other) = other.as_any().downcast_mut::<Self>() {
            *self = std::mem::take(other);
        }
    }

    fn drop_args(&mut self) {
        self.args = None;
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn as_any(&mut self) -> &mut (dyn Any + Send) {
        self
    }
}

/// Calls a method by name. `arguments` are a MessagePack map by the names of the arguments; the
/// answer is the method's return value as MessagePack.
pub(crate) async fn call_named(
    grains: &GrainFactory,
    grain: &GrainName,
    method: &MethodLook,
    arguments: Bytes,
    timeout: Option<Duration>,
) -> Result<Bytes, CallError<NoError>> {
    let info = method_of(&grain.grain_type, method)
        .ok_or_else(|| Failure::refused("this process has called too many methods by name"))?;
    let id = GrainId::new(GrainTypeId::of(&grain.grain_type), grain.key.clone());
    let reference = RawRef::new(grains.0.clone(), id, Cow::Borrowed(info.grain_type));
    let mut target = reference.aim();
    target.bind();
    let mut way = Way::new(CallHead { target, method: info, timeout, cancel: None, extra: None });
    let mut slot = RawSlot { args: Some(arguments), output: None };
    match poll_fn(|cx| way.poll(&mut slot, cx)).await {
        Ok(()) => slot.output.ok_or_else(|| no_output(info)),
        Err(failure) => Err(failure.into_call_error()),
    }
}
