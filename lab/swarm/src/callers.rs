//! Callers outside the cluster: they wait, give up, keep futures, and judge the answers.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use emmer::{Client, millis};
use tokio::time::Instant;

use crate::kinds::{self, Later};
use crate::ledger;
use crate::orders::{Order, Step, Subject};
use crate::plan::Plan;
use crate::{answers, death, idle, patience};

/// Time after its deadline within which a call ends: a tick of the runtime's clock, and the
/// millisecond to which timers of the world are exact.
const TICK: Duration = Duration::from_millis(7);

/// The deepest chain of calls.
const DEPTH_MAX: u32 = 3;

/// Something to do.
pub(crate) fn order(plan: &Plan, depth: u32, may_add: bool) -> Order {
    let steps = (0..ledger::below(4)).map(|_| step(plan, depth, may_add)).collect();
    Order { call: ledger::new_call(), steps, made_ms: 0, is_awaited: false, until_ms: 0 }
}

fn step(plan: &Plan, depth: u32, may_add: bool) -> Step {
    let grain = ledger::below(plan.grains);
    match ledger::below(20) {
        0..=6 if may_add => Step::Add(1 + ledger::below(9)),
        0..=9 => Step::Wait(ledger::below(30)),
        10 => Step::Wait(ledger::below(3_000)),
        15 if ledger::chance(0.5) => Step::Move,
        11..=15 if plan.is_slow && depth < DEPTH_MAX && ledger::chance(0.3) => {
            Step::Keep { grain, order: order(plan, depth + 1, false) }
        }
        11..=15 => Step::Yield,
        16 | 17 if depth < DEPTH_MAX => {
            let timeout_ms = 20 + ledger::below(4_000);
            Step::Call { grain, timeout_ms, order: order(plan, depth + 1, true) }
        }
        18 if depth < DEPTH_MAX && ledger::chance(0.3) => {
            Step::Keep { grain, order: order(plan, depth + 1, false) }
        }
        18 if depth < DEPTH_MAX => {
            let orders = (0..1 + ledger::below(3)).map(|_| order(plan, DEPTH_MAX, true)).collect();
            Step::Send { grain, orders }
        }
        19 if plan.trouble > 0.0 && ledger::chance(0.2) => Step::Panic,
        19 if ledger::chance(0.3) => Step::Rest,
        _ => Step::Yield,
    }
}

/// Makes one call, in a random way.
pub(crate) async fn call(plan: Plan, client: Client) {
    let key = ledger::below(plan.grains);
    let grain = client.grain::<dyn Subject>(key);
    let timeout = millis([30, 300, 3_000, 20_000][usize::try_from(ledger::below(4)).unwrap_or(0)]);
    let is_read = ledger::chance(0.3);
    let mut order = order(&plan, 0, !is_read);
    let (number, begun) = (order.call, Instant::now());
    let asked = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    order.made_ms = ledger::now_ms();
    order.until_ms = order.made_ms + asked;
    let until = order.until_ms;
    match ledger::below(20) {
        // It gives up after a while: a future that is dropped knows nothing.
        0 => {
            ledger::reach("a caller that gave up");
            let patience = millis(ledger::below(200));
            let _ =
                tokio::time::timeout(patience, grain.work(order).timeout(timeout).into_future())
                    .await;
        }
        // It looks once, keeps the future, and comes back much later, or never.
        1 => {
            ledger::reach("a future that was kept");
            let mut kept = pin!(grain.work(order).timeout(timeout).into_future());
            let answer = std::future::poll_fn(|cx| match kept.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending => Poll::Ready(None),
            });
            match answer.await {
                Some(answer) => answers::judge(number, &answer),
                None => {
                    tokio::time::sleep(millis(ledger::below(10_000))).await;
                    if ledger::chance(0.5) {
                        let answer = kept.await;
                        answers::judge(number, &answer);
                        patience::judge(number, until, &answer);
                    }
                }
            }
        }
        // It wants no answer.
        2 => answers::judge_send(number, grain.work(order).send()),
        // It gives up as soon as the call is on its way.
        3 => {
            ledger::reach("a call that was given up at once");
            let mut call = Box::pin(grain.work(order).timeout(timeout).into_future());
            let _ = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        }
        _ => {
            let is_later = plan.is_mixed && !is_read && ledger::chance(0.2);
            // The only silo that serves a later method may be away.
            let may_wait = is_later && kinds::new_ones(&plan) < 2;
            order.is_awaited = !may_wait;
            let _waits = death::awaits(number, None);
            if is_read {
                let answer = grain.look(order).timeout(timeout).await;
                answers::judge(number, &answer);
                patience::judge(number, until, &answer);
                idle::judge(number, key, asked, &answer);
            } else {
                let answer = if is_later {
                    ledger::reach("a call that not every silo serves");
                    client.grain::<dyn Later>(key).work_later(order).timeout(timeout).await
                } else {
                    grain.work(order).timeout(timeout).await
                };
                answers::judge(number, &answer);
                patience::judge(number, until, &answer);
                if !may_wait {
                    idle::judge(number, key, asked, &answer);
                }
            }
            let took = begun.elapsed();
            if took > timeout + TICK {
                ledger::violate(
                    "R4",
                    format!("call {number} with {timeout:?} ended after {took:?}"),
                );
            }
        }
    }
}
