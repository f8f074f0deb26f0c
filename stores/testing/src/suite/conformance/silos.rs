//! The membership table: the original's table tests on [`SiloTable`].

use std::time::Duration;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{ClusterId, SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp, Vote};
use futures_util::future::{join, join_all};

use super::bench::{Bench, Case, Failure, check, refused, same, yield_now};
use emmer_store::contract::StoreErrorKind;
use emmer_store::silos::{SiloCommit, SiloTable, SiloTouch, defunct};

const START: Timestamp = Timestamp::from_millis(1_795_265_085_123);

fn table(bench: &Bench, connection: usize, cluster: &str) -> Result<SiloTable, Failure> {
    let cluster = ClusterId::new(cluster).map_err(|e| Failure(e.to_string()))?;
    Ok(SiloTable::new(bench.store(connection).clone(), cluster))
}

fn silo(n: u16) -> SiloAddress {
    let ip = if n.is_multiple_of(2) {
        [10, 0, 0, 1].into()
    } else {
        std::net::Ipv6Addr::LOCALHOST.into()
    };
    SiloAddress::new(
        std::net::SocketAddr::new(ip, 11_111 + n),
        1_795_265_085_000_000 + u64::from(n),
    )
}

fn entry(n: u16, status: SiloStatus) -> SiloEntry {
    let mut entry = SiloEntry::new(silo(n), status, START);
    entry.host_name = format!("host-{n} \"ä\" 🛫").into();
    entry.role_name = "emmer's".into();
    entry.instance_name = format!("silo_{n}").into();
    entry.proxy_port = 30_000;
    entry.update_zone = i32::from(n);
    entry.fault_zone = -1;
    entry
}

/// The same row order on both sides of a comparison.
fn sorted(mut silos: Vec<SiloEntry>) -> Vec<SiloEntry> {
    silos.sort_by_key(|s| s.address);
    silos
}

/// A commit that must happen.
async fn write(
    table: &SiloTable,
    base: &TableVersion,
    rows: Vec<SiloEntry>,
    deletes: Vec<SiloAddress>,
) -> Result<TableVersion, Failure> {
    match table.commit(base, rows, deletes).await? {
        SiloCommit::Committed(version) => Ok(version),
        other => Err(Failure(format!("a commit on {base:?}: {other:?}"))),
    }
}

pub(super) async fn an_empty_table_reads_as_version_zero(bench: &Bench) -> Case {
    let table = table(bench, 0, "empty")?;
    same!(table.read_all().await?, (TableVersion::default(), vec![]), "an empty table");
    same!(table.read_version().await?, TableVersion::default(), "the version of an empty table");
    same!(table.read_silo(&silo(1)).await?, None, "a row of an empty table");
    Ok(())
}

pub(super) async fn gateways_are_the_active_silos_with_a_port(bench: &Bench) -> Case {
    let table = table(bench, 0, "gateways")?;
    let mut version = TableVersion::default();
    for n in 0..10 {
        let mut row =
            entry(n, if [3, 5, 9].contains(&n) { SiloStatus::Active } else { SiloStatus::Joining });
        row.proxy_port = if n == 3 { 0 } else { row.proxy_port };
        version = write(&table, &version, vec![row], vec![]).await?;
    }
    let gateways: Vec<SiloAddress> =
        sorted(table.gateways().await?).iter().map(|s| s.address).collect();
    let mut wanted = vec![silo(5), silo(9)];
    wanted.sort();
    same!(gateways, wanted, "the gateways");
    Ok(())
}

