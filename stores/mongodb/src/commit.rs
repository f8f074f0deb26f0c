//! Commits: one update of the partition's document each.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;

use emmer_store::{CommitOutcome, Etag, Mutation, Row, TableDecl};
use emmer_store_keyvalue::{Answered, At, Commits, Failure, Fault, Patience, check_sizes, outcome};
use mongodb::bson::{Bson, Document, doc};
use tokio::time::Instant;

use crate::client::Client;
use crate::documents::{self, ETAG, ID, LAST, ROWS, field_path, row_path, volatile_path};
use crate::failure::Ended;
use crate::store::{COMMIT_BYTES_MAX, MongoDb, ROW_BYTES_MAX};

/// Update of a partition's document: its conditions, and its changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Update {
    /// The conditions, the partition among them.
    pub(crate) filter: Document,
    pub(crate) operators: Document,
    /// True if the document is made where none meets the conditions: all conditions hold where
    /// there is none.
    pub(crate) makes: bool,
}

/// Puts an update together.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    decl: &'static TableDecl,
    partition: &'a str,
    mark: &'a str,
    filter: Document,
    set: Document,
    unset: Document,
    makes: bool,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(decl: &'static TableDecl, partition: &'a str, mark: &'a str) -> Self {
        let (filter, set) = (doc! { ID: partition }, doc! { LAST: mark });
        Self { decl, partition, mark, filter, set, unset: Document::new(), makes: true }
    }

    /// The row must be there, or must not.
    fn presence(&mut self, key: &str, is_there: bool) {
        self.filter.insert(row_path(key), doc! { "$exists": is_there });
        self.makes &= !is_there;
    }

    /// The row must have this etag.
    pub(crate) fn unchanged(&mut self, key: &str, etag: &str) {
        self.filter.insert(field_path(key, ETAG), etag);
        self.makes = false;
    }

    /// A column of the row must hold this.
    pub(crate) fn holds(&mut self, path: String, value: Option<Bson>) {
        self.filter
            .insert(path, value.map_or_else(|| Bson::from(doc! { "$exists": false }), Bson::from));
    }

    /// Writes the row, a new one with its volatile columns.
    fn write(&mut self, row: &Row, is_new: bool) {
        let written = documents::row_of(self.decl, self.partition, row, self.mark);
        self.set.insert(row_path(row.key()), written);
        if is_new && let Some(volatile) = documents::volatile_of(self.decl, row) {
            self.set.insert(volatile_path(row.key()), volatile);
        }
    }

    /// Adds a row that is not there.
    pub(crate) fn insert(&mut self, row: &Row) {
        self.presence(row.key(), false);
        self.write(row, true);
    }

    /// Takes the row away.
    pub(crate) fn remove(&mut self, key: &str) {
        self.unset.insert(row_path(key), "");
        self.unset.insert(volatile_path(key), "");
    }

    /// One mutation. `is_there` guesses of an upsert's row, which matters only where it brings
    /// volatile columns along.
    fn mutation(&mut self, mutation: &Mutation, is_there: impl Fn(&str) -> bool) {
        match mutation {
            Mutation::Insert { row } => self.insert(row),
            Mutation::Replace { row, etag } => {
                self.unchanged(row.key(), etag);
                self.write(row, false);
            }
            Mutation::Upsert { row } => {
                let brings = documents::volatile_of(self.decl, row).is_some();
                let guessed = brings && is_there(row.key());
                if brings {
                    self.presence(row.key(), guessed);
                }
                self.write(row, brings && !guessed);
            }
            Mutation::Delete { row_key, etag } => {
                match etag {
                    Some(etag) => self.unchanged(row_key, etag),
                    None => self.presence(row_key, true),
                }
                self.remove(row_key);
            }
            Mutation::Check { row_key, etag } => self.unchanged(row_key, etag),
        }
    }

    pub(crate) fn update(self) -> Update {
        let mut operators = doc! { "$set": self.set };
        if !self.unset.is_empty() {
            operators.insert("$unset", self.unset);
        }
        Update { filter: self.filter, operators, makes: self.makes }
    }
}

