//! Tasks of the application: once its silo is active, and before it leaves.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use emmer_net::warn_seldom;

use super::core::SiloCore;
use super::start_error::StartError;
use crate::grain::{Error, GrainFactory};
use crate::turn::contained;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Task<T> = Box<dyn FnOnce(GrainFactory) -> Work<T> + Send>;

/// A task that runs once the silo is Active.
pub(crate) struct StartTask(Task<Result<(), Error>>);

/// A task that runs before the silo leaves.
pub(crate) struct LeaveTask(Task<()>);

impl StartTask {
    pub(super) fn new<F>(task: impl FnOnce(GrainFactory) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        Self(Box::new(|client| Box::pin(task(client))))
    }
}

impl LeaveTask {
    pub(super) fn new<F>(task: impl FnOnce(GrainFactory) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Box::new(|client| Box::pin(task(client))))
    }
}

/// The log says this often that a task is waited for.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Waits for a task, and says again and again how long that has taken.
async fn told_while<T>(
    core: &SiloCore,
    task: impl Future<Output = T>,
    tell: impl Fn(Duration),
) -> T {
    let mut task = pin!(task);
    let mut waited = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            done = &mut task => return done,
            () = core.host.wheel.sleep(PROGRESS_EVERY) => {}
        }
        waited += PROGRESS_EVERY;
        tell(waited);
    }
}

/// Runs the tasks of a silo that has become Active, one after the other.
pub(super) async fn started(core: &Arc<SiloCore>, tasks: Vec<StartTask>) -> Result<(), StartError> {
    for (n, StartTask(task)) in tasks.into_iter().enumerate() {
        let client = GrainFactory::of_silo(core.calls.clone());
        let done = contained(async move { task(client).await });
        let done = told_while(core, done, |waited| {
            tracing::warn!(
                me = %core.address, task = n + 1, ?waited,
                "the silo is Active, and its start waits for a task (`on_start`)"
            );
        });
        let done = done.await;
        let done =
            done.unwrap_or_else(|panic| Err(Error::new(format_args!("it panicked: {panic}"))));
        done.map_err(|error| StartError::Startup(error.into()))?;
    }
    Ok(())
}

/// Runs the tasks of a silo that is about to leave, one after the other; once.
pub(super) async fn leaving(core: &Arc<SiloCore>) {
    let tasks = std::mem::take(&mut *core.before_leave.lock());
    for LeaveTask(task) in tasks {
        let client = GrainFactory::of_silo(core.calls.clone());
        let done = contained(async move { task(client).await });
        let done = told_while(core, done, |waited| {
            tracing::warn!(
                me = %core.address, ?waited,
                "the silo waits for a task before it leaves (`before_leave`)"
            );
        });
        if let Err(panic) = done.await {
            warn_seldom!(panic, "a task before the silo leaves panicked");
        }
    }
}
