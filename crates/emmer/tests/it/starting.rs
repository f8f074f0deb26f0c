//! Checks of a silo before it joins.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use emmer::errors::StartError;
use emmer::prelude::*;
use emmer::store::SiloTable;
use emmer::tables::{SiloAddress, SiloEntry, SiloStatus, Timestamp};

use crate::common::{self, held::HeldStore};

/// An address without a listener.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// As when the wall clock was set back by an hour between two incarnations.
#[tokio::test(flavor = "multi_thread")]
async fn a_silo_starts_after_a_predecessor_from_the_future() {
    for status in [SiloStatus::Dead, SiloStatus::Active, SiloStatus::Joining] {
        let (store, endpoint) = (common::store(), free_address());
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let later = now + Duration::from_secs(3_600);
        let before = SiloAddress::new(endpoint, u64::try_from(later.as_micros()).unwrap());
        let started = Timestamp::from_millis(i64::try_from(later.as_millis()).unwrap());
        let table = SiloTable::new(store.clone(), ClusterId::new("dev").unwrap());
        table.ensure().await.unwrap();
        let (base, _) = table.read_all().await.unwrap();
        table
            .commit(&base, vec![SiloEntry::new(before, status, started)], Vec::new())
            .await
            .unwrap();
        let silo = Silo::builder()
            .store(store)
            .listen(endpoint)
            .on_terminate(|_| {})
            .start()
            .await
            .unwrap();
        assert!(
            silo.address().epoch() > before.epoch(),
            "{status}: {} after {before}",
            silo.address()
        );
        assert_eq!(silo.view().status_of(&silo.address()), Some(SiloStatus::Active));
        assert_eq!(silo.view().status_of(&before), Some(SiloStatus::Dead));
    }
}

#[tokio::test]
async fn a_store_that_is_more_patient_than_membership_is_refused() {
    let store = HeldStore::patient(&common::store(), secs(11));
    let refused = Silo::builder().store(store).on_terminate(|_| {}).start().await.unwrap_err();
    assert!(matches!(refused, StartError::StorePatience { .. }), "{refused}");
    for word in ["11s", "timeout_ms", "10s", "table_timeout"] {
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_reads_a_few_rows_however_many_there_are() {
    const SILOS: usize = 12;
    let (store, silos) = common::cluster(SILOS).await;
    let last = common::silo(&store).await;
    common::settle(&silos, SILOS + 1).await;
    let counted = || last.membership_statistics().counters;
    while counted().samples == 0 {
        tokio::task::yield_now().await;
    }
    let counted = counted();
    let wanted = u64::from(emmer::membership::Config::default().join_sample_rows);
    assert_eq!((counted.samples, counted.reads), (1, 0), "{counted:?}");
    // And the version, now and then.
    assert!(counted.rows_read - counted.version_reads <= wanted, "{counted:?}");
}

/// Two machines that both advertise 127.0.0.1 would have each other declared dead for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_silo_gives_up_an_address_that_another_host_takes_again_and_again() {
    let (store, endpoint) = (common::store(), free_address());
    let table = SiloTable::new(store.clone(), ClusterId::new("dev").unwrap());
    table.ensure().await.unwrap();
    let silo =
        || Silo::builder().store(store.clone()).listen(endpoint).on_terminate(|_| {}).start();
    for _ in 0..2 {
        let one = silo().await.unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let epoch = u64::try_from(now.as_micros()).unwrap().max(one.address().epoch() + 1);
        let started = Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap());
        let other = SiloAddress::new(endpoint, epoch);
        let mut row = SiloEntry::new(other, SiloStatus::Dead, started);
        row.host_name = "elsewhere".into();
        one.stop().await.unwrap();
        let (base, _) = table.read_all().await.unwrap();
        table.commit(&base, vec![row], Vec::new()).await.unwrap();
    }
    let refused = silo().await.unwrap_err();
    assert_eq!(refused.exit_code(), 4, "{refused}");
    assert!(refused.to_string().contains("a silo on the host elsewhere too"), "{refused}");
}

/// The table has the silo's own address for a gateway: a gateway that listens elsewhere would be
/// wrong there.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_told_where_it_can_be_reached() {
    let silo = |gateway: &str| Silo::builder().store(common::store()).gateway(gateway);
    let refused = silo("127.0.0.2:0").start().await.unwrap_err();
    assert!(refused.to_string().contains("gateway: is 127.0.0.2:0"), "{refused}");
    let told = "127.0.0.1:31999";
    let mapped = silo("127.0.0.2:0").advertise_gateway(told).on_terminate(|_| {}).start().await;
    let mapped = mapped.unwrap();
    let row = mapped.view().get(&mapped.address()).cloned().unwrap();
    assert_eq!(row.proxy_port, 31_999);
    mapped.stop().await.unwrap();
    let everywhere = silo("0.0.0.0:0").insecure().on_terminate(|_| {}).start().await.unwrap();
    everywhere.stop().await.unwrap();
}
