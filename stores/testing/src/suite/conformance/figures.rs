//! The records of a cluster: metrics, statistics, and the history of the membership.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{ClusterId, Timestamp};
use futures_util::future::join_all;

use super::CONNECTIONS;
use super::bench::{Bench, Case, Failure, check, same};
use emmer_store::history::{HistoryTable, Recorded, clusters};
use emmer_store::metrics::{ClientMetrics, MetricsTable, Shared, SiloMetrics};
use emmer_store::statistics::{Kind, Reported, Source, Statistic, StatisticsTable};

/// Ten minutes after a whole hour.
const NOW: Timestamp = Timestamp::from_millis(1_795_266_600_000);
/// A name as difficult as people can make it.
const NAME: &str = "silo/1$a~b%#?\\ \u{1f980} 'x' \"y\"";

fn cluster(text: &str) -> Result<ClusterId, Failure> {
    ClusterId::new(text).map_err(|e| Failure(e.to_string()))
}

fn later(minutes: u64) -> Timestamp {
    NOW + Duration::from_secs(60 * minutes)
}

fn shared(address: &str, at: Timestamp) -> Shared {
    Shared {
        address: address.into(),
        host: "host/1".into(),
        cpu_percent: Some(42),
        memory_bytes: Some(1 << 40),
        send_queue: 1,
        receive_queue: 2,
        sent: u64::from(u32::MAX) + 7,
        received: 4,
        at,
    }
}

fn silo(name: &str, at: Timestamp) -> SiloMetrics {
    SiloMetrics {
        shared: shared("10.0.0.1:11111:7", at),
        name: name.into(),
        gateway: Some("10.0.0.1:30000".into()),
        activations: 5,
        recently_used: 3,
        request_queue: 2,
        load_shedding: true,
        clients: 9,
    }
}

pub(super) async fn a_silo_and_a_client_have_a_row_each(bench: &Bench) -> Case {
    let table = |i| Ok::<_, Failure>(MetricsTable::new(bench.store(i).clone(), cluster("kpi")?));
    let (here, there) = (table(0)?, table(1)?);
    same!(here.silos().await?, [], "nobody has written yet");
    here.write_silo(&silo(NAME, NOW)).await?;
    let bare = SiloMetrics { name: "bare".into(), ..SiloMetrics::default() };
    let bare = SiloMetrics { shared: Shared { at: later(2), ..Shared::default() }, ..bare };
    there.write_silo(&bare).await?;
    let newer = SiloMetrics { activations: 6, gateway: None, ..silo(NAME, later(1)) };
    there.write_silo(&newer).await?;
    same!(here.silos().await?, [bare.clone(), newer], "the rows of two silos, by name");
    let client =
        ClientMetrics { shared: shared("10.0.0.9:40000", NOW), client: "17".into(), gateways: 2 };
    here.write_client(&client).await?;
    same!(there.clients().await?, [client], "the row of a client");
    let others = MetricsTable::new(bench.store(0).clone(), cluster("kpi2")?);
    same!(others.silos().await?, [], "another cluster");
    same!(here.clean(later(2)).await?, 2, "rows that were not written for long");
    same!((here.silos().await?, here.clients().await?), (vec![bare], vec![]), "what is left");
    Ok(())
}

fn source(name: &str, at: Timestamp) -> Source {
    Source { at, address: "10.0.0.1:11111:7".into(), name: name.into(), host: "host".into() }
}

fn statistics(count: usize) -> Vec<Statistic> {
    let one = |n: usize| Statistic {
        name: format!("emmer_calls_total{{method=\"A.b{n}\"}}").into(),
        value: format!("{n}").into(),
        is_delta: n.is_multiple_of(2),
    };
    (0..count).map(one).collect()
}

pub(super) async fn statistics_are_added_and_the_newest_come_first(bench: &Bench) -> Case {
    let table = |i: usize, kind| {
        Ok::<_, Failure>(StatisticsTable::new(bench.store(i).clone(), cluster("stat")?, kind))
    };
    let silos = table(0, Kind::Silos)?;
    // Two reports in one hour, one in the next; at once from all connections, and again.
    let reports = [(NAME, NOW, 230), ("b", later(10), 3), (NAME, later(55), 2)];
    for _ in 0..2 {
        let added = reports.iter().enumerate().map(|(i, (name, at, count))| async move {
            let table = table(i % CONNECTIONS, Kind::Silos)?;
            Ok::<_, Failure>(table.append(&source(name, *at), &statistics(*count)).await?)
        });
        join_all(added).await.into_iter().collect::<Case>()?;
    }
    let wanted: Vec<Reported> = [reports[2], reports[1], reports[0]]
        .iter()
        .flat_map(|(name, at, count)| {
            let source = source(name, *at);
            let all = statistics(*count).into_iter();
            all.map(move |statistic| Reported { source: source.clone(), statistic })
        })
        .collect();
    let found = table(1, Kind::Silos)?.between(NOW, later(60)).await?;
    same!(found.len(), wanted.len(), "values that were reported");
    check!(found == wanted, "values are others, or in another order");
    let some = silos.between(later(5), later(20)).await?;
    same!(some.len(), 3, "values of a part of the time");
    same!(table(0, Kind::Clients)?.between(NOW, later(60)).await?, [], "clients have their own");
    same!(silos.clean(later(30)).await?, 233, "values that are too old");
    let left = silos.between(NOW, later(60)).await?;
    check!(left == wanted[..2], "of {} values other ones are left: {left:?}", wanted.len());
    Ok(())
}

pub(super) async fn history_is_kept_until_it_is_cleaned(bench: &Bench) -> Case {
    let table = |i| Ok::<_, Failure>(HistoryTable::new(bench.store(i).clone(), cluster("past")?));
    let recorded = |version: u64, number: u64, at| Recorded {
        version,
        number,
        at,
        writer: "10.0.0.1:11111:7".into(),
        silo: "10.0.0.2:11111:8".into(),
        name: NAME.into(),
        host: "host".into(),
        change: "died".into(),
        evidence: vec!["10.0.0.1:11111:7: it does not answer".into(), Arc::from("")],
    };
    let all: Vec<_> = (1..=250).flat_map(|v| [(v, 0), (v, 1)]).collect();
    let all: Vec<_> = all.into_iter().map(|(v, n)| recorded(v, n, later(v))).collect();
    table(0)?.append(&all).await?;
    // A part of it again, as after an answer that was lost.
    table(1)?.append(&all[100..200]).await?;
    let mut wanted = all;
    wanted.sort_by_key(|one| (std::cmp::Reverse(one.version), one.number));
    let found = table(2)?.read().await?;
    same!(found.len(), wanted.len(), "changes that were recorded");
    check!(found == wanted, "changes are others, or in another order");
    same!(table(1)?.clean(later(201)).await?, 400, "changes that are too old");
    check!(table(0)?.read().await? == wanted[..100], "other changes are left");
    table(0)?.enlist(later(1)).await?;
    table(1)?.enlist(later(2)).await?;
    let known = clusters(bench.store(2).as_ref()).await?;
    same!(known, [(cluster("past")?, later(1))], "clusters with a history");
    check!(table(2)?.read().await? == wanted[..100], "the list is taken for a part of a history");
    Ok(())
}
