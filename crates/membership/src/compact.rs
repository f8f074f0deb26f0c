//! Rows as they travel between silos: tuples instead of named fields, because a view of thousands of rows is sent to
//! thousands of silos.
//!
//! A tuple of ten, in this order: address, status, votes, gateway port, the three names, the two zones as one pair, start
//! time, IAmAliveTime as its distance from the start time. New fields go to the end of the pair of zones' successor, never
//! between.

use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, Timestamp, Vote};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

type Names = (Arc<str>, Arc<str>, Arc<str>);

#[derive(Serialize, Deserialize)]
struct Row(SiloAddress, SiloStatus, Vec<(SiloAddress, i64)>, u16, Names, (i32, i32), i64, i64);

impl From<&SiloEntry> for Row {
    fn from(row: &SiloEntry) -> Self {
        Self(
            row.address,
            row.status,
            row.votes.iter().map(|v| (v.voter, v.at.as_millis())).collect(),
            row.proxy_port,
            (row.host_name.clone(), row.role_name.clone(), row.instance_name.clone()),
            (row.update_zone, row.fault_zone),
            row.start_time.as_millis(),
            row.i_am_alive_time.as_millis().wrapping_sub(row.start_time.as_millis()),
        )
    }
}

impl From<Row> for SiloEntry {
    fn from(row: Row) -> Self {
        let Row(address, status, votes, proxy_port, names, zones, start, alive) = row;
        Self {
            address,
            status,
            votes: votes
                .into_iter()
                .map(|(voter, at)| Vote { voter, at: Timestamp::from_millis(at) })
                .collect(),
            proxy_port,
            host_name: names.0,
            role_name: names.1,
            instance_name: names.2,
            update_zone: zones.0,
            fault_zone: zones.1,
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

    pub(crate) fn serialize<S: Serializer>(rows: &[Arc<SiloEntry>], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(rows.iter().map(|row| Row::from(&**row)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Arc<SiloEntry>>, D::Error> {
        Ok(Vec::<Row>::deserialize(d)?.into_iter().map(|row| Arc::new(row.into())).collect())
    }
}
