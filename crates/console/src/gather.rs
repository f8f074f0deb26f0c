//! Asks the silos of a cluster, and makes a picture of the answers.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::time::{Duration, SystemTime};

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, Timestamp};
use emmer_runtime::admin::{
    Admin, AdminError, DueLook, HotGrain, HotLook, Question, SiloLook, TypeLook,
};
use tokio::time::Instant;

use crate::asking::ask_silos;
use crate::events::Events;
use crate::picture::{HotRow, Picture, QueueRow, ReminderRow, SiloOwn, SiloRow, TurnRow, TypeRow};
use crate::rates::{Methods, per_second, share};

/// Number of silos that are asked at once.
const ASKED_AT_ONCE: usize = 32;

/// Time that a silo has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Number of rows of each silo in a list.
const ROWS: u32 = 30;

/// Silos that are dead are shown for this long.
const DEAD_SHOWN_MS: i64 = 600_000;

/// The parts of a picture that are wanted besides the silos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// The grain types. Each silo looks at every activation.
    pub types: bool,
    /// The methods.
    pub methods: bool,
    /// The grains that are called most.
    pub hot: bool,
    /// The turns that have run for longest.
    pub turns: bool,
    /// The longest queues. Each silo looks at every activation.
    pub queues: bool,
    /// The reminders that are due next.
    pub reminders: bool,
}