pub(super) async fn a_second_insert_is_a_conflict(bench: &Bench) -> Case {
    let (one, two) = (table(bench, 0, "insert")?, table(bench, 1, "insert")?);
    let row = entry(1, SiloStatus::Joining);
    let none = TableVersion::default();
    let first = write(&one, &none, vec![row.clone()], vec![]).await?;
    check!(first.number == 1 && !first.etag.is_empty(), "the first version is {first:?}");
    for again in [row.clone(), entry(2, SiloStatus::Joining)] {
        same!(
            two.commit(&none, vec![again], vec![]).await?,
            SiloCommit::Conflict,
            "an insert with the used version"
        );
    }
    same!(two.read_all().await?, (first.clone(), vec![row.clone()]), "the table after one insert");
    same!(two.read_version().await?, first, "the version after one insert");
    same!(two.read_silo(&row.address).await?, Some(row), "the row after one insert");
    Ok(())
}

pub(super) async fn stale_tokens_update_nothing(bench: &Bench) -> Case {
    let table = table(bench, 2, "update")?;
    let mut version = TableVersion::default();
    let mut wanted = Vec::new();
    for n in 1..10u16 {
        let mut row = entry(n, SiloStatus::Active);
        row.votes = [1, 2]
            .map(|v| Vote {
                voter: silo(v),
                at: START + Duration::from_millis(v.into()),
                gone: false,
            })
            .to_vec();
        let used = version.clone();
        version = write(&table, &version, vec![row.clone()], vec![]).await?;
        row.status = SiloStatus::Dead;
        same!(
            table.commit(&used, vec![row.clone()], vec![]).await?,
            SiloCommit::Conflict,
            "the used version"
        );
        let used = version.clone();
        version = write(&table, &version, vec![row.clone()], vec![]).await?;
        wanted.push(row.clone());
        row.status = SiloStatus::Active;
        same!(
            table.commit(&used, vec![row.clone()], vec![]).await?,
            SiloCommit::Conflict,
            "a stale version"
        );
        // The right number with a wrong token, and the right token with a wrong number, decided by
        // the token alone.
        let forged = TableVersion { etag: used.etag, ..version.clone() };
        same!(
            table.commit(&forged, vec![row], vec![]).await?,
            SiloCommit::Conflict,
            "a forged token"
        );
        let (found, rows) = table.read_all().await?;
        same!(
            (found, sorted(rows)),
            (version.clone(), sorted(wanted.clone())),
            "the table after failed updates"
        );
        same!(version.number, u64::from(n) * 2, "the version");
    }
    Ok(())
}

pub(super) async fn twenty_writers_make_version_twenty(bench: &Bench) -> Case {
    let tables = (0..20).map(|i| table(bench, i, "parallel")).collect::<Result<Vec<_>, _>>()?;
    let none = TableVersion::default();
    let row = entry(1, SiloStatus::Joining);
    let inserts = join_all(tables.iter().map(|t| t.commit(&none, vec![row.clone()], vec![]))).await;
    let mut won = 0;
    for outcome in inserts {
        match outcome? {
            SiloCommit::Committed(_) => won += 1,
            SiloCommit::Conflict => {}
            SiloCommit::Unknown(error) => return Err(error.into()),
        }
    }
    same!(won, 1, "parallel inserts that won");
    let workers = tables.iter().skip(1).map(|table| async move {
        for _ in 0..1_000 {
            let (version, mut rows) = table.read_all().await?;
            yield_now().await;
            let Some(row) = rows.first_mut() else {
                return Err(Failure("the row vanished".into()));
            };
            row.update_zone += 1;
            match table.commit(&version, rows, vec![]).await? {
                SiloCommit::Committed(_) => return Ok(()),
                SiloCommit::Conflict => {}
                SiloCommit::Unknown(error) => return Err(error.into()),
            }
        }
        Err(Failure("1000 rounds without a win".into()))
    });
    for result in join_all(workers).await {
        result?;
    }
    let (version, rows) = table(bench, 3, "parallel")?.read_all().await?;
    same!(version.number, 20, "the version after 1 insert and 19 updates");
    let zones: Vec<i32> = rows.iter().map(|r| r.update_zone).collect();
    same!(zones, vec![20], "the updates in the row");
    Ok(())
}

