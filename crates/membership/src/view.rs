//! A view: the membership table as it was at one version. Immutable, shared, sorted.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion, hash};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::compact;
use crate::index::Index;
use crate::snapshot::TableSnapshot;

/// Maximum rings whose order a view keeps. [`Config`](crate::Config) allows no more.
pub const RINGS_MAX: usize = 16;

/// The members of the cluster at one version of the table.
///
/// Every silo that holds the view of a version holds the same rows (invariant I2); IAmAliveTime is
/// the exception, because it changes without a version. Cheap to share (`Arc`), and cheap to derive
/// the next one from: unchanged rows are shared.
pub struct View {
    table: TableVersion,
    members: Box<[Arc<SiloEntry>]>,
    /// Their statuses in one array: every message asks for one.
    statuses: Box<[SiloStatus]>,
    digest: u64,
    active: u32,
    shape: Arc<Shape>,
}

/// Parts that depend only on the silos on the rings. Views that differ in nothing else share them,
/// such as before and after a Joining silo became Active.
struct Shape {
    /// The addresses of the members, side by side: looking one up touches little memory.
    addresses: Box<[SiloAddress]>,
    /// Positions of addresses, if there are many. Computed when first asked for.
    index: OnceLock<Option<Index>>,
    /// Positions in `members`, ordered by the silo's hash under the ring's number. Computed when
    /// first asked for.
    rings: [OnceLock<Ring>; RINGS_MAX],
}

struct Ring {
    points: Box<[RingPoint]>,
    /// The place on the ring of each position in `members`, none for silos that are not on it.
    places: Box<[u32]>,
}

impl Shape {
    fn of(members: &[Arc<SiloEntry>]) -> Arc<Self> {
        let addresses = members.iter().map(|m| m.address).collect();
        Arc::new(Self { addresses, index: OnceLock::new(), rings: Default::default() })
    }
}

/// No place on a ring.
const NOWHERE: u32 = u32::MAX;

/// A silo's place on a ring: its hash, then its position in the view.
pub(crate) type RingPoint = (u64, u32);

impl View {
    /// The view of a table in which nothing was ever written.
    pub fn empty() -> Self {
        Self::from_sorted(TableVersion::default(), Box::new([]))
    }

    /// The view that `snapshot` shows.
    pub fn from_snapshot(snapshot: &TableSnapshot) -> Self {
        let rows = snapshot.rows.iter().map(|row| Arc::new(row.clone())).collect();
        Self::new(snapshot.version.clone(), rows)
    }

    /// The view of `members` (in any order) at `table`. Of two rows with one address the last is
    /// kept.
    pub fn new(table: TableVersion, mut members: Vec<Arc<SiloEntry>>) -> Self {
        members.sort_by_key(|m| m.address);
        members.reverse();
        members.dedup_by_key(|m| m.address);
        members.reverse();
        Self::from_sorted(table, members.into())
    }

    fn from_sorted(table: TableVersion, members: Box<[Arc<SiloEntry>]>) -> Self {
        let digest = members.iter().fold(0, |digest: u64, row| digest ^ row_digest(row));
        let active = members.iter().filter(|m| m.status == SiloStatus::Active).count();
        let active = u32::try_from(active).unwrap_or(u32::MAX);
        let shape = Shape::of(&members);
        Self { table, statuses: statuses(&members), members, digest, active, shape }
    }

    /// The version of the table this view shows. 0: nothing was ever written.
    pub const fn version(&self) -> u64 {
        self.table.number
    }

    /// The version row: number and etag.
    pub const fn table_version(&self) -> &TableVersion {
        &self.table
    }

    /// Every row, sorted by address, the Dead ones included.
    pub const fn members(&self) -> &[Arc<SiloEntry>] {
        &self.members
    }

