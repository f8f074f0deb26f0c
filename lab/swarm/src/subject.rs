//! The grain under test: it follows its caller's orders, and makes trouble of its own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use emmer::prelude::*;

use crate::orders::{Order, Step, Subject, SubjectRef};
use crate::turns::Turn;
use crate::{answers, circles, death, idle, ledger, moves, order, patience};

/// Time limit of a call whose caller says nothing: the default of `response_timeout`.
const RESPONSE_TIMEOUT_MS: u64 = 30_000;

/// Maximum time for which a turn keeps a call after its other steps, in milliseconds.
const KEPT_MS_MAX: u64 = 400;

/// The number of an activation, and a trap for who drops it.
struct Instance {
    number: u64,
    is_trapped: bool,
}

impl Default for Instance {
    fn default() -> Self {
        Self { number: ledger::new_activation(), is_trapped: ledger::trouble("a panic in Drop") }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        order::ends(self.number);
        if self.is_trapped && !std::thread::panicking() {
            panic_quietly();
        }
    }
}

/// Panics without a word on the terminal: there are thousands of them.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("as planned"))
}

#[derive(Grain)]
#[grain(idle = "5s")]
pub(crate) struct SubjectGrain {
    #[state("total")]
    total: Persistent<u64>,
    #[context]
    ctx: Ctx,
    instance: Instance,
    #[carry]
    memory: Memory,
}

/// Memory of a grain, which is never stored.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Memory {
    /// Number of the life in which it grew: of the activation that began it.
    life: u64,
    /// Number of exclusive turns in this life.
    turns: u64,
    /// Activation that has it.
    activation: u64,
}

impl SubjectGrain {
    fn key(&self) -> u64 {
        self.ctx.key().to_string().parse().unwrap_or(0)
    }

    fn silo(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }

    /// Runs the code of a turn, and tells the ledger of each time it is polled.
    fn watched<F: Future>(&self, code: F) -> Watched<F> {
        let (grain, activation) = (self.key(), self.instance.number);
        Watched { grain, activation, silo: self.silo(), code: Box::pin(code) }
    }

    /// A turn begins.
    async fn begins(&self, order: &Order) -> Turn {
        let call = order.call;
        self.watched(async {
            order::begins(call, ledger::is_whole());
            ledger::begins(call);
        })
        .await;
        idle::begins(order, self.key(), self.instance.number);
        death::begins(call, &self.silo());
        Turn::begins(call, self.key(), self.silo())
    }

    /// Does one step that changes nothing. `until_ms`: until when a caller waits for the turn.
    async fn step(&self, step: Step, until_ms: u64, kept: &mut Vec<Kept>) {
        match step {
            Step::Wait(ms) => self.watched(tokio::time::sleep(Duration::from_millis(ms))).await,
            Step::Yield => self.watched(tokio::task::yield_now()).await,
            Step::Call { grain, timeout_ms, mut order } => {
                (order.made_ms, order.is_awaited) = (ledger::now_ms(), true);
                let own = order.made_ms + timeout_ms;
                order.until_ms = if until_ms > 0 { own.min(until_ms) } else { own };
                let (call, until, asked) =
                    (order.call, order.until_ms, order.until_ms.saturating_sub(order.made_ms));
                let to = self.ctx.grains().grain::<dyn Subject>(grain);
                let (_waits, _stands) =
                    (death::awaits(call, Some(self.silo())), circles::asks(call));
                let answer = to.work(order).timeout(millis(timeout_ms));
                let answer = self.watched(async move { answer.await }).await;
                answers::judge(call, &answer);
                patience::judge(call, until, &answer);
                idle::judge(call, grain, asked, &answer);
            }
            Step::Send { grain, orders } => {
                orders
                    .into_iter()
                    .for_each(|order| send(self.ctx.grains(), &self.silo(), grain, order));
            }
            Step::Keep { grain, mut order } => {
                order.made_ms = ledger::now_ms();
                // It inherits the rest of the turn's own time.
                let own = order.made_ms + RESPONSE_TIMEOUT_MS;
                order.until_ms = if until_ms > 0 { own.min(until_ms) } else { own };
                let (call, until) = (order.call, order.until_ms);
                let to = self.ctx.grains().grain::<dyn Subject>(grain);
                let mut kept_one: Kept = Box::pin(async move {
                    let answer = to.look(order).await;
                    answers::judge(call, &answer);
                    patience::judge(call, until, &answer);
                });
                let once = std::future::poll_fn(|cx| Poll::Ready(kept_one.as_mut().poll(cx)));
                if once.await.is_pending() {
                    kept.push(kept_one);
                }
            }
            Step::Panic => {
                ledger::reach("a panic in a turn");
                panic_quietly();
            }
            Step::Rest => {
                idle::rests(self.instance.number);
                self.ctx.deactivate_on_idle();
            }
            Step::Move => match ledger::a_silo() {
                Some(silo) if ledger::chance(0.8) => self.ctx.move_to(silo),
                _ => self.ctx.move_by_placement(),
            },
            Step::Add(_) => {}
        }
    }
}

impl SubjectGrain {
    /// The timer of the grain, which moves with it.
    fn start_timer(&self) {
        self.ctx.timer(moves::PERIOD).every(moves::PERIOD).run(Self::tick);
    }

    async fn tick(&mut self) {
        self.watched(async { moves::ticks(self.key(), self.memory.life) }).await;
    }

    /// Comes back to some of the calls that were kept.
    async fn come_back(&self, kept: Vec<Kept>) {
        for one in kept {
            if ledger::chance(0.5) {
                ledger::reach("a call that a turn kept");
                self.watched(tokio::time::sleep(Duration::from_millis(ledger::below(KEPT_MS_MAX))))
                    .await;
                self.watched(one).await;
            }
        }
    }

