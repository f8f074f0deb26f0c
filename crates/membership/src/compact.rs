//! Rows as they travel between silos: tuples instead of named fields, because a view of thousands
//! of rows is sent to thousands of silos.
//!
//! A tuple of eight or nine, in this order: address, status, votes, gateway port, the three names,
//! the two zones as one pair, start time, IAmAliveTime relative to the start time (so are the times
//! of votes), and the duty unless it is full. New fields go to the end.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use emmer_core::{Duty, SiloAddress, SiloEntry, SiloStatus, Timestamp, Vote};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A silo's address in about 19 bytes: its IP as two numbers that are small for IPv4, port, epoch.
#[derive(Serialize, Deserialize)]
struct Address(u64, u64, u16, u64);

/// Bits that make the lower half of an IPv4-mapped address small.
const MAPPED: u64 = 0xffff_0000_0000;

impl From<SiloAddress> for Address {
    fn from(silo: SiloAddress) -> Self {
        let ip = match silo.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let [high, low] = halves(u128::from(ip));
        Self(high, low ^ MAPPED, silo.port(), silo.epoch())
    }
}

impl From<Address> for SiloAddress {
    fn from(Address(high, low, port, epoch): Address) -> Self {
        let ip = Ipv6Addr::from((u128::from(high) << 64) | u128::from(low ^ MAPPED));
        Self::new(SocketAddr::new(IpAddr::V6(ip), port), epoch)
    }
}

const fn halves(ip: u128) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = ip.to_be_bytes();
    [u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes([i, j, k, l, m, n, o, p])]
}

type Names = (Arc<str>, Arc<str>, Arc<str>);

#[derive(Serialize, Deserialize)]
struct Row(
    Address,
    SiloStatus,
    Vec<(Address, i64, bool)>,
    u16,
    Names,
    (i32, i32),
    i64,
    i64,
    #[serde(default, skip_serializing_if = "is_full")] Duty,
);

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_full(duty: &Duty) -> bool {
    duty.is_full()
}

impl From<&SiloEntry> for Row {
    fn from(row: &SiloEntry) -> Self {
        let since_start = |at: Timestamp| at.as_millis().wrapping_sub(row.start_time.as_millis());
        Self(
            row.address.into(),
            row.status,
            row.votes.iter().map(|v| (v.voter.into(), since_start(v.at), v.gone)).collect(),
            row.proxy_port,
            (row.host_name.clone(), row.role_name.clone(), row.instance_name.clone()),
            (row.update_zone, row.fault_zone),
            row.start_time.as_millis(),
            since_start(row.i_am_alive_time),
            row.duty,
        )
    }
}

impl From<Row> for SiloEntry {
    fn from(row: Row) -> Self {
        let Row(address, status, votes, proxy_port, names, zones, start, alive, duty) = row;
        Self {
            address: address.into(),
            status,
            votes: votes
                .into_iter()
                .map(|(voter, at, gone)| Vote {
                    voter: voter.into(),
                    at: Timestamp::from_millis(start.wrapping_add(at)),
                    gone,
                })
                .collect(),
            proxy_port,
            host_name: names.0,
            role_name: names.1,
            instance_name: names.2,
            update_zone: zones.0,
            fault_zone: zones.1,
            duty,
            start_time: Timestamp::from_millis(start),
            i_am_alive_time: Timestamp::from_millis(start.wrapping_add(alive)),
        }
    }
}

/// One row, for `#[serde(with)]`.
pub(crate) mod row {
    use super::{Arc, Deserialize, Deserializer, Row, Serialize, Serializer, SiloEntry};

    pub(crate) fn serialize<S: Serializer>(row: &Arc<SiloEntry>, s: S) -> Result<S::Ok, S::Error> {
        Row::from(&**row).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<SiloEntry>, D::Error> {
        Ok(Arc::new(Row::deserialize(d)?.into()))
    }
}

/// A list of rows, for `#[serde(with)]`.
pub(crate) mod rows {
    use super::{Arc, Deserialize, Deserializer, Row, Serializer, SiloEntry};

    pub(crate) fn serialize<S: Serializer>(
        rows: &[Arc<SiloEntry>],
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(rows.iter().map(|row| Row::from(&**row)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Vec<Arc<SiloEntry>>, D::Error> {
        Ok(Vec::<Row>::deserialize(d)?.into_iter().map(|row| Arc::new(row.into())).collect())
    }
}