pub(super) async fn a_heartbeat_leaves_everything_else_alone(bench: &Bench) -> Case {
    let table = table(bench, 0, "alive")?;
    let rows = vec![entry(1, SiloStatus::Active), entry(2, SiloStatus::Active)];
    let version = write(&table, &TableVersion::default(), rows.clone(), vec![]).await?;
    let at = START + Duration::from_secs(3_600);
    same!(table.touch(&silo(1), at).await?, SiloTouch::Touched, "a heartbeat");
    let mut wanted = sorted(rows.clone());
    wanted.iter_mut().filter(|s| s.address == silo(1)).for_each(|s| s.i_am_alive_time = at);
    let (found, silos) = table.read_all().await?;
    same!((found, sorted(silos)), (version.clone(), wanted.clone()), "the table after a heartbeat");
    same!(
        table.touch(&silo(3), at).await?,
        SiloTouch::RowMissing,
        "a heartbeat of a silo without row"
    );
    same!(table.read_silo(&silo(3)).await?, None, "the row of that silo");
    // A whole row from before the heartbeat, written with the token from before it, wins and turns
    // nothing back.
    let version = write(&table, &version, rows, vec![]).await?;
    let (found, silos) = table.read_all().await?;
    same!(
        (found, sorted(silos)),
        (version, wanted),
        "the table after an update beside a heartbeat"
    );
    Ok(())
}

pub(super) async fn a_new_row_brings_its_first_heartbeat(bench: &Bench) -> Case {
    let table = table(bench, 1, "first-alive")?;
    let mut row = entry(1, SiloStatus::Joining);
    row.i_am_alive_time = START + Duration::from_secs(7);
    write(&table, &TableVersion::default(), vec![row.clone()], vec![]).await?;
    same!(table.read_silo(&row.address).await?, Some(row), "a new row");
    Ok(())
}

pub(super) async fn clean_up_deletes_dead_rows_only(bench: &Bench) -> Case {
    use SiloStatus::{Active, Created, Dead, Joining, ShuttingDown, Stopping};
    let table = table(bench, 0, "cleanup")?;
    let cutoff = START + Duration::from_secs(7 * 86_400);
    let fresh = cutoff + Duration::from_secs(1);
    let old = [Created, Joining, Active, ShuttingDown, Stopping, Dead];
    let mut rows: Vec<SiloEntry> = (1..).zip(old).map(|(n, status)| entry(n, status)).collect();
    let (mut alive, mut started, mut voted) = (entry(20, Dead), entry(21, Dead), entry(22, Dead));
    alive.i_am_alive_time = fresh;
    started.start_time = fresh;
    voted.votes = vec![Vote { voter: silo(1), at: fresh, gone: false }];
    rows.extend([alive, started, voted]);
    let version = write(&table, &TableVersion::default(), rows.clone(), vec![]).await?;
    let (_, read) = table.read_all().await?;
    let gone = defunct(&read, cutoff);
    same!(gone, vec![silo(6)], "the defunct rows");
    let version = write(&table, &version, vec![], gone).await?;
    rows.retain(|r| r.address != silo(6));
    let (found, left) = table.read_all().await?;
    same!((found, sorted(left)), (version, sorted(rows)), "the table after a clean-up");
    Ok(())
}

pub(super) async fn deleting_a_row_that_is_gone_is_a_conflict(bench: &Bench) -> Case {
    let table = table(bench, 0, "gone")?;
    let version =
        write(&table, &TableVersion::default(), vec![entry(1, SiloStatus::Dead)], vec![]).await?;
    let version = write(&table, &version, vec![], vec![silo(1)]).await?;
    let outcome =
        table.commit(&version, vec![entry(2, SiloStatus::Joining)], vec![silo(1)]).await?;
    same!(outcome, SiloCommit::Conflict, "deleting a row that is gone");
    same!(table.read_all().await?, (version, vec![]), "the table after it");
    Ok(())
}