/// The first mutation whose condition did not hold.
fn conflict(mutations: &[Mutation], found: &BTreeMap<String, Etag>) -> Option<usize> {
    mutations.iter().position(|mutation| !mutation.holds(found.get(mutation.row_key())))
}

impl MongoDb {
    /// Sends an update once; whether it happened.
    pub(crate) async fn apply(
        &self,
        decl: &'static TableDecl,
        update: &Update,
        deadline: Instant,
    ) -> Result<bool, Ended> {
        let collection = self.client().collection(decl);
        let request = collection
            .update_one(update.filter.clone(), update.operators.clone())
            .upsert(update.makes);
        match self.client().once(deadline, request).await {
            Ok(done) => Ok(done.matched_count > 0 || done.upserted_id.is_some()),
            // There is a document of the partition, and a condition does not hold for it.
            Err(Ended::Duplicate(_)) if update.makes => Ok(false),
            Err(ended) => Err(ended),
        }
    }

    /// The etags of those of the rows that are there.
    pub(crate) async fn etags(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        keys: &[&str],
        deadline: Instant,
    ) -> Result<BTreeMap<String, Etag>, Fault> {
        let collection = self.client().collection(decl);
        let wanted: Document =
            keys.iter().map(|key| (field_path(key, ETAG), Bson::Int32(1))).collect();
        let request = || {
            let found = collection.find_one(doc! { ID: partition }).projection(wanted.clone());
            found.max_time(Client::left(deadline)).into_future()
        };
        let found = self.client().send(deadline, request).await?.unwrap_or_default();
        let rows = found.get_document(ROWS).cloned().unwrap_or_default();
        let etag = |key: &&str| {
            let row = rows.get_document(documents::escape(key)).ok()?;
            Some(((*key).to_owned(), Etag::from(row.get_str(ETAG).ok()?)))
        };
        Ok(keys.iter().filter_map(etag).collect())
    }

    fn committed(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        mutations: &[Mutation],
        mark: &str,
    ) -> CommitOutcome {
        for mutation in mutations {
            let is_there = !matches!(mutation, Mutation::Delete { .. });
            self.guesses().learn(decl, partition, mutation.row_key(), is_there.then_some(()));
        }
        outcome::committed(mutations, |_| mark.into())
    }
}

