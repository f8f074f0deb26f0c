//! The lists that a silo has of itself, and what an operator does to reminders.

use emmer::access::Access;
use emmer::admin::{
    AdminError, ChangeLook, ConnectionLook, DueLook, FailedLook, GrainName, MetricLook, Question,
    SettingLook, TracePage,
};
use emmer::prelude::*;
use emmer::reminders::Tick;
use emmer::test::World;

#[grain_interface(key = u64)]
trait Alarm {
    async fn set(&mut self) -> Result<(), String>;
    async fn rung(&self) -> u64;
    async fn fail(&self);
    /// Has ticks of the reminder wait for a word that never comes.
    async fn jam(&mut self);
}

#[derive(Grain)]
struct AlarmGrain {
    #[state("rung")]
    rung: Persistent<u64>,
    is_jammed: bool,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Alarm for AlarmGrain {
    async fn set(&mut self) -> Result<(), String> {
        let ring = self.ctx.remind("ring").after(secs(120)).every(secs(3_600));
        ring.await.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn rung(&self) -> u64 {
        *self.rung
    }

    async fn fail(&self) {
        panic!("no bell");
    }

    async fn jam(&mut self) {
        self.is_jammed = true;
    }
}

#[grain]
impl AlarmGrain {
    #[reminder("ring")]
    async fn ring(&mut self, _tick: Tick) {
        if self.is_jammed {
            std::future::pending::<()>().await;
        }
        *self.rung += 1;
        self.rung.write().await.unwrap();
    }
}

fn alarms(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Alarm, AlarmGrain>()
        .configure(|options| options.records.history_retention = secs(86_400 * 30))
        .authorize_admin(|_| Access::Allow)
}

fn alarm(key: u64) -> GrainName {
    GrainName { grain_type: "alarm".to_owned(), key: key.into() }
}

#[emmer::test(seeds = 4)]
async fn an_operator_sees_reminders_fires_and_removes_them(world: World) {
    let cluster = world.cluster(2, alarms).await;
    let client = cluster.client().await;
    let admin = client.admin();
    let alarms = [1_u64, 2, 3].map(|key| client.grain::<dyn Alarm>(key));
    for alarm in &alarms {
        alarm.set().await.unwrap();
    }
    world.advance(secs(5)).await;
    let mut due = Vec::new();
    for node in cluster.nodes() {
        let own: Vec<DueLook> =
            admin.ask(Some(node.address()), &Question::Reminders { max: 10 }).await.unwrap();
        due.extend(own);
    }
    due.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(due.len(), 3, "{due:?}");
    for (look, key) in due.iter().zip(1_u64..) {
        assert_eq!((look.key.clone(), look.name.as_str()), (key.into(), "ring"));
        assert!(look.in_ms.is_some_and(|ms| (100_000..120_000).contains(&ms)), "{look:?}");
    }
    let (grain, name) = (alarm(2), "ring".to_owned());
    let fire = Question::FireReminder { grain: grain.clone(), name: name.clone(), because: None };
    assert!(admin.ask::<bool>(None, &fire).await.unwrap());
    assert_eq!(alarms[1].rung().await.unwrap(), 1);
    // Its own tick comes all the same.
    world.advance(secs(130)).await;
    assert_eq!(alarms[1].rung().await.unwrap(), 2);
    let because = Some("ticket 3".to_owned());
    let remove = Question::RemoveReminder { grain, name, because };
    assert!(admin.ask::<bool>(None, &remove).await.unwrap());
    assert!(!admin.ask::<bool>(None, &remove).await.unwrap());
    assert!(!admin.ask::<bool>(None, &fire).await.unwrap());
    world.advance(secs(3_700)).await;
    assert_eq!(alarms[1].rung().await.unwrap(), 2);
    assert_eq!(alarms[0].rung().await.unwrap(), 2);
    let history: Vec<ChangeLook> = admin.ask(None, &Question::History { max: 50 }).await.unwrap();
    let acts: Vec<_> = history.iter().filter(|one| one.change.starts_with("reminder-")).collect();
    let words: Vec<_> = acts.iter().map(|act| act.change.as_str()).collect();
    assert_eq!(acts.len(), 2, "{words:?}");
    assert!(acts.iter().any(|act| act.change == "reminder-removed"
        && act.evidence.iter().any(|line| line.contains("ticket 3"))));
}

#[emmer::test(seeds = 2)]
async fn a_silo_lists_its_metrics_connections_and_failures(world: World) {
    let cluster = world.cluster(2, alarms).await;
    let client = cluster.client().await;
    let admin = client.admin();
    client.grain::<dyn Alarm>(5_u64).fail().await.unwrap_err();
    let mut failures = Vec::new();
    for node in cluster.nodes() {
        let silo = Some(node.address());
        failures.extend(
            admin.ask::<Vec<FailedLook>>(silo, &Question::Failures { max: 10 }).await.unwrap(),
        );
        let metrics: Vec<MetricLook> = admin.ask(silo, &Question::Metrics).await.unwrap();
        let info = metrics.iter().find(|metric| metric.name == "emmer_silo_info").unwrap();
        assert!(info.labels.iter().any(|(name, value)| name == "cluster" || value == "dev"));
        assert!(metrics.iter().any(|metric| metric.latency.is_some()));
        let open: Vec<ConnectionLook> =
            admin.ask(silo, &Question::Connections { max: 10 }).await.unwrap();
        assert!(open.iter().any(|one| one.silo.is_some()), "{open:?}");
        assert!(open.iter().any(|one| one.silo.is_none() && one.from.is_some()), "{open:?}");
    }
    let [failed] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((failed.key.clone(), failed.method.as_str()), (5_u64.into(), "Alarm.fail"));
    assert!(failed.words.contains("no bell"));
}

/// A client has eight questions under way, and gives up after five seconds.
#[emmer::test(seeds = 2)]
async fn questions_that_wait_for_a_grain_free_their_places(world: World) {
    let cluster = world.cluster(1, alarms).await;
    let client = cluster.client().await;
    let admin = client.admin();
    let alarm_1 = client.grain::<dyn Alarm>(1_u64);
    alarm_1.set().await.unwrap();
    alarm_1.jam().await.unwrap();
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let admin = admin.clone();
            let (grain, name) = (alarm(1), "ring".to_owned());
            let fire = Question::FireReminder { grain, name, because: None };
            tokio::spawn(async move { admin.ask::<bool>(None, &fire).await })
        })
        .collect();
    world.advance(secs(6)).await;
    for asked in asked {
        assert_eq!(asked.await.unwrap(), Err(AdminError::TimedOut));
    }
    assert!(matches!(admin.silo(None).await, Err(AdminError::Busy(_))));
    world.advance(secs(5)).await;
    admin.silo(None).await.unwrap();
}

