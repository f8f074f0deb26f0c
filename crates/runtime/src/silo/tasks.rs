//! Tasks of the application: once its silo is active, and before it leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{SiloCore, StartError};
use crate::grain::{ClusterClient, Error};
use crate::hosting::contained;
use crate::log::warn_seldom;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Task<T> = Box<dyn FnOnce(ClusterClient) -> Work<T> + Send>;

/// A task that runs once the silo is Active.
pub(crate) struct StartTask(Task<Result<(), Error>>);

/// A task that runs before the silo leaves.
pub(crate) struct LeaveTask(Task<()>);

impl StartTask {
    pub(super) fn new<F>(task: impl FnOnce(ClusterClient) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        Self(Box::new(|client| Box::pin(task(client))))
    }
}

impl LeaveTask {
    pub(super) fn new<F>(task: impl FnOnce(ClusterClient) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Box::new(|client| Box::pin(task(client))))
    }
}

/// Runs the tasks of a silo that has become Active, one after the other.
pub(super) async fn started(core: &Arc<SiloCore>, tasks: Vec<StartTask>) -> Result<(), StartError> {
    for StartTask(task) in tasks {
        let client = ClusterClient::of_silo(core.calls.clone());
        let done = contained(async move { task(client).await }).await;
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
        let client = ClusterClient::of_silo(core.calls.clone());
        if let Err(panic) = contained(async move { task(client).await }).await {
            warn_seldom!(panic, "a task before the silo leaves panicked");
        }
    }
}