/// Asks the silos of one cluster.
pub struct Gather {
    admin: Admin,
    picture: Picture,
    events: Events,
    methods: Methods,
    methods_at: Option<Instant>,
    types: HashMap<(SiloAddress, String), u64>,
    types_at: Option<Instant>,
    silos: HashMap<SiloAddress, (Instant, SiloLook)>,
    members: Vec<SiloEntry>,
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl Gather {
    /// Of the cluster that `admin` asks.
    pub fn new(admin: Admin) -> Self {
        Self {
            admin: admin.patience(PATIENCE),
            picture: Picture::default(),
            events: Events::default(),
            methods: Methods::default(),
            methods_at: None,
            types: HashMap::new(),
            types_at: None,
            silos: HashMap::new(),
            members: Vec::new(),
        }
    }

    /// The last picture.
    pub const fn picture(&self) -> &Picture {
        &self.picture
    }

    /// The way of questions and orders.
    pub const fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The members as the gateway last told them.
    pub fn members(&self) -> &[SiloEntry] {
        &self.members
    }

    /// Makes the next picture. Rates are those since the one before. A cluster that cannot be asked
    /// leaves the last picture, with words about the trouble.
    pub async fn step(&mut self, wants: Wants) -> &Picture {
        match self.admin.members(None).await {
            Ok(members) => {
                self.picture.trouble = None;
                self.members = members;
            }
            Err(error) => {
                self.picture.trouble = Some(error.to_string());
                return &self.picture;
            }
        }
        self.events.see(&self.members, now());
        self.picture.events = self.events.latest();
        self.see_silos().await;
        if wants.types {
            self.see_types().await;
        }
        if wants.methods {
            let told = self.ask_all(|admin, silo| async move { admin.methods(silo).await }).await;
            let span = self.methods_at.map_or(Duration::ZERO, |at| at.elapsed());
            self.methods_at = Some(Instant::now());
            self.picture.methods = self.methods.rows(told, span);
        }
        if wants.hot {
            let told = self.ask_all(|admin, silo| async move { admin.hot(silo, ROWS).await }).await;
            self.picture.called = hot_rows(&told, |look| &look.called);
            self.picture.busy = hot_rows(&told, |look| &look.busy);
        }
        if wants.turns {
            self.see_turns().await;
        }
        if wants.queues {
            let told =
                self.ask_all(|admin, silo| async move { admin.queues(silo, ROWS).await }).await;
            let row = |(silo, queues): (SiloAddress, Vec<emmer_runtime::GrainQueue>)| {
                queues.into_iter().map(move |queue| QueueRow {
                    silo,
                    grain_type: queue.grain_type,
                    key: queue.key.to_string(),
                    id: queue.key,
                    waiting: queue.waiting,
                })
            };
            let mut queues: Vec<_> = told.into_iter().flat_map(row).collect();
            queues.sort_by_key(|row| std::cmp::Reverse(row.waiting));
            self.picture.queues = queues;
        }
        if wants.reminders {
            let question = || Question::Reminders { max: ROWS };
            let asked = |admin: Admin, silo| async move {
                admin.ask::<Vec<DueLook>>(silo, &question()).await
            };
            let told = self.ask_all(asked).await;
            let row = |(silo, due): (SiloAddress, Vec<DueLook>)| {
                due.into_iter().map(move |due| ReminderRow { silo, due })
            };
            let mut rows: Vec<_> = told.into_iter().flat_map(row).collect();
            rows.sort_by_key(|row| row.due.in_ms);
            self.picture.reminders = rows;
        }
        &self.picture
    }

    async fn see_silos(&mut self) {
        let told = self.ask_all(|admin, silo| async move { admin.silo(silo).await }).await;
        let (at, mut looks) = (Instant::now(), HashMap::new());
        let mut own = BTreeMap::new();
        for (silo, look) in told {
            own.insert(silo, own_row(self.silos.get(&silo), &look, at));
            self.picture.view = self.picture.view.max(look.view);
            if self.picture.cluster.is_empty() {
                self.picture.cluster.clone_from(&look.cluster);
            }
            looks.insert(silo, (at, look));
        }
        self.silos = looks;
        // By the clocks of the silos, not by this host's.
        let latest = self.members.iter().map(|row| row.i_am_alive_time.as_millis()).max();
        let forgotten = latest.map(|latest| latest - DEAD_SHOWN_MS);
        let is_shown = |row: &&SiloEntry| {
            row.status != SiloStatus::Dead
                || row.votes.iter().map(|vote| vote.at.as_millis()).max() > forgotten
        };
        let row = |row: &SiloEntry| SiloRow {
            silo: row.address,
            name: row.instance_name.to_string(),
            role: row.role_name.to_string(),
            status: row.status,
            duty: row.duty,
            suspected_by: row
                .votes
                .iter()
                .map(|vote| vote.voter)
                .filter(|voter| *voter != row.address)
                .collect(),
            own: own.remove(&row.address),
        };
        self.picture.silos = self.members.iter().filter(is_shown).map(row).collect();
    }

    async fn see_types(&mut self) {
        let told = self.ask_all(|admin, silo| async move { admin.types(silo).await }).await;
        let span = self.types_at.map_or(Duration::ZERO, |at| at.elapsed());
        self.types_at = Some(Instant::now());
        let (mut rows, mut counts) = (BTreeMap::<String, TypeRow>::new(), HashMap::new());
        for (silo, types) in told {
            for one in types {
                let TypeLook {
                    grain_type, activations, busy, activated, failed, bytes_each, ..
                } = one;
                let key = (silo, grain_type.clone());
                let row = rows.entry(grain_type.clone()).or_default();
                row.grain_type = grain_type;
                row.silos += 1;
                row.activations += activations;
                row.most = row.most.max(activations);
                row.busy += busy;
                row.failed += failed;
                row.bytes += activations * bytes_each;
                let before = self.types.get(&key).copied();
                row.activated_per_second += per_second(before, activated, span);
                counts.insert(key, activated);
            }
        }
        self.types = counts;
        self.picture.types = rows.into_values().collect();
    }

    async fn see_turns(&mut self) {
        let told = self.ask_all(|admin, silo| async move { admin.turns(silo, ROWS).await }).await;
        let (mut turns, mut threads) = (Vec::new(), Vec::new());
        for (silo, (own, held)) in told {
            turns.extend(own.into_iter().map(|turn| TurnRow { silo, turn }));
            threads.extend(held.into_iter().map(|held| (silo, held)));
        }
        turns.sort_by_key(|row| std::cmp::Reverse(row.turn.age_ms));
        threads.sort_by_key(|(_, held)| std::cmp::Reverse(held.held_ms));
        self.picture.turns = turns;
        self.picture.threads = threads;
    }

    /// Asks every active silo. Those without an answer are left out.
    async fn ask_all<A, F>(
        &self,
        ask: impl Fn(Admin, Option<SiloAddress>) -> F,
    ) -> Vec<(SiloAddress, A)>
    where
        A: Send + 'static,
        F: Future<Output = Result<A, AdminError>> + Send + 'static,
    {
        let active = self.members.iter().filter(|row| row.status == SiloStatus::Active);
        let active = active.map(|row| row.address).collect();
        let asked = |silo| ask(self.admin.clone(), Some(silo));
        ask_silos(active, ASKED_AT_ONCE, asked).await.0.into_iter().collect()
    }
}

/// The time by this host's clock.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A silo's own words, with the rates since those before.
fn own_row(before: Option<&(Instant, SiloLook)>, look: &SiloLook, at: Instant) -> SiloOwn {
    let span = before.map_or(Duration::ZERO, |(before, _)| at.duration_since(*before));
    let (told, was) = (&look.statistics, before.map(|(_, look)| look.statistics));
    SiloOwn {
        readiness: look.readiness.clone(),
        view: look.view,
        emmer: look.emmer.clone(),
        up_ms: look.up_ms,
        cpu_percent: told.cpu_percent,
        memory_percent: told.memory_percent,
        memory_bytes: look.memory_bytes,
        activations: told.activations,
        turns_per_second: per_second(was.map(|was| was.turns), told.turns, span),
        refused_per_second: per_second(was.map(|was| was.calls_refused), told.calls_refused, span),
        waiting: told.turns_waiting,
        suspended: look.turns_suspended,
        held_threads: look.held_threads,
        probes: look.probes.clone(),
        in_flight: told.calls_in_flight,
        timers: told.timers,
        reminders: told.reminders,
        missed_per_second: per_second(
            was.map(|was| was.reminders_missed),
            told.reminders_missed,
            span,
        ),
    }
}

/// The grains of one list of all silos, most first, in a second.
fn hot_rows(
    told: &[(SiloAddress, HotLook)],
    list: impl Fn(&HotLook) -> &Vec<HotGrain>,
) -> Vec<HotRow> {
    let mut rows: Vec<HotRow> = told
        .iter()
        .flat_map(|(silo, look)| {
            let seconds = Duration::from_millis(look.over_ms).as_secs_f64();
            list(look).iter().map(move |grain| HotRow {
                silo: *silo,
                grain_type: grain.grain_type.clone(),
                key: grain.key.to_string(),
                id: grain.key.clone(),
                per_second: if seconds > 0.0 { share(grain.count) / seconds } else { 0.0 },
            })
        })
        .collect();
    rows.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    rows
}
