//! Silo entries as rows of the silo instances table, and back.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use emmer_core::{ClusterId, Duty, SiloAddress, SiloEntry, TableId, Timestamp, Vote};

use crate::table::{Row, Value};

/// The row key of the version row.
pub const VERSION_ROW: &str = "VersionRow";

/// Why a row cannot be written or understood, in words.
type Text<T> = Result<T, String>;

/// Behind the voter's name in SuspectingSilos: it knows that the process is gone.
const GONE: &str = " gone";

/// The row key of a silo: `ip-port-epoch` (table description).
pub(crate) fn row_key(silo: &SiloAddress) -> String {
    format!("{}-{}-{}", silo.ip(), silo.port(), silo.epoch())
}

/// The column of the version row with the table's identity. For a silo's row it is InstanceName. A
/// column of its own would be another schema, which older silos refuse.
const TABLE_ID: &str = "InstanceName";

/// The version row with MembershipVersion `number`.
pub(crate) fn version_row(cluster: &ClusterId, number: u64, table: TableId) -> Text<Row> {
    let number = i64::try_from(number).map_err(|_| format!("version {number} is out of range"))?;
    let row = Row::new(VERSION_ROW)
        .with("DeploymentId", Value::Text(cluster.as_str().into()))
        .with("MembershipVersion", Value::Int(number));
    if table.is_unknown() {
        return Ok(row);
    }
    Ok(row.with(TABLE_ID, Value::Text(table.to_string().into())))
}

/// The identity in the version row; unknown if there is none.
pub(crate) fn table_id(row: &Row) -> Text<TableId> {
    text(row, TABLE_ID)?.map_or_else(|| Ok(TableId::default()), |id| parsed(&id, TABLE_ID))
}

/// MembershipVersion of the version row.
pub(crate) fn version_number(row: &Row) -> Text<u64> {
    number(row, "MembershipVersion")
}

/// The row of a silo.
pub(crate) fn to_row(cluster: &ClusterId, entry: &SiloEntry) -> Text<Row> {
    let silo = &entry.address;
    let epoch =
        i64::try_from(silo.epoch()).map_err(|_| format!("the epoch of {silo} is out of range"))?;
    let text = |t: &Arc<str>| Value::Text(t.clone());
    let made = |t: String| Value::Text(t.into());
    let voter = |v: &Vote| format!("{}{}", v.voter, if v.gone { GONE } else { "" });
    let voters = entry.votes.iter().map(|v| voter(v).into()).collect();
    let times = entry.votes.iter().map(|v| v.at.to_string().into()).collect();
    let mut row = Row::new(row_key(silo))
        .with("DeploymentId", Value::Text(cluster.as_str().into()))
        .with("Address", made(silo.ip().to_string()))
        .with("Port", Value::Int(silo.port().into()))
        .with("Generation", Value::Int(epoch))
        .with("HostName", text(&entry.host_name))
        .with("Status", made(entry.status.name().to_owned()))
        .with("ProxyPort", Value::Int(entry.proxy_port.into()))
        .with("Primary", made("false".to_owned()))
        .with("RoleName", text(&entry.role_name))
        .with("InstanceName", text(&entry.instance_name))
        .with("UpdateZone", Value::Int(entry.update_zone.into()))
        .with("FaultZone", Value::Int(entry.fault_zone.into()))
        .with("SuspectingSilos", Value::List(voters))
        .with("SuspectingTimes", Value::List(times))
        .with("StartTime", Value::Time(entry.start_time))
        .with("IAmAliveTime", Value::Time(entry.i_am_alive_time));
    if !entry.duty.is_full() {
        row.set("Duty", made(entry.duty.name().to_owned()));
    }
    Ok(row)
}

/// The silo of a row. Names and zones may be null (a foreign writer); what the protocol rests on
/// may not.
pub(crate) fn from_row(row: &Row) -> Text<SiloEntry> {
    let ip: IpAddr = parsed(&needed_text(row, "Address")?, "Address")?;
    let endpoint = SocketAddr::new(ip, number(row, "Port")?);
    let address = SiloAddress::new(endpoint, number(row, "Generation")?);
    if row_key(&address) != row.key() {
        return Err(format!("the row key does not say {address}"));
    }
    let start_time = time(row, "StartTime")?.ok_or("StartTime is null")?;
    Ok(SiloEntry {
        address,
        status: parsed(&needed_text(row, "Status")?, "Status")?,
        votes: votes(row)?,
        proxy_port: number(row, "ProxyPort")?,
        host_name: text(row, "HostName")?.unwrap_or_default(),
        role_name: text(row, "RoleName")?.unwrap_or_default(),
        instance_name: text(row, "InstanceName")?.unwrap_or_default(),
        update_zone: optional_number(row, "UpdateZone")?,
        fault_zone: optional_number(row, "FaultZone")?,
        duty: text(row, "Duty")?.map_or(Ok(Duty::Full), |duty| parsed(&duty, "Duty"))?,
        start_time,
        i_am_alive_time: time(row, "IAmAliveTime")?.unwrap_or(start_time),
    })
}

