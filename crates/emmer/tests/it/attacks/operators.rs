//! Questions of operators without end: the silo answers a few at once, and serves calls meanwhile.

use emmer::Silo;
use emmer::access::Access;
use emmer::admin::{AdminError, Deactivated, GrainName, GrainPage, Question, SiloLook};
use emmer::prelude::*;
use futures_util::future::join_all;

#[grain_interface(key = String)]
trait Stall {
    async fn ask(&mut self) -> u64;
}

#[derive(Grain, Default)]
struct StallGrain;

#[grain]
impl Stall for StallGrain {
    async fn ask(&mut self) -> u64 {
        1
    }
}

async fn silo(store: &str) -> Silo {
    let silo = Silo::builder().store(format!("memory://{store}")).gateway("127.0.0.1:0");
    let silo = silo.host::<dyn Stall, StallGrain>().authorize_admin(|_| Access::Allow);
    silo.start().await.unwrap()
}

async fn client(silo: &Silo) -> Client {
    let gateway = silo.gateway().unwrap().to_string();
    Client::builder().gateways([gateway]).connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_without_end_gets_a_few_answers_at_once() {
    let silo = silo("operators").await;
    let client = client(&silo).await;
    for n in 0..2_000 {
        client.grain::<dyn Stall>(format!("stall {n}")).ask().await.unwrap();
    }
    let everything =
        Question::Grains { grain_type: None, key_has: None, busy: false, after: None, max: 1_000 };
    let admin = client.admin();
    let asked = join_all((0..500).map(|_| admin.ask::<GrainPage>(None, &everything)));
    let called = async {
        for n in 0..200 {
            client.grain::<dyn Stall>(format!("stall {n}")).ask().await.unwrap();
        }
    };
    let (answers, ()) = tokio::join!(asked, called);
    let (good, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!(good.len() >= 8, "{} answers", good.len());
    assert!(good.iter().all(|page| page.as_ref().unwrap().grains.len() == 1_000));
    let is_busy = |error: &AdminError| matches!(error, AdminError::Busy(_));
    assert!(refused.iter().all(|refused| is_busy(refused.as_ref().unwrap_err())));
    // Nothing is left behind: each one after the other is answered.
    for _ in 0..100 {
        admin.silo(None).await.unwrap();
    }
    client.close().await;
    silo.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_any_size_get_answers_of_a_bounded_one() {
    let silo = silo("operators-sizes").await;
    let client = client(&silo).await;
    let admin = client.admin();
    let long = "x".repeat(1_000);
    for n in 0..1_200 {
        client.grain::<dyn Stall>(format!("{n} {long}")).ask().await.unwrap();
    }
    let all = |max, key_has: Option<String>| Question::Grains {
        grain_type: None,
        key_has,
        busy: false,
        after: None,
        max,
    };
    // A thousand rows of such keys are more than an answer has room for.
    let page = admin.ask::<GrainPage>(None, &all(u32::MAX, None)).await;
    assert_eq!(page.unwrap_err(), AdminError::TooLarge);
    assert_eq!(admin.ask::<GrainPage>(None, &all(0, None)).await.unwrap().grains.len(), 1);
    let large = admin.ask::<GrainPage>(None, &all(10, Some("y".repeat(64 << 10)))).await;
    assert!(large.unwrap_err().to_string().contains("larger than 65536 bytes"));
    let grain = GrainName { grain_type: "stall".to_owned(), key: "k".repeat(1_025).into() };
    let long_key = admin.grain(grain).await.unwrap_err();
    assert!(long_key.to_string().contains("longer than 1024 bytes"), "{long_key}");
    // An order with many words that a terminal would obey, and a time of any length.
    let grain = GrainName { grain_type: "stall".to_owned(), key: format!("7 {long}").into() };
    let because = Some("\u{1b}[2J".repeat(10_000));
    let order = Question::Deactivate { grain, drop_turns: true, within_ms: u64::MAX, because };
    let ended: Deactivated = admin.deactivate(&order).await.unwrap();
    assert_eq!(ended.ended, 1);
    // An answer of an unexpected type is an error, not a panic.
    let wrong = admin.ask::<SiloLook>(None, &Question::Types).await;
    assert!(matches!(wrong.unwrap_err(), AdminError::Unreadable(_)));
    client.close().await;
    silo.stop().await.unwrap();
}