pub(super) async fn clusters_a_and_ab_are_apart(bench: &Bench) -> Case {
    let (a, ab) = (table(bench, 0, "a")?, table(bench, 1, "ab")?);
    let version =
        write(&a, &TableVersion::default(), vec![entry(1, SiloStatus::Active)], vec![]).await?;
    same!(ab.read_all().await?, (TableVersion::default(), vec![]), "the other cluster");
    same!(
        ab.touch(&silo(1), START).await?,
        SiloTouch::RowMissing,
        "a heartbeat in the other cluster"
    );
    write(&ab, &TableVersion::default(), vec![entry(2, SiloStatus::Active)], vec![]).await?;
    let (_, read) = ab.read_all().await?;
    same!(read, vec![entry(2, SiloStatus::Active)], "the rows of the other cluster");
    same!(a.read_all().await?, (version, vec![entry(1, SiloStatus::Active)]), "the first cluster");
    Ok(())
}

pub(super) async fn versions_and_rows_change_together(bench: &Bench) -> Case {
    const WRITES: u64 = 40;
    const ROWS: u16 = 30;
    // Every row says in its UpdateZone at which version it was written: in a whole read all agree
    // with the version.
    let rows = |n: u64| {
        let row = move |i| SiloEntry { update_zone: n as i32, ..entry(i, SiloStatus::Active) };
        (0..ROWS).map(row).collect::<Vec<_>>()
    };
    let first = table(bench, 0, "together")?;
    let mut version = write(&first, &TableVersion::default(), rows(1), vec![]).await?;
    let writer = async {
        while version.number < WRITES {
            version = write(&first, &version, rows(version.number + 1), vec![]).await?;
            first.touch(&silo(1), START).await?;
            yield_now().await;
        }
        Ok::<(), Failure>(())
    };
    let readers = join_all((1..6).map(|reader| async move {
        let table = table(bench, reader, "together")?;
        let mut newest = 0;
        for _ in 0..10_000 {
            let (version, silos) = table.read_all().await?;
            same!(silos.len(), usize::from(ROWS), "rows of a read");
            let torn = silos.iter().find(|s| s.update_zone as u64 != version.number);
            check!(torn.is_none(), "a read of version {} with {torn:?}", version.number);
            check!(
                version.number >= newest,
                "a read went back from {newest} to {}",
                version.number
            );
            newest = version.number;
            if newest == WRITES {
                return Ok(());
            }
            yield_now().await;
        }
        Err(Failure(format!("a reader saw version {newest} of {WRITES} in 10000 reads")))
    }));
    let (written, read) = join(writer, readers).await;
    written?;
    read.into_iter().collect()
}

pub(super) async fn ninety_nine_rows_and_no_more(bench: &Bench) -> Case {
    let table = table(bench, 0, "many")?;
    let most = u16::try_from(MEMBERSHIP_ROWS_PER_COMMIT_MAX).unwrap_or(u16::MAX);
    let rows = |n| (0..n).map(|i| entry(i, SiloStatus::Joining)).collect::<Vec<_>>();
    let refusal = table.commit(&TableVersion::default(), rows(most + 1), vec![]).await;
    refused(bench.store(0), StoreErrorKind::Invalid, refusal)?;
    same!(
        table.read_all().await?,
        (TableVersion::default(), vec![]),
        "the table after a commit of 100 rows"
    );
    let version = write(&table, &TableVersion::default(), rows(most), vec![]).await?;
    let (_, read) = table.read_all().await?;
    same!(sorted(read), sorted(rows(most)), "99 rows");
    let twice = vec![entry(1, SiloStatus::Dead), entry(1, SiloStatus::Active)];
    refused(bench.store(0), StoreErrorKind::Invalid, table.commit(&version, twice, vec![]).await)?;
    let both = table.commit(&version, rows(1), vec![silo(0)]).await;
    refused(bench.store(0), StoreErrorKind::Invalid, both)
}