fn votes(row: &Row) -> Text<Vec<Vote>> {
    let voters = list(row, "SuspectingSilos")?;
    let times = list(row, "SuspectingTimes")?;
    if voters.len() != times.len() {
        return Err(format!(
            "{} SuspectingSilos but {} SuspectingTimes",
            voters.len(),
            times.len()
        ));
    }
    let vote = |(voter, at): (&Arc<str>, &Arc<str>)| {
        let at: Timestamp = parsed(at, "SuspectingTimes")?;
        let (voter, gone) = match voter.strip_suffix(GONE) {
            Some(voter) => (voter, true),
            None => (&**voter, false),
        };
        Ok(Vote { voter: parsed(voter, "SuspectingSilos")?, at, gone })
    };
    voters.iter().zip(times).map(vote).collect()
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str, column: &str) -> Text<T> {
    text.parse().map_err(|error| format!("{column}: {error}"))
}

fn text(row: &Row, column: &str) -> Text<Option<Arc<str>>> {
    match row.get(column) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!("{column} is {:?}", other.column_type())),
    }
}

fn needed_text(row: &Row, column: &str) -> Text<Arc<str>> {
    text(row, column)?.ok_or_else(|| format!("{column} is null"))
}

fn time(row: &Row, column: &str) -> Text<Option<Timestamp>> {
    match row.get(column) {
        None => Ok(None),
        Some(Value::Time(at)) => Ok(Some(*at)),
        Some(other) => Err(format!("{column} is {:?}", other.column_type())),
    }
}

fn list<'a>(row: &'a Row, column: &str) -> Text<&'a [Arc<str>]> {
    match row.get(column) {
        None => Ok(&[]),
        Some(Value::List(items)) => Ok(items),
        Some(other) => Err(format!("{column} is {:?}", other.column_type())),
    }
}

fn number<T: TryFrom<i64>>(row: &Row, column: &str) -> Text<T> {
    match row.get(column) {
        None => Err(format!("{column} is null")),
        Some(Value::Int(n)) => {
            T::try_from(*n).map_err(|_| format!("{column} is out of range: {n}"))
        }
        Some(other) => Err(format!("{column} is {:?}", other.column_type())),
    }
}

fn optional_number(row: &Row, column: &str) -> Text<i32> {
    if row.get(column).is_none() { Ok(0) } else { number(row, column) }
}

#[cfg(test)]
mod tests {
    use emmer_core::SiloStatus;

    use super::*;

    fn entry() -> SiloEntry {
        let silo: SiloAddress = "[2001:db8::7]:30000:1795265085000000".parse().unwrap();
        let at = Timestamp::from_millis(1_795_265_085_123);
        let mut entry = SiloEntry::new(silo, SiloStatus::ShuttingDown, at);
        entry.votes = vec![
            Vote { voter: silo, at, gone: false },
            Vote { voter: "10.0.0.1:1:2".parse().unwrap(), at, gone: true },
        ];
        entry.host_name = "host \"ä\"".into();
        entry.proxy_port = 30_001;
        entry.fault_zone = -3;
        entry.duty = Duty::Drained;
        entry
    }

    #[test]
    fn entries_survive_the_row() {
        let cluster: ClusterId = "prod".parse().unwrap();
        let row = to_row(&cluster, &entry()).unwrap();
        assert_eq!(row.key(), "2001:db8::7-30000-1795265085000000");
        assert_eq!(from_row(&row), Ok(entry()));
        crate::validate::row(&crate::silos::SILO_INSTANCES, &row).unwrap();
    }

    #[test]
    fn rows_that_make_no_sense_are_named() {
        let cluster: ClusterId = "prod".parse().unwrap();
        let good = to_row(&cluster, &entry()).unwrap();
        for (column, value, word) in [
            ("Duty", Value::Text("Idle".into()), "Idle"),
            ("Status", Value::Text("Alive".into()), "Alive"),
            ("Port", Value::Int(70_000), "70000"),
            ("Port", Value::Int(7), "row key"),
            ("Generation", Value::Int(-1), "-1"),
            ("SuspectingTimes", Value::List(vec![]), "2 SuspectingSilos"),
            ("Address", Value::Text("localhost".into()), "Address"),
        ] {
            let error = from_row(&good.clone().with(column, value)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let mut huge = entry();
        huge.address = SiloAddress::new(huge.address.endpoint(), u64::MAX);
        assert!(to_row(&cluster, &huge).is_err());
    }
}
