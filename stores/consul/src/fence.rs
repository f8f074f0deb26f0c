//! The fence of a partition: how commits that are too large for one transaction become visible all
//! at once.
//!
//! See the crate's documentation for the whole of it.

use emmer_store_keyvalue::Fault;
use serde::{Deserialize, Serialize};

use crate::wire::{KeyValue, OPERATIONS_MAX, Operation};

/// The name of the fence's key in its partition. No escaped row key begins with a tilde.
pub(crate) const FENCE: &str = "~fence";

/// State of the fence. A fence that is not there is idle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub(crate) enum Fence {
    /// Small commits may happen.
    #[default]
    Idle,
    /// A large commit reads the rows it depends on. Small commits must wait, or make the fence idle
    /// again, and then the large one begins again.
    Closing {
        /// Whose it is.
        by: String,
    },
    /// A large commit has happened: a store that sees this writes its rows before reading or
    /// writing any.
    Committing(Record),
}

/// All that a large commit changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Whose it is.
    pub(crate) by: String,
    /// Keys, as they follow the partition's prefix, and their new values.
    pub(crate) writes: Vec<(String, String)>,
    /// Keys to delete, in the same way.
    pub(crate) deletes: Vec<String>,
}

impl Fence {
    /// The stored form. It is marked, because Consul keeps the index of a key that is written
    /// unchanged.
    pub(crate) fn encode(&self, mark: &str) -> Result<String, Fault> {
        #[derive(Serialize)]
        struct Marked<'a> {
            mark: &'a str,
            #[serde(flatten)]
            fence: &'a Fence,
        }
        serde_json::to_string(&Marked { mark, fence: self })
            .map_err(|e| Fault::corrupt(format!("a fence: {e}")))
    }
}

/// A fence as read, with the index of its write; 0 when there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) fence: Fence,
    pub(crate) index: i64,
}

impl Seen {
    pub(crate) fn of(kv: &KeyValue) -> Result<Self, Fault> {
        let fence = serde_json::from_slice(&kv.value).map_err(|e| {
            Fault::corrupt(format!("the fence {} cannot be understood: {e}", kv.key))
        })?;
        Ok(Self { fence, index: kv.modify_index })
    }
}

impl Record {
    /// The transactions that write the commit, each only while the fence is the one of `index`. The
    /// last one makes the fence `idle`. Repeated, they change nothing.
    pub(crate) fn transactions(&self, prefix: &str, index: i64, idle: &str) -> Vec<Vec<Operation>> {
        let fence = format!("{prefix}{FENCE}");
        let key = |rest: &String| format!("{prefix}{rest}");
        let writes = self.writes.iter().map(|(rest, value)| Operation::set(&key(rest), value));
        let deletes = self.deletes.iter().map(|rest| Operation::delete(&key(rest)));
        let all: Vec<Operation> = writes.chain(deletes).collect();
        let mut parts: Vec<Vec<Operation>> = all
            .chunks(OPERATIONS_MAX - 1)
            .map(|part| {
                std::iter::once(Operation::check(&fence, index))
                    .chain(part.iter().cloned())
                    .collect()
            })
            .collect();
        parts.push(vec![Operation::cas(&fence, idle, index)]);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_come_back() {
        let record = Record {
            by: "m.1".into(),
            writes: vec![("r/.row".into(), "{\"a\":1}".into())],
            deletes: vec!["s".into()],
        };
        for fence in [Fence::Idle, Fence::Closing { by: "m.1".into() }, Fence::Committing(record)] {
            let text = fence.encode("m.2").unwrap();
            assert!(text.starts_with(r#"{"mark":"m.2","state":""#), "{text}");
            let kv = KeyValue { key: "k".into(), value: text.into(), modify_index: 7 };
            assert_eq!(Seen::of(&kv).unwrap(), Seen { fence, index: 7 });
        }
        let kv = KeyValue { key: "k".into(), value: "{}".into(), modify_index: 7 };
        assert!(Seen::of(&kv).unwrap_err().detail.contains("the fence k"));
    }

    #[test]
    fn a_record_fits_transactions_that_look_at_the_fence_first() {
        let writes = (0..150).map(|n| (format!("r{n}/.row"), "{}".to_owned())).collect();
        let record = Record { by: "m.1".into(), writes, deletes: vec!["x".into(); 20] };
        let parts = record.transactions("p/", 9, "idle");
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 170 + 3 + 1);
        for part in parts.iter().take(3) {
            assert!(part.len() <= OPERATIONS_MAX);
            assert_eq!(part[0], Operation::check("p/~fence", 9));
        }
        assert_eq!(parts[3], [Operation::cas("p/~fence", "idle", 9)]);
    }
}