    /// A hash of every row (without IAmAliveTime): two views of one version are equal when their
    /// digests are.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns true if the same silos stand on the rings as in `other`, the view before or after.
    pub(crate) fn has_rings_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shape, &other.shape)
    }

    /// The row of `silo`.
    pub fn get(&self, silo: &SiloAddress) -> Option<&Arc<SiloEntry>> {
        self.position(silo).map(|i| &self.members[i])
    }

    /// The status of `silo` in its row; Dead when only a later incarnation of its `ip:port` has a
    /// row (its own was cleaned up); none when the table does not know it.
    pub fn status_of(&self, silo: &SiloAddress) -> Option<SiloStatus> {
        match self.status_of_row(silo) {
            Some(status) => Some(status),
            None => self.successor_of(silo).map(|_| SiloStatus::Dead),
        }
    }

    /// The status of the row of `silo`; none when it has no row.
    pub(crate) fn status_of_row(&self, silo: &SiloAddress) -> Option<SiloStatus> {
        self.position(silo).map(|at| self.statuses[at])
    }

    /// The latest incarnation of `silo`'s `ip:port` that started after it, if the table has one.
    pub fn successor_of(&self, silo: &SiloAddress) -> Option<&Arc<SiloEntry>> {
        self.incarnations_of(silo).last().filter(|row| silo.is_succeeded_by(&row.address))
    }

    /// Every row with the `ip:port` of `silo`, oldest incarnation first.
    pub fn incarnations_of(&self, silo: &SiloAddress) -> &[Arc<SiloEntry>] {
        let key = |m: &SiloAddress| (m.ip(), m.port());
        let addresses = &self.shape.addresses;
        let from = addresses.partition_point(|address| key(address) < key(silo));
        let count = addresses[from..].partition_point(|address| address.same_endpoint(silo));
        &self.members[from..from + count]
    }

    /// The Active silos, sorted by address.
    pub fn active(&self) -> impl Iterator<Item = &Arc<SiloEntry>> {
        self.members.iter().filter(|m| m.status == SiloStatus::Active)
    }

    /// Number of Active silos.
    pub const fn active_count(&self) -> usize {
        self.active as usize
    }

    /// Number of rows, the Dead ones included.
    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns true if there is no row at all.
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The position of `silo`'s row in [`members`](Self::members).
    pub(crate) fn position(&self, silo: &SiloAddress) -> Option<usize> {
        let addresses = &self.shape.addresses;
        match self.shape.index.get_or_init(|| Index::of(addresses)) {
            Some(index) => index.position(addresses, silo),
            None => addresses.binary_search(silo).ok(),
        }
    }

    /// The order of the members that can be probed on ring `number` (taken modulo [`RINGS_MAX`]).
    pub(crate) fn ring(&self, number: usize) -> &[RingPoint] {
        &self.whole_ring(number).points
    }

    /// Position of the member at `position` on ring `number`, if it is there.
    pub(crate) fn place(&self, number: usize, position: u32) -> Option<usize> {
        let place = self.whole_ring(number).places[position as usize];
        (place != NOWHERE).then_some(place as usize)
    }

    /// The address of the member at `position`.
    pub(crate) fn address_at(&self, position: u32) -> &SiloAddress {
        &self.shape.addresses[position as usize]
    }

    /// The status of the member at `position`.
    pub(crate) fn status_at(&self, position: u32) -> SiloStatus {
        self.statuses[position as usize]
    }

    /// Returns true if the table has another silo of the endpoint of the member at `position`.
    pub(crate) fn shares_endpoint(&self, position: u32) -> bool {
        let (addresses, at) = (&self.shape.addresses, position as usize);
        let shares =
            |other: Option<&SiloAddress>| other.is_some_and(|o| o.same_endpoint(&addresses[at]));
        shares(addresses.get(at + 1))
            || shares(at.checked_sub(1).and_then(|before| addresses.get(before)))
    }

    fn whole_ring(&self, number: usize) -> &Ring {
        let number = number % RINGS_MAX;
        self.shape.rings[number].get_or_init(|| {
            let mut points: Vec<RingPoint> = (0u32..)
                .zip(self.members.iter())
                .filter(|(_, m)| is_on_rings(m.status))
                .map(|(at, m)| (m.address.stable_hash(number as u64), at))
                .collect();
            points.sort_unstable();
            let mut places = vec![NOWHERE; self.members.len()];
            for (place, (_, at)) in (0u32..).zip(&points) {
                places[*at as usize] = place;
            }
            Ring { points: points.into(), places: places.into() }
        })
    }

    /// The next view: `upserts` and `deletes` applied to this one. Costs one pass over the members.
    pub(crate) fn next(
        &self,
        table: TableVersion,
        upserts: &[Arc<SiloEntry>],
        deletes: &[SiloAddress],
    ) -> Self {
        let mut changed: Vec<&Arc<SiloEntry>> = upserts.iter().collect();
        changed.sort_by_key(|row| row.address);
        let mut changed = changed.into_iter().peekable();
        let mut members = Vec::with_capacity(self.members.len() + upserts.len());
        let mut digest = self.digest;
        let mut active = self.active;
        let mut same_shape = true;
        let tally = |row: &SiloEntry| u32::from(row.status == SiloStatus::Active);
        for old in &self.members {
            while let Some(new) = changed.next_if(|new| new.address < old.address) {
                digest ^= row_digest(new);
                active += tally(new);
                same_shape = false;
                members.push(new.clone());
            }
            if let Some(new) = changed.next_if(|new| new.address == old.address) {
                digest ^= row_digest(old) ^ row_digest(new);
                active = active - tally(old) + tally(new);
                same_shape &= is_on_rings(old.status) == is_on_rings(new.status);
                members.push(new.clone());
            } else if deletes.contains(&old.address) {
                digest ^= row_digest(old);
                active -= tally(old);
                same_shape = false;
            } else {
                members.push(old.clone());
            }
        }
        for new in changed {
            digest ^= row_digest(new);
            active += tally(new);
            same_shape = false;
            members.push(new.clone());
        }
        let shape = if same_shape { self.shape.clone() } else { Shape::of(&members) };
        Self { table, statuses: statuses(&members), members: members.into(), digest, active, shape }
    }
}

