//! Transactional batches: their form, and the meaning of their answers.
//!
//! All of a batch happens, or nothing: its answer then has the status of the operation that failed,
//! and 424 for all others. It runs where the partition is written, and sees one moment of it.

use std::sync::Arc;

use azure_core::http::Etag as ServiceEtag;
use azure_data_cosmos::models::TransactionalBatchResponse;
use azure_data_cosmos::options::{BatchDeleteOptions, BatchReplaceOptions, Precondition};
use azure_data_cosmos::{ContainerClient, CosmosError, TransactionalBatch};
use emmer_store::StoreErrorKind;
use emmer_store_keyvalue::Fault;
use serde_json::Value as Json;
use tokio::time::Instant;

use crate::client::Client;
use crate::failure::Ended;

/// The most operations of a batch.
pub(crate) const OPERATIONS_MAX: usize = 100;

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Makes an item that must not exist.
    Create(Json),
    /// Replaces an item that has this etag of the service's.
    Replace(String, Json, String),
    /// Deletes an item that exists, and has this etag if one is named.
    Delete(String, Option<String>),
    /// Reads an item that must exist.
    Read(String),
}

impl Operation {
    fn add_to(&self, batch: TransactionalBatch) -> Result<TransactionalBatch, CosmosError> {
        let if_match = |etag: &str| Precondition::IfMatch(ServiceEtag::from(etag.to_owned()));
        Ok(match self {
            Self::Create(json) => batch.create_item(json)?,
            Self::Replace(id, json, etag) => {
                let options = BatchReplaceOptions::default().with_precondition(if_match(etag));
                batch.replace_item(id.clone(), json, Some(options))?
            }
            Self::Delete(id, etag) => {
                let options = etag
                    .as_ref()
                    .map(|etag| BatchDeleteOptions::default().with_precondition(if_match(etag)));
                batch.delete_item(id.clone(), options)
            }
            Self::Read(id) => batch.read_item(id.clone(), None),
        })
    }
}

/// The outcome of a batch that the service executed or refused.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    /// All of it happened: the service's etag of each item, and an item that was read.
    All(Vec<(Option<String>, Option<Json>)>),
    /// None of it happened: the condition of this operation did not hold.
    Not(usize),
}

impl Client {
    /// Runs a batch on one partition, once.
    pub(crate) async fn transact(
        &self,
        partition: &str,
        operations: &[Operation],
        deadline: Instant,
    ) -> Result<Done, Ended> {
        let run = |container: Arc<ContainerClient>| async move {
            let mut batch = TransactionalBatch::new(partition.to_owned());
            for operation in operations {
                batch = operation.add_to(batch)?;
            }
            container.execute_transactional_batch(batch, None).await?.into_model()
        };
        understood(&self.once(deadline, run).await?, operations)
    }

    /// Runs a batch that may run twice, until it is answered.
    pub(crate) async fn transact_again(
        &self,
        partition: &str,
        operations: &[Operation],
        deadline: Instant,
    ) -> Result<Done, Fault> {
        self.send(deadline, || self.transact(partition, operations, deadline)).await
    }

    /// Reads the items that are there, all as they are at one moment: at most a hundred. A batch
    /// runs where the partition is written, so nothing is newer.
    pub(crate) async fn read(
        &self,
        partition: &str,
        mut ids: Vec<String>,
        deadline: Instant,
    ) -> Result<Vec<Json>, Fault> {
        // An item that is missing ends a batch: the others are asked for without it.
        while !ids.is_empty() {
            let reads: Vec<Operation> = ids.iter().cloned().map(Operation::Read).collect();
            match self.transact_again(partition, &reads, deadline).await? {
                Done::All(answers) => {
                    return Ok(answers.into_iter().filter_map(|(_, item)| item).collect());
                }
                Done::Not(at) => drop(ids.remove(at)),
            }
        }
        Ok(Vec::new())
    }
}

/// The meaning of an answer.
fn understood(
    answer: &TransactionalBatchResponse,
    operations: &[Operation],
) -> Result<Done, Ended> {
    let results = answer.results();
    let failed = results.iter().enumerate().find(|(_, result)| {
        // 424: another operation failed.
        !result.is_success() && result.status_code() != 424
    });
    let unclear = |what: String| Ended::Uncertain(Fault::corrupt(what));
    match failed {
        Some((at, result)) => match result.status_code() {
            404 | 409 | 412 => Ok(Done::Not(at)),
            429 | 449 => {
                let words = format!("operation {at} of a batch: {}", result.status_code());
                Err(Ended::Busy(words, result.retry_after()))
            }
            413 => Err(Ended::Refused(Fault::new(
                StoreErrorKind::Invalid,
                "the batch is larger than Cosmos DB takes (2 MiB)",
            ))),
            other => Err(unclear(format!("operation {at} of a batch has the status {other}"))),
        },
        None if results.len() == operations.len() && results.iter().all(|r| r.is_success()) => {
            let one = |result: &azure_data_cosmos::models::TransactionalBatchOperationResult| {
                (
                    result.etag().map(str::to_owned),
                    result.resource_body().and_then(|body| serde_json::from_str(body.get()).ok()),
                )
            };
            Ok(Done::All(results.iter().map(one).collect()))
        }
        None => Err(unclear(format!(
            "{} answers to a batch of {} operations",
            results.len(),
            operations.len()
        ))),
    }
}
