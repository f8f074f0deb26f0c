//! The identity of a silo: its incarnation, and the texts of its row.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::limits::NAME_BYTES_MAX;
use emmer_core::{SiloAddress, SiloEntry, SiloStatus};
use emmer_net::{clock, world};

use crate::options::SiloOptions;

/// The identity of a silo that starts at `endpoint` when the clock says `now`, in a table of these
/// rows. Its epoch is later than every epoch of this endpoint in the table, so a wall clock that
/// was set back does no harm.
pub(super) fn next(endpoint: SocketAddr, now: u64, rows: &[SiloEntry]) -> SiloAddress {
    let here = SiloAddress::new(endpoint, now);
    let known = rows.iter().map(|row| row.address).filter(|other| other.same_endpoint(&here));
    let after = known.map(|other| other.epoch().saturating_add(1)).max();
    SiloAddress::new(endpoint, after.map_or(now, |after| now.max(after)))
}

/// Two hosts that take turns on one address do so within this time.
const TURNS_WITHIN: Duration = Duration::from_secs(600);

/// This often a host may come back to an address that another one had meanwhile.
const RETURNS_MAX: usize = 2;

/// The other host, if two hosts take turns on this silo's address: each that starts has the other
/// declared dead. A host that has the address for good, and containers whose hosts are always new
/// ones, are not meant.
pub(super) fn rival(entry: &SiloEntry, rows: &[SiloEntry]) -> Option<Arc<str>> {
    let recent = |row: &&SiloEntry| {
        row.address.same_endpoint(&entry.address)
            && row.start_time + TURNS_WITHIN > entry.start_time
            && !row.host_name.is_empty()
    };
    let mut earlier: Vec<_> = rows.iter().filter(recent).collect();
    earlier.sort_by_key(|row| std::cmp::Reverse(row.address.epoch()));
    let hosts = std::iter::once(entry).chain(earlier).map(|row| &row.host_name);
    let hosts: Vec<_> = hosts.collect();
    let returns = hosts.windows(3).filter(|three| three[0] == three[2] && three[0] != three[1]);
    let other = hosts.get(1).filter(|host| **host != &entry.host_name)?;
    (returns.count() > RETURNS_MAX).then(|| Arc::clone(other))
}

/// The row of a silo that starts now.
pub(super) fn row(
    address: SiloAddress,
    options: &SiloOptions,
    gateway: Option<SocketAddr>,
) -> SiloEntry {
    let host = world::host_name();
    let name = options.name.clone().unwrap_or_else(|| format!("{host}:{}", address.port()));
    let program = || std::env::current_exe().ok().and_then(|path| program_name(&path));
    let role = options.role.clone().or_else(program).unwrap_or_default();
    let mut entry = SiloEntry::new(address, SiloStatus::Created, clock::wall());
    entry.proxy_port = options.advertise_gateway.or(gateway).map_or(0, |told| told.port());
    entry.host_name = fit(&host).into();
    entry.instance_name = fit(&name).into();
    entry.role_name = fit(&role).into();
    (entry.update_zone, entry.fault_zone) = (options.update_zone, options.fault_zone);
    entry
}

/// Name of a program that runs from `path`.
fn program_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_string_lossy();
    // The kernel adds this to a program whose file was replaced since it began.
    let file = file.strip_suffix(" (deleted)").unwrap_or(&file);
    Some(Path::new(file).file_stem()?.to_string_lossy().into_owned())
}

/// A name as a row can hold it. Hosts and programs may be called anything, and their names must not
/// keep a silo from starting.
fn fit(name: &str) -> String {
    let end = name.floor_char_boundary(NAME_BYTES_MAX);
    name.get(..end).unwrap_or_default().replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;

    use super::*;

    #[test]
    fn epochs_never_repeat_or_go_back_on_one_endpoint() {
        let row = |text: &str, status| {
            SiloEntry::new(text.parse().unwrap(), status, Timestamp::from_millis(0))
        };
        let rows = [
            row("10.0.0.1:1:500", SiloStatus::Dead),
            row("10.0.0.1:1:400", SiloStatus::Active),
            row("10.0.0.1:2:900", SiloStatus::Active),
            row("10.0.0.2:1:900", SiloStatus::Dead),
        ];
        let endpoint = "10.0.0.1:1".parse().unwrap();
        for (now, epoch) in [(1_000, 1_000), (501, 501), (500, 501), (3, 501)] {
            assert_eq!(next(endpoint, now, &rows), SiloAddress::new(endpoint, epoch), "at {now}");
        }
        assert_eq!(next(endpoint, 3, &[]).epoch(), 3);
    }

    #[test]
    fn two_hosts_that_take_turns_on_an_address_are_found() {
        let row = |epoch: u64, host: &str, seconds: i64| {
            let address = SiloAddress::new("10.0.0.1:1".parse().unwrap(), epoch);
            let start = Timestamp::from_millis(seconds * 1_000);
            let mut row = SiloEntry::new(address, SiloStatus::Dead, start);
            row.host_name = host.into();
            row
        };
        let rival_of = |hosts: &[&str], seconds: i64| {
            let rows: Vec<_> = (1..).zip(hosts).map(|(n, host)| row(n, host, n as i64)).collect();
            rival(&row(100, "a", seconds), &rows)
        };
        assert_eq!(rival_of(&["a", "b", "a", "b"], 10).as_deref(), Some("b"));
        // The host has come back twice; the other host was here once; it was long ago.
        assert_eq!(rival_of(&["b", "a", "b"], 10), None);
        assert_eq!(rival_of(&["a", "a", "b", "a", "a"], 10), None);
        assert_eq!(rival_of(&["a", "b", "a", "b"], 700), None);
        // A container is a new host each time, and one host restarts as it likes.
        assert_eq!(rival_of(&["b", "c", "d", "e", "f"], 10), None);
        assert_eq!(rival_of(&["a", "a", "a", "a", "a"], 10), None);
        assert_eq!(rival_of(&[], 10), None);
    }

    #[test]
    fn a_host_or_program_of_any_name_has_a_row() {
        assert_eq!(fit("a\0b\nc\u{85}d"), "a?b?c?d");
        assert_eq!(fit(&"ä".repeat(200)), "ä".repeat(128));
        assert_eq!(fit(&format!("x{}", "ä".repeat(200))).len(), 255);
    }

    #[test]
    fn a_program_is_called_as_its_file_also_when_that_was_replaced() {
        for path in ["/opt/shop", "/opt/shop (deleted)", "shop.exe", "/opt/shop.bin (deleted)"] {
            assert_eq!(program_name(Path::new(path)).as_deref(), Some("shop"), "{path}");
        }
        assert_eq!(program_name(Path::new("/")), None);
    }

    #[test]
    fn the_role_of_a_silo_is_what_its_options_say_or_else_the_program() {
        let address = SiloAddress::new("10.0.0.1:1".parse().unwrap(), 1);
        let named = SiloOptions { role: Some("front".to_owned()), ..SiloOptions::default() };
        assert_eq!(&*row(address, &named, None).role_name, "front");
        let program = program_name(&std::env::current_exe().unwrap());
        let role = row(address, &SiloOptions::default(), None).role_name;
        assert_eq!(role.to_string(), program.unwrap());
    }

    #[test]
    fn a_row_always_names_its_host() {
        let address = SiloAddress::new("10.0.0.1:1".parse().unwrap(), 1);
        let entry = row(address, &SiloOptions::default(), None);
        assert!(!entry.host_name.is_empty());
        #[cfg(target_os = "linux")]
        assert_eq!(
            &*entry.host_name,
            std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim()
        );
    }
}
