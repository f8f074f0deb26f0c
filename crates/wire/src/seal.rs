//! The seal of a silo's process, in a handshake over TLS.
//!
//! A certificate or a secret says that its owner is a silo; several silos may have the same. The
//! seal says which process it is: each draws a key when it starts, and signs each of its
//! connections with it. The key belongs to the silo if the process at the silo's address shows it.

use emmer_core::SiloAddress;

use crate::error::HeaderError;
use crate::read::Reader;
use crate::staged::Staged;

/// The words that every signed text begins with.
const CONTEXT: &[u8] = b"emmer seal 1";

/// Label of the TLS export that only the two ends of one connection know (RFC 8446, 7.5): 32 bytes,
/// without a context.
pub const SEAL_EXPORTER: &[u8] = b"EXPORTER-emmer-seal";

/// The public key of a silo's process, and its signature of this connection (Ed25519).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The key.
    pub key: [u8; 32],
    /// The signature of [`text`](Self::text).
    pub signature: [u8; 64],
}

impl Seal {
    /// The text that `silo` signs. `exported` is the TLS export of this connection
    /// ([`SEAL_EXPORTER`]); `dials` is true if the signer is the dialer. So no signature can be
    /// used a second time, by the other end or anywhere else.
    pub fn text(silo: SiloAddress, dials: bool, exported: &[u8; 32]) -> Vec<u8> {
        let side: &[u8] = if dials { b" dialer " } else { b" acceptor " };
        let (port, epoch) = (silo.port().to_le_bytes(), silo.epoch().to_le_bytes());
        [CONTEXT, side, exported, &silo.ip_v6().octets(), &port, &epoch].concat()
    }

    pub(crate) fn put(&self, out: &mut Staged<'_>) {
        out.put_u8(1);
        out.put_slice(&self.key);
        out.put_slice(&self.signature);
    }

    /// The seal, from a peer that knows the field.
    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Option<Self>, HeaderError> {
        const FIELD: &str = "the seal";
        if input.remaining() == 0 {
            return Ok(None);
        }
        match input.u8(FIELD)? {
            0 => Ok(None),
            1 => Ok(Some(Self { key: input.array(FIELD)?, signature: input.array(FIELD)? })),
            value => Err(HeaderError::Value { field: FIELD, value: u64::from(value) }),
        }
    }
}