/// A gateway takes eight questions of a client: further ones wait at the client, and none is lost.
#[emmer::test(seeds = 2)]
async fn more_questions_than_a_gateway_takes_wait_for_their_turn(world: World) {
    let cluster = world.cluster(1, alarms).await;
    let admin = cluster.client().await.admin();
    let asked: Vec<_> = (0..100)
        .map(|_| {
            let admin = admin.clone();
            tokio::spawn(async move { admin.types(None).await })
        })
        .collect();
    for asked in asked {
        asked.await.unwrap().unwrap();
    }
}

#[emmer::test(seeds = 4)]
async fn a_grain_is_traced_for_a_time_and_its_class_alone_pays(world: World) {
    let cluster = world.cluster(1, alarms).await;
    let client = cluster.client().await;
    let (admin, one, other) =
        (client.admin(), client.grain::<dyn Alarm>(1_u64), client.grain::<dyn Alarm>(2_u64));
    for _ in 0..200 {
        one.rung().await.unwrap();
    }
    let traced = Question::Traced { grain: alarm(1) };
    let page: TracePage = admin.ask(None, &traced).await.unwrap();
    assert_eq!((page.left_ms, page.turns.len()), (None, 0));
    let because = Some("ticket 4".to_owned());
    let order = Question::Trace { grain: alarm(1), for_ms: 60_000, because };
    assert_eq!(admin.ask::<u64>(None, &order).await.unwrap(), 60_000);
    for _ in 0..5 {
        one.rung().await.unwrap();
        other.rung().await.unwrap();
    }
    one.fail().await.unwrap_err();
    one.jam().await.unwrap();
    let page: TracePage = admin.ask(None, &traced).await.unwrap();
    let told: Vec<_> =
        page.turns.iter().map(|turn| (turn.method.as_str(), turn.end.as_str())).collect();
    let rung = [("Alarm.rung", "done")].repeat(5);
    assert_eq!(told, [&rung[..], &[("Alarm.fail", "failed"), ("Alarm.jam", "done")]].concat());
    assert!(page.left_ms.is_some_and(|left| left <= 60_000));
    assert!(page.turns.windows(2).all(|two| two[0].at_ms <= two[1].at_ms));
    world.advance(secs(61)).await;
    one.rung().await.unwrap();
    let page: TracePage = admin.ask(None, &traced).await.unwrap();
    assert_eq!((page.left_ms, page.turns.len()), (Some(0), 7));
    world.advance(secs(420)).await;
    assert_eq!(admin.ask::<TracePage>(None, &traced).await.unwrap(), TracePage::default());
    let history: Vec<ChangeLook> = admin.ask(None, &Question::History { max: 50 }).await.unwrap();
    let act = history.iter().find(|one| one.change == "traced").unwrap();
    assert!(act.evidence.iter().any(|line| line.contains("ticket 4")), "{act:?}");
    // Its class is sampled again: a second trace misses what came before it.
    for _ in 0..200 {
        one.rung().await.unwrap();
    }
    let most = 9_u64;
    for key in 1..most {
        let order = Question::Trace { grain: alarm(key), for_ms: 1, because: None };
        admin.ask::<u64>(None, &order).await.unwrap();
    }
    let order = Question::Trace { grain: alarm(most), for_ms: 1, because: None };
    let refused = admin.ask::<u64>(None, &order).await.unwrap_err();
    assert!(matches!(&refused, AdminError::Failed(why) if why.contains("as many grains")));
}

#[emmer::test(seeds = 2)]
async fn a_silo_shows_what_its_program_has_set(world: World) {
    let describe = |silo: emmer::SiloBuilder| alarms(silo).configure(|o| o.balance_share = 33);
    let cluster = world.cluster(1, describe).await;
    let admin = cluster.client().await.admin();
    let settings: Vec<SettingLook> = admin.ask(None, &Question::Settings).await.unwrap();
    let row = |key: &str| settings.iter().find(|row| row.key == key).unwrap();
    let share = row("balance_share");
    assert_eq!((share.value.as_deref(), share.place.as_deref()), (Some("33"), Some("the program")));
    assert_eq!(row("liveness_timeout").place, None);
    // The test program starts no log of its own.
    let log = Question::Log { level: "info".to_owned(), after: 0, max: 10 };
    let refused = admin.ask::<emmer::admin::LogPage>(None, &log).await.unwrap_err();
    assert!(refused.to_string().contains("show_log"), "{refused}");
}
