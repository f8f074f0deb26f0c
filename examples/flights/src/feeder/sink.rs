//! Where departures go: a cluster, or a pretended one in tests.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use emmer::prelude::*;

use crate::streams::Target;
use crate::{Aircraft, Airport, Applied, ApplyError, Departure};

/// Takes batches.
pub trait Sink: Send + Sync + 'static {
    /// Applies the departures of `target`'s stream from position `from` on.
    fn apply(
        &self,
        target: &Target,
        from: u64,
        batch: Vec<Departure>,
    ) -> impl Future<Output = Result<Applied, Failure>> + Send;
}

/// A failed call. It is repeated, whether it ran or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where the grain says the next batch must start, if it says so.
    pub expected: Option<u64>,
    /// What happened.
    pub detail: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl From<CallError<ApplyError>> for Failure {
    fn from(error: CallError<ApplyError>) -> Self {
        let expected = match &error {
            CallError::App(ApplyError::Gap { expected, .. }) => Some(*expected),
            _ => None,
        };
        Self { expected, detail: error.to_string() }
    }
}

/// The grains of a cluster, through a client.
#[derive(Clone)]
pub struct ClusterSink {
    client: Arc<Client>,
    timeout: Duration,
}

impl ClusterSink {
    /// Calls through `client`, giving each call up after `timeout`.
    pub const fn new(client: Arc<Client>, timeout: Duration) -> Self {
        Self { client, timeout }
    }
}

impl Sink for ClusterSink {
    async fn apply(
        &self,
        target: &Target,
        from: u64,
        batch: Vec<Departure>,
    ) -> Result<Applied, Failure> {
        let answer = match target {
            Target::Airport(code) => {
                let airport = self.client.grain::<dyn Airport>(&**code);
                airport.apply(from, batch).timeout(self.timeout).await
            }
            Target::Aircraft(tail) => {
                let aircraft = self.client.grain::<dyn Aircraft>(&**tail);
                aircraft.apply(from, batch).timeout(self.timeout).await
            }
        };
        answer.map_err(Failure::from)
    }
}
