//! Requests and answers of the JSON gateway. Keys and values are base64, 64-bit integers are
//! strings, default values are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer};
use serde_json::{Value as Json, json};

/// Bytes as the gateway wants them.
pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64.encode(bytes)
}

/// The end of the range of all keys that begin with `prefix`: its last byte, which is no `0xff` in
/// any key here, counted up.
pub(crate) fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// Writes a key.
pub(crate) fn put(key: &str, value: &str) -> Json {
    json!({"request_put": {"key": encode(key), "value": encode(value)}})
}

/// Deletes a key.
pub(crate) fn delete(key: &str) -> Json {
    json!({"request_delete_range": {"key": encode(key)}})
}

/// Deletes all keys that begin with `prefix`.
pub(crate) fn delete_all(prefix: &str) -> Json {
    json!({"request_delete_range": {"key": encode(prefix), "range_end": encode(range_end(prefix))}})
}

/// Reads a key.
pub(crate) fn get(key: &str) -> Json {
    json!({"request_range": {"key": encode(key)}})
}

/// Reads the revisions of a key, not its value.
pub(crate) fn get_revision(key: &str) -> Json {
    json!({"request_range": {"key": encode(key), "keys_only": true}})
}

/// Reads all keys that begin with `prefix`.
pub(crate) fn get_all(prefix: &str) -> Json {
    json!({"request_range": {"key": encode(prefix), "range_end": encode(range_end(prefix))}})
}

/// Reads the first keys from `start` on, before `end`, not their values.
pub(crate) fn get_keys(start: &[u8], end: &[u8], limit: usize) -> Json {
    json!({"request_range": {
        "key": encode(start), "range_end": encode(end), "limit": limit.to_string(), "keys_only": true
    }})
}

/// The key is not there.
pub(crate) fn is_missing(key: &str) -> Json {
    json!({"key": encode(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"})
}

/// The key is there.
pub(crate) fn is_there(key: &str) -> Json {
    json!({"key": encode(key), "target": "CREATE", "result": "GREATER", "create_revision": "0"})
}

/// The key was last written at this revision.
pub(crate) fn has_revision(key: &str, revision: i64) -> Json {
    json!({"key": encode(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()})
}

/// A transaction; as a request of its own the same without `request_txn`.
pub(crate) fn txn(compare: &[Json], success: &[Json], failure: &[Json]) -> Json {
    json!({"compare": compare, "success": success, "failure": failure})
}

/// A transaction inside another.
pub(crate) fn inner_txn(compare: &[Json], success: &[Json], failure: &[Json]) -> Json {
    json!({"request_txn": txn(compare, success, failure)})
}

/// What every answer begins with.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    /// The store's revision when it answered; of a transaction that wrote, the revision of its
    /// writes.
    #[serde(deserialize_with = "number")]
    pub(crate) revision: i64,
}

/// A key with its value and revision.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValue {
    #[serde(deserialize_with = "bytes")]
    pub(crate) key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    pub(crate) mod_revision: i64,
}

/// The answer to a range.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Range {
    pub(crate) header: Header,
    pub(crate) kvs: Vec<KeyValue>,
    /// There are more keys in the range.
    pub(crate) more: bool,
}

/// The answer to a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Txn {
    pub(crate) header: Header,
    pub(crate) succeeded: bool,
    pub(crate) responses: Vec<Response>,
}

/// The answer to one operation of a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Response {
    pub(crate) response_range: Option<Range>,
    pub(crate) response_txn: Option<Txn>,
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<'a> {
        Text(std::borrow::Cow<'a, str>),
        Number(i64),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(n) => Ok(n),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    BASE64.decode(text.as_bytes()).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_defaults_left_out() {
        let text = r#"{"header":{"cluster_id":"1","revision":"7"},"responses":[{"response_range":{"header":{"revision":"7"},
            "kvs":[{"key":"YQ==","create_revision":"3","mod_revision":"5","version":"2","value":"Yg=="}],"count":"1"}},
            {"response_txn":{"succeeded":true}},{}]}"#;
        let found: Txn = serde_json::from_str(text).unwrap();
        assert_eq!((found.header.revision, found.succeeded), (7, false));
        let range = found.responses[0].response_range.as_ref().unwrap();
        assert_eq!(
            (range.kvs[0].key.as_slice(), range.kvs[0].mod_revision, range.more),
            (&b"a"[..], 5, false)
        );
        assert!(found.responses[1].response_txn.as_ref().unwrap().succeeded);
    }

    #[test]
    fn ranges_end_behind_their_prefix() {
        assert_eq!(range_end("emmer/t/a/"), b"emmer/t/a0");
    }
}
