//! The meaning of the SDK's errors: whether anything happened, and whether to send the same again.

use std::time::Duration;

use azure_data_cosmos::CosmosError;
use emmer_store::StoreErrorKind;
use emmer_store::away::AWAY_PAUSE;
use emmer_store_keyvalue::{Failure, Fault};

/// The sub-status of an answer without its place: the database or the container is missing.
const OWNER_IS_MISSING: u16 = 1_003;
/// The sub-statuses, of the SDK's own, of a request that was not sent: no connection, no name, no
/// common version of HTTP.
const NOT_SENT: [u16; 3] = [20_010, 20_012, 20_015];
/// The sub-statuses of a 403 of a region that does not write, or is leaving.
const REGION_LEAVES: [u16; 2] = [3, 1_008];

/// The end of an attempt that was no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing happened, and the service wants the same again, after this time if it names one. See
    /// [`pause`](Self::pause).
    Busy(String, Option<Duration>),
    /// The service is not reached, or serves no requests now: nothing happened.
    Away(Fault),
    /// It happened, or not, or is about to.
    Uncertain(Fault),
    /// Nothing happened, and would not the next time.
    Refused(Fault),
}

impl Ended {
    /// The failure in words.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Busy(words, _) => Fault::unavailable(format!("the service throttles: {words}")),
            Self::Away(fault) | Self::Uncertain(fault) | Self::Refused(fault) => fault,
        }
    }

    /// The pause before the same is sent again, if the service names a time that is not short. It
    /// asks every client for a millisecond, and Emmer's own pauses grow.
    pub(crate) fn pause(&self) -> Option<Duration> {
        match self {
            Self::Busy(_, pause) => pause.filter(|pause| *pause > AWAY_PAUSE),
            _ => None,
        }
    }

    /// Returns true if the same may be sent again, where it does no harm that it happens twice.
    pub(crate) const fn may_repeat(&self) -> bool {
        matches!(self, Self::Busy(..) | Self::Uncertain(_))
    }

    /// The failure of a request whose outcome matters.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Uncertain(fault) => Failure::Broken(fault),
            other => Failure::Nothing(other.fault()),
        }
    }
}

/// An error and what led to it, the SDK's own first.
fn chain(error: &CosmosError) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
}

/// An error in words, on one line: the service's own, or the last cause of one that did not come
/// from there. Without the SDK's diagnostics.
fn words(error: &CosmosError) -> String {
    let said = error.response().and_then(|response| {
        let json: serde_json::Value = response.body().clone().into_single().ok()?;
        Some(json.get("message")?.as_str()?.to_owned())
    });
    let status = error.status();
    let code = u16::from(status.status_code());
    let code = match status.sub_status() {
        Some(sub) if sub.value() != 0 => format!("{code}/{}", sub.value()),
        _ => code.to_string(),
    };
    let text = match (&said, chain(error).last()) {
        (Some(said), _) => format!("{code}: {said}"),
        (None, Some(cause)) if chain(error).count() > 1 => cause.to_string(),
        (None, _) => error.to_string(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

/// Returns true if the request was not sent: the SDK says so of the error, or of its cause.
fn was_not_sent(error: &CosmosError) -> bool {
    let mut causes = chain(error).filter_map(|cause| cause.downcast_ref::<CosmosError>());
    causes
        .any(|cause| cause.status().sub_status().is_some_and(|sub| NOT_SENT.contains(&sub.value())))
}

/// The meaning of an error.
pub(crate) fn understood(error: &CosmosError) -> Ended {
    let status = error.status();
    let sub = status.sub_status().map_or(0, |sub| sub.value());
    let pause = error.response().and_then(|response| response.headers().retry_after_ms);
    let pause = pause.map(Duration::from_millis);
    let refused = |kind| Ended::Refused(Fault::new(kind, words(error)));
    match u16::from(status.status_code()) {
        // Throttled; a moved partition, which is found again; a conflict inside the service.
        410 | 429 | 449 => Ended::Busy(words(error), pause),
        503 if was_not_sent(error) => Ended::Away(Fault::unavailable(words(error))),
        403 if REGION_LEAVES.contains(&sub) => Ended::Away(Fault::unavailable(words(error))),
        401 | 403 => refused(StoreErrorKind::Refused),
        404 if sub == OWNER_IS_MISSING || sub == 0 => refused(StoreErrorKind::NotFound),
        400 | 413 => refused(StoreErrorKind::Invalid),
        // No answer, 408, 500, 503, and whatever comes newly.
        _ => Ended::Uncertain(Fault::unavailable(words(error))),
    }
}
