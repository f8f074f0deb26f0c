//! The SDK's client, and how its requests are sent: in time, and again while the service has too
//! much to do or a connection broke.

use std::future::Future;
use std::sync::Arc;

use aws_sdk_dynamodb::config::{
    BehaviorVersion, IdentityCache, Region, StalledStreamProtectionConfig,
};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::{Client as Sdk, Config};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use emmer_store::away::AWAY_PAUSE;
use emmer_store::{ClockDifference, Result};
use emmer_store_keyvalue::http::{Http, Request};
use emmer_store_keyvalue::{Failure, Fault, Patience};
use reqwest::Method;
use tokio::time::{Instant, sleep, timeout_at};

use crate::address::Address;
use crate::connector::Connector;
use crate::failure::{Attempt, Refusal, understood};

/// Number of times that a request is sent again whose connection broke, or that ended in an error
/// of the service itself.
const REPEATS_MAX: usize = 2;

/// A client of the service.
pub(crate) struct Client {
    pub(crate) address: Address,
    pub(crate) sdk: Sdk,
    http: Arc<Http>,
}

/// End of a request that was no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Conditions, by position, did not hold.
    Conditions {
        /// Positions of them: at least one.
        failed: Vec<usize>,
        /// True if an earlier attempt may still happen.
        repeated: bool,
    },
    /// Anything else.
    Failed(Failure),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault.into())
    }
}

impl Ended {
    /// Failure of a request that has no conditions.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Failed(failure) => failure,
            Self::Conditions { failed, .. } => Failure::Nothing(Fault::corrupt(format!(
                "conditions {failed:?} of a request that has none"
            ))),
        }
    }

    /// Fault of a request whose repetition does no harm.
    pub(crate) fn fault(self) -> Fault {
        self.failure().fault()
    }
}

impl Client {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn new(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let address = Address::parse(url, environment)?;
        let place = &address.place;
        let http = Arc::new(Http::new(place, address.tls)?);
        let config = Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new(address.region.clone()))
            .endpoint_url(place.bases(address.tls).into_iter().next().unwrap_or_default())
            .credentials_provider(address.credentials.clone())
            // A file's key may change.
            .identity_cache(IdentityCache::no_cache())
            .http_client(Connector { http: http.clone(), timeout: place.timeout })
            // The store retries and limits the time by itself, as every store does.
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Ok(Self { sdk: Sdk::from_conf(config), address, http })
    }

    /// Time at which an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.place.timeout
    }

    /// Sends a request whose repetition does no harm, because it names the expected rows, or has a
    /// token.
    pub(crate) async fn send<T, E, F>(
        &self,
        deadline: Instant,
        request: impl Fn() -> F,
    ) -> std::result::Result<T, Ended>
    where
        E: Refusal,
        F: Future<Output = std::result::Result<T, SdkError<E, HttpResponse>>>,
    {
        let (mut patience, mut repeats, mut repeated) = (Patience::default(), 0, false);
        loop {
            self.address.credentials.now()?;
            let Ok(sent) = timeout_at(deadline, request()).await else {
                let fault = Fault::unavailable("the server does not answer in time");
                return Err(Ended::Failed(Failure::Broken(fault)));
            };
            let failure = match sent.map_err(understood) {
                Ok(answer) => return Ok(answer),
                Err(Attempt::Conditions(failed)) => {
                    return Err(Ended::Conditions { failed, repeated });
                }
                Err(Attempt::Busy(words)) => {
                    if patience.wait(None, deadline).await {
                        continue;
                    }
                    let detail =
                        format!("the service throttles: {words}, {} times", patience.sent());
                    Failure::Nothing(Fault::unavailable(detail))
                }
                Err(Attempt::InProgress) => {
                    repeated = true;
                    if patience.wait(None, deadline).await {
                        continue;
                    }
                    Failure::Nothing(Fault::unavailable("an earlier attempt is on its way"))
                }
                Err(Attempt::Failed(Failure::Broken(_)))
                    if repeats < REPEATS_MAX && Instant::now() + AWAY_PAUSE < deadline =>
                {
                    (repeats, repeated) = (repeats + 1, true);
                    sleep(AWAY_PAUSE).await;
                    continue;
                }
                Err(Attempt::Failed(failure)) => failure,
            };
            // Nothing happened in this attempt, but the one before may have.
            return Err(Ended::Failed(if repeated {
                Failure::Broken(failure.fault())
            } else {
                failure
            }));
        }
    }

    /// Name of the server in the headers of its answers, and the distance of its clock from this
    /// host's.
    pub(crate) async fn about(
        &self,
        deadline: Instant,
    ) -> std::result::Result<(String, Option<ClockDifference>), Fault> {
        let request = Request::new(Method::GET, "/", "");
        let answer = self.http.send(&request, deadline, true).await.map_err(Failure::fault)?;
        let server = answer.header("server").unwrap_or_default().to_owned();
        Ok((server, self.http.clock(&request, deadline).await))
    }
}
