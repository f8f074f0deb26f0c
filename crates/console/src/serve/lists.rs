//! Answers about all silos: settings, metrics, lines of the log, traces.

use std::collections::BTreeMap;

use axum::extract::{Query, State};
use axum::response::IntoResponse;
use emmer_core::SiloAddress;
use emmer_runtime::admin::{LogPage, MetricLook, Question, SettingLook, TracePage};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::Shared;
use super::ask::{Answer, OfGrain, Unanswered, silo_of};
use super::shared::once;

/// Number of metrics in an answer.
const METRICS_MAX: usize = 2_000;

/// A setting, and the silos with each of its values.
#[derive(Serialize)]
struct Setting {
    key: String,
    values: Vec<Value>,
}

#[derive(Serialize)]
struct Value {
    value: Option<String>,
    place: Option<String>,
    silos: Vec<String>,
}

/// The settings of all silos, value by value.
pub(super) async fn settings(State(shared): State<Shared>) -> Answer {
    once(&shared.answers.settings, "", all_settings(&shared)).await
}

async fn all_settings(shared: &Shared) -> Result<Vec<Setting>, Unanswered> {
    let told: BTreeMap<SiloAddress, Vec<SettingLook>> = shared.ask_all(&Question::Settings).await?;
    let (mut settings, mut places) = (Vec::<Setting>::new(), BTreeMap::<String, usize>::new());
    for (silo, rows) in told {
        for row in rows {
            let at = *places.entry(row.key.clone()).or_insert_with(|| {
                settings.push(Setting { key: row.key.clone(), values: Vec::new() });
                settings.len() - 1
            });
            let values = &mut settings[at].values;
            let same = |one: &&mut Value| one.value == row.value && one.place == row.place;
            match values.iter_mut().find(same) {
                Some(one) => one.silos.push(silo.to_string()),
                None => {
                    let SettingLook { value, place, .. } = row;
                    values.push(Value { value, place, silos: vec![silo.to_string()] });
                }
            }
        }
    }
    Ok(settings)
}

#[derive(Deserialize)]
pub(super) struct OfMetrics {
    /// Beginnings of names, separated by commas; none for all.
    #[serde(default)]
    names: String,
    #[serde(default)]
    silo: String,
}

/// Metrics, summed over all silos.
pub(super) async fn metrics(State(shared): State<Shared>, Query(of): Query<OfMetrics>) -> Answer {
    let question = format!("{} {}", of.silo, of.names);
    once(&shared.answers.metrics, &question, sums(&shared, &of)).await
}

async fn sums(shared: &Shared, of: &OfMetrics) -> Result<Vec<Json>, Unanswered> {
    let told: BTreeMap<SiloAddress, Vec<MetricLook>> = match silo_of(&of.silo)? {
        Some(silo) => [(silo, shared.admin().ask(Some(silo), &Question::Metrics).await?)].into(),
        None => shared.ask_all(&Question::Metrics).await?,
    };
    let names: Vec<&str> = of.names.split(',').filter(|name| !name.is_empty()).collect();
    let is_wanted = |look: &MetricLook| {
        names.is_empty() || names.iter().any(|name| look.name.starts_with(name))
    };
    let mut sums: BTreeMap<(String, Vec<(String, String)>), Sum> = BTreeMap::new();
    for look in told.into_values().flatten().filter(is_wanted) {
        let sum = sums.entry((look.name, look.labels)).or_default();
        sum.value += look.value;
        for (end, samples) in look.latency.into_iter().flat_map(|latency| latency.buckets) {
            *sum.buckets.entry(end).or_default() += samples;
        }
    }
    let row = |((name, labels), sum): ((String, Vec<(String, String)>), Sum)| {
        let buckets: Vec<(u64, u64)> = sum.buckets.into_iter().collect();
        let quantile = |q| crate::rates::quantile(&buckets, q);
        json!([name, labels, sum.value, quantile(0.5), quantile(0.99)])
    };
    Ok(sums.into_iter().take(METRICS_MAX).map(row).collect())
}

#[derive(Default)]
struct Sum {
    value: f64,
    buckets: BTreeMap<u64, u64>,
}

#[derive(Deserialize)]
pub(super) struct OfLog {
    #[serde(default)]
    silo: String,
    #[serde(default)]
    after: u64,
    level: String,
}

/// Lines of the log of a silo.
pub(super) async fn log(State(shared): State<Shared>, Query(of): Query<OfLog>) -> Answer {
    let question = Question::Log { level: of.level, after: of.after, max: 500 };
    let page: LogPage = shared.admin().ask(silo_of(&of.silo)?, &question).await?;
    Ok(axum::Json(page).into_response())
}

/// The turns of a grain while it is traced, where it is now.
pub(super) async fn trace(State(shared): State<Shared>, Query(of): Query<OfGrain>) -> Answer {
    let grain = shared.grain_of(&of.r#type, &of.key).await?;
    let page: TracePage = shared.admin().ask(None, &Question::Traced { grain }).await?;
    Ok(axum::Json(page).into_response())
}
