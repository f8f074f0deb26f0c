//! Answers to questions of a page.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use emmer_core::{SiloAddress, SiloStatus};
use emmer_runtime::admin::{
    AdminError, ChangeLook, ConnectionLook, FailedLook, GrainName, GrainPage, GrainRow, Question,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Shared;
use super::door::refusal;
use super::shared::once;
use crate::{GrainDocument, ask_silos, key_of, merge_pages};

/// Number of silos that one request asks at once.
const ASKED_AT_ONCE: usize = 3;

/// Time of a request that asks all silos.
const FAN_MAX: Duration = Duration::from_secs(20);

/// Number of silos that a request asks.
const SILOS_MAX: usize = 2_000;

/// Number of types whose kind of key is known.
const KINDS_MAX: usize = 10_000;

/// The kinds of the keys, by type.
pub(super) type Kinds = Mutex<HashMap<String, String>>;

/// A request that was not answered.
pub(super) struct Unanswered(pub(super) StatusCode, pub(super) String);

impl From<AdminError> for Unanswered {
    fn from(error: AdminError) -> Self {
        let status = match error {
            AdminError::Refused(_) => StatusCode::FORBIDDEN,
            AdminError::NoType(_) | AdminError::NoSilo(_) => StatusCode::NOT_FOUND,
            AdminError::NoGateway | AdminError::TimedOut | AdminError::Busy(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Unanswered {
    fn into_response(self) -> Response {
        refusal(self.0, &self.1)
    }
}

pub(super) type Answer = Result<Response, Unanswered>;

/// A silo by its text; none for an empty one.
pub(super) fn silo_of(text: &str) -> Result<Option<SiloAddress>, Unanswered> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |_| {
        let why = format!("{text:?} is not a silo: expected ip:port:epoch");
        Unanswered(StatusCode::BAD_REQUEST, why)
    };
    text.parse().map(Some).map_err(wrong)
}

impl Shared {
    /// The grain of a type, by its key's text.
    pub(super) async fn grain_of(
        &self,
        grain_type: &str,
        key: &str,
    ) -> Result<GrainName, Unanswered> {
        let known = self.kinds.lock().get(grain_type).cloned();
        let kind = match known {
            Some(kind) => kind,
            None => self.kind_of(grain_type).await?,
        };
        let key = key_of(&kind, key).map_err(|why| Unanswered(StatusCode::BAD_REQUEST, why))?;
        Ok(GrainName { grain_type: grain_type.to_owned(), key })
    }

    /// Asks silos until one hosts the type.
    async fn kind_of(&self, grain_type: &str) -> Result<String, Unanswered> {
        for silo in [None].into_iter().chain(self.silos().await?.into_iter().map(Some)) {
            let Ok(types) = self.admin().types(silo).await else { continue };
            let found = types.iter().find(|one| one.grain_type == grain_type);
            let Some(kind) = found.map(|one| one.key.clone()) else { continue };
            let mut kinds = self.kinds.lock();
            if kinds.len() < KINDS_MAX {
                kinds.insert(grain_type.to_owned(), kind.clone());
            }
            return Ok(kind);
        }
        Err(AdminError::NoType(grain_type.to_owned()).into())
    }

    /// The Active silos.
    pub(super) async fn silos(&self) -> Result<Vec<SiloAddress>, Unanswered> {
        let members = self.admin().members(None).await?;
        let active = members.into_iter().filter(|row| row.status == SiloStatus::Active);
        Ok(active.map(|row| row.address).take(SILOS_MAX).collect())
    }

    /// Asks every Active silo. Silos without an answer are left out, unless there is no answer at
    /// all.
    pub(super) async fn ask_all<A: DeserializeOwned + Send + 'static>(
        &self,
        question: &Question,
    ) -> Result<BTreeMap<SiloAddress, A>, Unanswered> {
        let busy = || {
            let why = "the silos answer too slowly for all that is asked: try again in a moment";
            Unanswered(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
        };
        timeout(FAN_MAX, self.ask_in_turn(question)).await.map_err(|_| busy())?
    }

    async fn ask_in_turn<A: DeserializeOwned + Send + 'static>(
        &self,
        question: &Question,
    ) -> Result<BTreeMap<SiloAddress, A>, Unanswered> {
        let _turn = self.answers.fans.acquire().await;
        let ask = |silo| {
            let (admin, question) = (self.admin().clone(), question.clone());
            async move { admin.ask::<A>(Some(silo), &question).await }
        };
        let (answers, silent) = ask_silos(self.silos().await?, ASKED_AT_ONCE, ask).await;
        match silent.into_iter().next() {
            Some((_, error)) if answers.is_empty() => Err(error.into()),
            _ => Ok(answers),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct OfGrain {
    pub(super) r#type: String,
    pub(super) key: String,
}

/// One grain.
pub(super) async fn grain(State(shared): State<Shared>, Query(of): Query<OfGrain>) -> Answer {
    let name = shared.grain_of(&of.r#type, &of.key).await?;
    let look = shared.admin().grain(name).await?;
    let silo = look.silo.to_string();
    Ok(Json(GrainDocument::of(&look, silo)).into_response())
}

#[derive(Deserialize)]
pub(super) struct OfGrains {
    r#type: Option<String>,
    key: Option<String>,
    silo: Option<String>,
    #[serde(default)]
    busy: bool,
    /// Place to continue after: a text, because it has more digits than numbers of a page have.
    after: Option<String>,
    #[serde(default = "page_length")]
    max: u32,
}

const fn page_length() -> u32 {
    100
}

/// A page of grains of all silos.
pub(super) async fn grains(State(shared): State<Shared>, Query(of): Query<OfGrains>) -> Answer {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let after = filled(of.after).map(|text| text.parse::<u64>()).transpose();
    let wrong = |_| Unanswered(StatusCode::BAD_REQUEST, "the place is not a number".to_owned());
    let max = of.max.clamp(1, 1_000);
    let question = Question::Grains {
        grain_type: filled(of.r#type),
        key_has: filled(of.key),
        busy: of.busy,
        after: after.map_err(wrong)?,
        max,
    };
    let pages: BTreeMap<SiloAddress, GrainPage> = match silo_of(&of.silo.unwrap_or_default())? {
        Some(silo) => [(silo, shared.admin().grains(Some(silo), &question).await?)].into(),
        None => shared.ask_all(&question).await?,
    };
    let (rows, next) = merge_pages(pages, max as usize);
    let row = |(silo, row): (SiloAddress, GrainRow)| {
        json!([
            silo.to_string(),
            row.grain_type,
            row.key.to_string(),
            row.waiting,
            row.is_running,
            row.idle_ms,
        ])
    };
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    let next = next.map(|next| next.to_string());
    Ok(Json(json!({ "rows": rows, "next": next })).into_response())
}

/// The history of the cluster, latest first.
pub(super) async fn history(State(shared): State<Shared>) -> Answer {
    let ask = async {
        let history = Question::History { max: 1_000 };
        let changes: Vec<ChangeLook> = shared.admin().ask(None, &history).await?;
        Ok(changes)
    };
    once(&shared.answers.history, "", ask).await
}

#[derive(Deserialize)]
pub(super) struct OfSilo {
    #[serde(default)]
    silo: String,
}

/// The last failures of turns on all silos.
pub(super) async fn failures(State(shared): State<Shared>) -> Answer {
    once(&shared.answers.failures, "", last_failures(&shared)).await
}

async fn last_failures(shared: &Shared) -> Result<Vec<Value>, Unanswered> {
    let failures = Question::Failures { max: 100 };
    let told: BTreeMap<SiloAddress, Vec<FailedLook>> = shared.ask_all(&failures).await?;
    let mut rows: Vec<(SiloAddress, FailedLook)> = told
        .into_iter()
        .flat_map(|(silo, rows)| rows.into_iter().map(move |row| (silo, row)))
        .collect();
    rows.sort_by_key(|(_, row)| row.ago_ms);
    let row = |(silo, row): (SiloAddress, FailedLook)| {
        let key = row.key.to_string();
        json!([silo.to_string(), row.grain_type, key, row.ago_ms, row.method, row.words])
    };
    Ok(rows.into_iter().take(200).map(row).collect())
}

/// The connections of a silo.
pub(super) async fn connections(State(shared): State<Shared>, Query(of): Query<OfSilo>) -> Answer {
    let question = Question::Connections { max: 200 };
    let looks: Vec<ConnectionLook> = shared.admin().ask(silo_of(&of.silo)?, &question).await?;
    let row = |look: ConnectionLook| {
        json!({
            "silo": look.silo.map(|silo| silo.to_string()),
            "client": look.client,
            "from": look.from,
            "bytes_waiting": look.bytes_waiting,
            "messages_waiting": look.messages_waiting,
            "calls_waiting": look.calls_waiting,
            "calls_serving": look.calls_serving,
            "bytes_sent": look.bytes_sent,
            "bytes_received": look.bytes_received,
        })
    };
    Ok(Json(looks.into_iter().map(row).collect::<Vec<_>>()).into_response())
}