    /// Does the steps of an exclusive turn.
    async fn perform(&mut self, order: Order) -> Result<(), StateError> {
        let mut kept = Vec::new();
        for step in order.steps {
            let Step::Add(n) = step else {
                self.step(step, order.until_ms, &mut kept).await;
                continue;
            };
            self.add(n).await?;
        }
        self.come_back(kept).await;
        self.watched(async {}).await;
        Ok(())
    }

    /// Adds to the state, and stores it.
    async fn add(&mut self, n: u64) -> Result<(), StateError> {
        let key = self.key();
        self.total.modify(|total| *total += n);
        // For any end of the turn: from here on it may be stored.
        let mut write = Write { grain: key, added: n, is_open: true };
        let written = self.total.write().await;
        moves::writes(key, &written);
        write.is_open = matches!(&written, Err(StateError::Store { maybe_written: true, .. }));
        if written.is_ok() {
            ledger::stored(key, n, true);
        }
        written
    }
}

/// Makes a call from `silo` and wants no answer.
pub(crate) fn send(client: &GrainFactory, silo: &str, grain: u64, order: Order) {
    send_by(&client.grain::<dyn Subject>(grain), silo, order);
}

/// As [`send`], by this reference.
pub(crate) fn send_by(grain: &SubjectRef, silo: &str, mut order: Order) {
    order.made_ms = ledger::now_ms();
    order.until_ms = order.made_ms + RESPONSE_TIMEOUT_MS;
    let call = order.call;
    order::sends(call, silo.to_owned(), grain.key());
    answers::judge_send(call, grain.work(order).send());
}

type Kept = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Lifecycle for SubjectGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        order::activates(self.key(), self.instance.number);
        let (life, activation) = (self.instance.number, self.instance.number);
        self.memory = Memory { life, turns: 0, activation };
        self.start_timer();
        ctx.silo().into_iter().for_each(ledger::note_silo);
        let _inside = idle::enters(self.key());
        if ledger::trouble("a write in the activate hook") {
            if ledger::chance(0.5) {
                ledger::refuse_next_write(self.key());
            }
            // The runtime takes care of the outcome.
            let _ = self.add(1).await;
        }
        if ledger::trouble("a slow activate hook") {
            let ms = ledger::below(800);
            self.watched(tokio::time::sleep(Duration::from_millis(ms))).await;
        }
        if ledger::trouble("a panic in the activate hook") {
            panic_quietly();
        }
        if ledger::trouble("an error of the activate hook") {
            return Err(ActivationError::new("as planned"));
        }
        Ok(())
    }

    async fn arrive(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        ledger::reach("a grain that moved");
        ctx.silo().into_iter().for_each(ledger::note_silo);
        order::moves(self.key(), self.memory.activation, self.instance.number);
        moves::arrives(self.key(), self.memory.activation);
        self.start_timer();
        self.memory.activation = self.instance.number;
        if ledger::trouble("a slow arrive hook") {
            let ms = ledger::below(800);
            self.watched(tokio::time::sleep(Duration::from_millis(ms))).await;
        }
        if ledger::trouble("a panic in the arrive hook") {
            order::ends(self.instance.number);
            panic_quietly();
        }
        if ledger::trouble("an error of the arrive hook") {
            order::ends(self.instance.number);
            return Err(ActivationError::new("as planned"));
        }
        Ok(())
    }

    fn may_move(&self) -> bool {
        if ledger::trouble("a panic of a grain that is to move") {
            panic_quietly();
        }
        let may = !ledger::trouble("a grain that does not move");
        moves::answers(self.instance.number, may);
        may
    }

    async fn deactivate(&mut self, _: &Ctx, reason: DeactivationReason) {
        if let DeactivationReason::OtherVersion(_) = reason {
            ledger::reach("a grain that went for a newer version");
        }
        order::ends(self.instance.number);
        let _inside = idle::enters(self.key());
        if ledger::trouble("a slow deactivate hook") {
            tokio::time::sleep(Duration::from_millis(ledger::below(800))).await;
        }
        if ledger::trouble("a panic in the deactivate hook") {
            panic_quietly();
        }
        if ledger::trouble("a deactivate hook that never ends") {
            std::future::pending::<()>().await;
        }
    }
}

#[grain]
impl Subject for SubjectGrain {
    async fn work(&mut self, order: Order) -> Result<u64, StateError> {
        let turn = self.begins(&order).await;
        self.memory.turns += 1;
        ledger::remembers(self.key(), self.memory.life, self.memory.turns);
        let done = self.perform(order).await;
        turn.ends();
        done?;
        Ok(*self.total)
    }

    async fn look(&self, order: Order) -> u64 {
        let turn = self.begins(&order).await;
        let mut kept = Vec::new();
        for step in order.steps {
            self.step(step, order.until_ms, &mut kept).await;
        }
        self.come_back(kept).await;
        turn.ends();
        *self.total
    }
}

/// A write under way: if its turn is dropped, its outcome is unknown.
struct Write {
    grain: u64,
    added: u64,
    is_open: bool,
}

impl Drop for Write {
    fn drop(&mut self) {
        if self.is_open {
            ledger::stored(self.grain, self.added, false);
            ledger::reach("a write of unknown outcome");
        }
    }
}

/// A piece of a turn, of which every poll is noted.
struct Watched<F> {
    grain: u64,
    activation: u64,
    silo: String,
    code: Pin<Box<F>>,
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ledger::polled(self.grain, self.activation, &self.silo);
        self.code.as_mut().poll(cx)
    }
}
