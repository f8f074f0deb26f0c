//! The identity of a silo: `ip:port:epoch` (membership description, step 1).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hash;

/// The identity of one incarnation of a silo.
///
/// The epoch is the wall-clock time of the start in microseconds since 1970: a restart on the same
/// `ip:port` has a larger one. Ordered by ip (IPv4 in its mapped form), port, epoch. IPv4-mapped
/// IPv6 addresses are normalised to IPv4, so that one host has one identity.
///
/// Text form: `127.0.0.1:11111:1795265085000000`, `[::1]:11111:1795265085000000`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiloAddress {
    /// As IPv6, IPv4 in its mapped form: addresses are compared more often than anything else is
    /// done with them.
    ip: u128,
    port: u16,
    epoch: u64,
}

impl SiloAddress {
    /// The identity of the incarnation `epoch` of the silo at `endpoint`.
    pub fn new(endpoint: SocketAddr, epoch: u64) -> Self {
        let ip = match endpoint.ip().to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Self { ip: ip.to_bits(), port: endpoint.port(), epoch }
    }

    /// The IP address other silos connect to.
    pub const fn ip(&self) -> IpAddr {
        self.ip_v6().to_canonical()
    }

    /// The silo-to-silo TCP port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The incarnation: start time in microseconds since 1970. Also called generation.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The socket address other silos connect to.
    pub const fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.port)
    }

    /// Returns true if `other` is an incarnation of the same `ip:port`, this one included.
    pub fn same_endpoint(&self, other: &Self) -> bool {
        self.ip == other.ip && self.port == other.port
    }

    /// Returns true if `other` is a later incarnation of the same `ip:port`.
    pub fn is_succeeded_by(&self, other: &Self) -> bool {
        self.same_endpoint(other) && self.epoch < other.epoch
    }

    /// A stable 64-bit hash under `seed`: 16 address bytes (IPv4 mapped), port and epoch
    /// little-endian.
    pub fn stable_hash(&self, seed: u64) -> u64 {
        let mut bytes = [0u8; 26];
        bytes[..16].copy_from_slice(&self.ip_v6().octets());
        bytes[16..18].copy_from_slice(&self.port.to_le_bytes());
        bytes[18..].copy_from_slice(&self.epoch.to_le_bytes());
        hash::stable64_seeded(&bytes, seed)
    }

    /// The address as IPv6, IPv4 in its mapped form: the fixed-size form on the wire.
    pub const fn ip_v6(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.ip)
    }
}

impl fmt::Display for SiloAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.endpoint(), self.epoch)
    }
}

impl fmt::Debug for SiloAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text was not a silo address. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a silo address: expected ip:port:epoch, as in 10.0.0.1:11111:1795265085000000"
)]
pub struct ParseSiloAddressError {
    text: String,
}

impl FromStr for SiloAddress {
    type Err = ParseSiloAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseSiloAddressError { text: text.chars().take(80).collect() };
        let (endpoint, epoch) = text.rsplit_once(':').ok_or_else(fail)?;
        let digits_only = !epoch.is_empty() && epoch.bytes().all(|b| b.is_ascii_digit());
        let endpoint: SocketAddr = endpoint.parse().map_err(|_| fail())?;
        if !digits_only {
            return Err(fail());
        }
        Ok(Self::new(endpoint, epoch.parse().map_err(|_| fail())?))
    }
}

impl Serialize for SiloAddress {
    /// As `(16 address bytes, port, epoch)` in binary formats, as text in human-readable ones.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() {
            s.collect_str(self)
        } else {
            (u128::from(self.ip_v6()).to_be_bytes(), self.port, self.epoch).serialize(s)
        }
    }
}

impl<'de> Deserialize<'de> for SiloAddress {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
        } else {
            let (ip, port, epoch) = <([u8; 16], u16, u64)>::deserialize(d)?;
            Ok(Self::new(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port), epoch))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_both_families() {
        for text in ["127.0.0.1:11111:7", "[::1]:11111:1795265085000000", "[fe80::1]:1:0"] {
            let address: SiloAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn mapped_ipv4_is_the_same_silo() {
        let mapped: SiloAddress = "[::ffff:10.0.0.1]:5:6".parse().unwrap();
        assert_eq!(mapped, "10.0.0.1:5:6".parse().unwrap());
    }

    #[test]
    fn refuses_what_is_not_an_address() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1:5",
            "10.0.0.1:5:",
            "10.0.0.1:5:+6",
            "::1:5:6",
            "a:5:6",
            "10.0.0.1:70000:1",
        ] {
            let error = text.parse::<SiloAddress>().unwrap_err();
            assert!(error.to_string().contains("ip:port:epoch"), "{error}");
        }
    }

    #[test]
    fn hash_vectors_are_frozen() {
        let a: SiloAddress = "127.0.0.1:11111:1".parse().unwrap();
        let b: SiloAddress = "[2001:db8::7]:30000:1795265085000000".parse().unwrap();
        assert_eq!([a.stable_hash(0), a.stable_hash(1), b.stable_hash(0)], VECTORS);
    }

    const VECTORS: [u64; 3] =
        [5_734_865_937_419_634_254, 3_498_541_285_693_014_787, 1_047_202_068_865_587_069];

    #[test]
    fn succession_is_by_epoch_on_one_endpoint() {
        let old: SiloAddress = "10.0.0.1:5:6".parse().unwrap();
        let new: SiloAddress = "10.0.0.1:5:7".parse().unwrap();
        let other: SiloAddress = "10.0.0.1:6:7".parse().unwrap();
        assert!(
            old.is_succeeded_by(&new) && !new.is_succeeded_by(&old) && !old.is_succeeded_by(&other)
        );
    }
}