#[derive(Serialize)]
struct Lent<'a> {
    #[serde(rename = "t")]
    table: &'a TableVersion,
    #[serde(rename = "r", serialize_with = "compact::rows::serialize")]
    members: &'a [Arc<SiloEntry>],
}

#[derive(Deserialize)]
struct Owned {
    #[serde(rename = "t")]
    table: TableVersion,
    #[serde(rename = "r", deserialize_with = "compact::rows::deserialize")]
    members: Vec<Arc<SiloEntry>>,
}

impl Serialize for View {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Lent { table: &self.table, members: &self.members }.serialize(s)
    }
}

impl<'de> Deserialize<'de> for View {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Owned { table, members } = Owned::deserialize(d)?;
        Ok(Self::new(table, members))
    }
}

fn statuses(members: &[Arc<SiloEntry>]) -> Box<[SiloStatus]> {
    members.iter().map(|row| row.status).collect()
}

/// Returns true if silos of this status are on the monitoring rings: those in the table that are
/// not gone.
pub(crate) const fn is_on_rings(status: SiloStatus) -> bool {
    matches!(
        status,
        SiloStatus::Joining | SiloStatus::Active | SiloStatus::ShuttingDown | SiloStatus::Stopping
    )
}

/// A hash of everything in `row` that only a versioned write can change.
fn row_digest(row: &SiloEntry) -> u64 {
    let mut state = row.address.stable_hash(u64::from(u8::from(row.status)));
    for vote in &row.votes {
        let gone = u64::from(vote.gone);
        state = vote
            .voter
            .stable_hash(state ^ vote.at.as_millis().cast_unsigned().rotate_left(1) ^ gone);
    }
    let mut rest = Vec::with_capacity(64);
    rest.extend_from_slice(&state.to_le_bytes());
    rest.extend_from_slice(&row.proxy_port.to_le_bytes());
    rest.extend_from_slice(&row.update_zone.to_le_bytes());
    rest.extend_from_slice(&row.fault_zone.to_le_bytes());
    rest.extend_from_slice(&row.start_time.as_millis().to_le_bytes());
    for name in [&row.host_name, &row.role_name, &row.instance_name] {
        rest.extend_from_slice(&(name.len() as u64).to_le_bytes());
        rest.extend_from_slice(name.as_bytes());
    }
    if !row.duty.is_full() {
        rest.push(row.duty.into());
    }
    hash::stable64(&rest)
}

impl PartialEq for View {
    /// Returns true if both have the same version and the same rows, IAmAliveTime aside.
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
            && self.digest == other.digest
            && self.members.len() == other.members.len()
    }
}

impl Eq for View {}

impl Hash for View {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.table, self.digest).hash(state);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"version", &self.version());
        for row in &self.members {
            map.entry(&row.address, &row.status);
        }
        map.finish()
    }
}