impl Commits for MongoDb {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table: decl, partition, deadline } = at;
        check_sizes(mutations, ROW_BYTES_MAX, COMMIT_BYTES_MAX, documents::size)?;
        let keys: Vec<&str> = mutations.iter().map(Mutation::row_key).collect();
        if mutations.iter().all(|mutation| matches!(mutation, Mutation::Check { .. })) {
            let found = self.etags(decl, partition, &keys, deadline).await?;
            let broken = conflict(mutations, &found);
            return Ok(broken.map_or_else(
                || CommitOutcome::Committed(vec![None; keys.len()]),
                CommitOutcome::Conflict,
            ));
        }
        let mut patience = Patience::default();
        loop {
            let mark = self.mark();
            let mut builder = Builder::new(decl, partition, &mark);
            let is_there = |key: &str| self.guesses().about(decl, partition, key).is_some();
            mutations.iter().for_each(|mutation| builder.mutation(mutation, is_there));
            match self.apply(decl, &builder.update(), deadline).await {
                Ok(true) => {
                    if mutations.iter().all(|mutation| matches!(mutation, Mutation::Delete { .. }))
                    {
                        // The commit happened, whatever the outcome of this.
                        let _ = self.forget_empty(decl, partition, deadline).await;
                    }
                    return Ok(self.committed(decl, partition, mutations, &mark));
                }
                Ok(false) => {
                    let found = self.etags(decl, partition, &keys, deadline).await?;
                    for key in &keys {
                        self.guesses().learn(
                            decl,
                            partition,
                            key,
                            found.contains_key(*key).then_some(()),
                        );
                    }
                    if let Some(at) = conflict(mutations, &found) {
                        return Ok(CommitOutcome::Conflict(at));
                    }
                    // An upsert's guess was wrong, or it was otherwise a moment ago.
                    if Instant::now() >= deadline {
                        let why = "others make and delete the same rows all the time";
                        return Err(Failure::Nothing(Fault::unavailable(why)));
                    }
                }
                Err(Ended::Busy(_)) if patience.wait(None, deadline).await => {}
                Err(Ended::Uncertain(why)) => {
                    // It happened for certain if a row has its mark. Otherwise it may be on its way
                    // yet.
                    let found =
                        self.etags(decl, partition, &keys, deadline).await.unwrap_or_default();
                    if found.values().any(|etag| **etag == *mark) {
                        return Ok(self.committed(decl, partition, mutations, &mark));
                    }
                    return Err(Failure::Broken(why));
                }
                Err(ended) => return Err(ended.failure()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::silos::SILO_INSTANCES;

    use super::*;

    fn update(mutations: &[Mutation], is_there: bool) -> Update {
        let mut builder = Builder::new(&SILO_INSTANCES, "prod", "m.7");
        mutations.iter().for_each(|mutation| builder.mutation(mutation, |_| is_there));
        builder.update()
    }

    #[test]
    fn every_condition_is_in_the_filter_and_every_row_in_the_operators() {
        let row = |key: &str| Row::new(key).with("Port", emmer_store::Value::Int(1));
        let found = update(
            &[
                Mutation::Insert { row: row("a.b") },
                Mutation::Replace { row: row("c"), etag: "m.1".into() },
                Mutation::Upsert { row: row("d") },
                Mutation::Delete { row_key: "e".into(), etag: None },
                Mutation::Delete { row_key: "f".into(), etag: Some("m.2".into()) },
                Mutation::Check { row_key: "g".into(), etag: "m.3".into() },
            ],
            false,
        );
        let filter = doc! {
            "_id": "prod", "rows.a%2Eb": { "$exists": false }, "rows.c.etag": "m.1",
            "rows.e": { "$exists": true }, "rows.f.etag": "m.2", "rows.g.etag": "m.3",
        };
        assert_eq!((&found.filter, found.makes), (&filter, false));
        let set = found.operators.get_document("$set").unwrap();
        let keys: Vec<&str> = set.keys().map(String::as_str).collect();
        assert_eq!(keys, ["last", "rows.a%2Eb", "rows.c", "rows.d"]);
        assert_eq!(set.get_document("rows.c").unwrap().get_str("etag").unwrap(), "m.7");
        let unset: Vec<&String> = found.operators.get_document("$unset").unwrap().keys().collect();
        assert_eq!(unset, ["rows.e", "volatile.e", "rows.f", "volatile.f"]);
    }

    #[test]
    fn volatile_columns_are_written_with_new_rows_only() {
        let beat = emmer_store::Value::Time(emmer_core::Timestamp::from_millis(5));
        let row = || Row::new("a").with("IAmAliveTime", beat.clone());
        let sets = |mutation: Mutation, is_there| {
            let found = update(&[mutation], is_there);
            (found.operators.get_document("$set").unwrap().contains_key("volatile.a"), found)
        };
        let (sets_it, insert) = sets(Mutation::Insert { row: row() }, false);
        assert!(sets_it && insert.makes);
        assert!(!sets(Mutation::Replace { row: row(), etag: "m.1".into() }, true).0);
        for (is_there, condition) in [(false, false), (true, true)] {
            let (sets_it, found) = sets(Mutation::Upsert { row: row() }, is_there);
            assert_eq!((sets_it, found.makes), (!is_there, !is_there));
            assert_eq!(
                found.filter.get_document("rows.a").unwrap(),
                &doc! { "$exists": condition }
            );
        }
    }
}
