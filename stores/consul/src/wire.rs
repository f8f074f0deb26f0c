//! Operations and answers of Consul's transactions (`PUT /v1/txn`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, Serialize};

/// The most operations of one transaction. Consul 1.13 and later take 128; older ones do not.
pub(crate) const OPERATIONS_MAX: usize = 64;
/// The most bytes of one transaction as it is sent, a little less than Consul's 512 KiB
/// (`txn_max_req_len`).
pub(crate) const TRANSACTION_BYTES_MAX: usize = 512 * 1024 - 4 * 1024;

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Operation {
    #[serde(rename = "KV")]
    kv: Kv,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Kv {
    verb: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<i64>,
}

impl Operation {
    fn new(verb: &'static str, key: &str, value: Option<&str>, index: Option<i64>) -> Self {
        let value = value.map(|value| BASE64.encode(value));
        Self { kv: Kv { verb, key: key.to_owned(), value, index } }
    }

    /// Writes a key.
    pub(crate) fn set(key: &str, value: &str) -> Self {
        Self::new("set", key, Some(value), None)
    }

    /// Writes a key that was last written at `index`; 0: that is not there.
    pub(crate) fn cas(key: &str, value: &str, index: i64) -> Self {
        Self::new("cas", key, Some(value), Some(index))
    }

    /// Reads a key, and fails when it is not there.
    pub(crate) fn get(key: &str) -> Self {
        Self::new("get", key, None, None)
    }

    /// Reads all keys that begin with `prefix`.
    pub(crate) fn get_tree(prefix: &str) -> Self {
        Self::new("get-tree", prefix, None, None)
    }

    /// Deletes a key, if it is there.
    pub(crate) fn delete(key: &str) -> Self {
        Self::new("delete", key, None, None)
    }

    /// The key was last written at `index`; 0: it is not there.
    pub(crate) fn check(key: &str, index: i64) -> Self {
        match index {
            0 => Self::new("check-not-exists", key, None, None),
            index => Self::new("check-index", key, None, Some(index)),
        }
    }

    /// Returns true if it changes anything. A transaction of others is a read to Consul.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.kv.verb, "get" | "get-tree" | "check-index" | "check-not-exists")
    }

    /// Estimate of the bytes that it takes to send it.
    pub(crate) fn bytes(&self) -> usize {
        100 + self.kv.key.len() + self.kv.value.as_ref().map_or(0, String::len)
    }
}

/// The answer to a transaction, done (status 200) or not (409).
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Txn {
    #[serde(deserialize_with = "or_none")]
    pub(crate) results: Vec<Result_>,
    #[serde(deserialize_with = "or_none")]
    pub(crate) errors: Vec<Error>,
}

/// Answer of one operation.
#[derive(Debug, Deserialize)]
pub(crate) struct Result_ {
    #[serde(rename = "KV")]
    pub(crate) kv: KeyValue,
}

/// A key with its value and when it was last written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct KeyValue {
    pub(crate) key: String,
    #[serde(deserialize_with = "bytes")]
    pub(crate) value: Vec<u8>,
    pub(crate) modify_index: i64,
}

/// Why one operation failed; with it all did.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Error {
    pub(crate) op_index: usize,
    pub(crate) what: String,
}

impl Txn {
    /// All keys that were read, in their order.
    pub(crate) fn into_keys(self) -> Vec<KeyValue> {
        self.results.into_iter().map(|result| result.kv).collect()
    }
}

fn or_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text: Option<std::borrow::Cow<'de, str>> = Option::deserialize(deserializer)?;
    let decoded = text.map(|text| BASE64.decode(text.as_bytes()).map_err(serde::de::Error::custom));
    Ok(decoded.transpose()?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_written_as_consul_reads_them() {
        let text = |operation| serde_json::to_string(&operation).unwrap();
        assert_eq!(
            text(Operation::cas("a/b", "x", 0)),
            r#"{"KV":{"Verb":"cas","Key":"a/b","Value":"eA==","Index":0}}"#
        );
        assert!(Operation::cas("a", "x", 0).writes() && Operation::delete("a").writes());
        assert!(!Operation::get("a").writes() && !Operation::get_tree("a").writes());
        assert!(!Operation::check("a", 0).writes() && !Operation::check("a", 7).writes());
        assert_eq!(
            text(Operation::check("a", 0)),
            r#"{"KV":{"Verb":"check-not-exists","Key":"a"}}"#
        );
        assert_eq!(
            text(Operation::check("a", 7)),
            r#"{"KV":{"Verb":"check-index","Key":"a","Index":7}}"#
        );
    }

    #[test]
    fn answers_are_read_with_their_nulls() {
        let done = r#"{"Results":[{"KV":{"LockIndex":0,"Key":"a","Flags":0,"Value":null,"CreateIndex":5,"ModifyIndex":7}}],
                       "Errors":null,"Index":7}"#;
        let done: Txn = serde_json::from_str(done).unwrap();
        assert_eq!((done.results[0].kv.modify_index, done.errors.len()), (7, 0));
        let not = r#"{"Results":null,"Errors":[{"OpIndex":1,"What":"failed to set key \"a\", index is stale"}]}"#;
        let not: Txn = serde_json::from_str(not).unwrap();
        assert_eq!((not.errors[0].op_index, not.results.len()), (1, 0));
    }
}
